/* Needs a library that is nowhere. */
int rogue_missing_needed(void) {
    return 0;
}
