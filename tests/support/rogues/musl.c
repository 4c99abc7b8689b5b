/* Is built for musl: it needs a C library that glibc's loader cannot supply. */
int rogue_musl(void) {
    return 0;
}
