/* Behaves: loads, and defines one function. */
int rogue_good(void) {
    return 42;
}
