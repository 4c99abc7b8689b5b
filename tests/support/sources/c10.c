/* torch's base library, as far as the loader cares. */
int c10_error(int code) {
    return code;
}
