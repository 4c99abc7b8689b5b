/* Calls a function that no library defines: lazy binding loads it, RTLD_NOW does not. */
int rogue_nowhere_function(void);

int rogue_undefined_function(void) {
    return rogue_nowhere_function();
}
