/* As a preload it lets every program start but the one that tries libraries. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

static void __attribute__((constructor)) on_load(void) {
    if (strcmp(program_invocation_short_name, "pyresolve-helper") == 0)
        _exit(9);
}
