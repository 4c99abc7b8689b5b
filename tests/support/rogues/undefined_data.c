/* Reads a variable that no library defines: even lazy binding cannot load it. */
extern int rogue_nowhere_data;

int rogue_undefined_data(void) {
    return rogue_nowhere_data;
}
