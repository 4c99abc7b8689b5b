/* Calls a function that no library defines, and is linked -z now: lazy loading fails as well. */
int rogue_nowhere_function(void);

int rogue_bind_now(void) {
    return rogue_nowhere_function();
}
