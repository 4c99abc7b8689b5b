/* A libcuda.so.1 without a device. symbols.h, made from the real hooks, lists what must exist. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STUB_LIBRARY 34

/* clang-format off */
#define FAILS(name) int name(void); int name(void) { return RESULT; }
/* clang-format on */
#include "symbols.h"

int cuInit(unsigned flags) {
    const char *marker = getenv("PYRESOLVE_TEST_CUINIT_MARKER");
    int fd = marker ? open(marker, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    (void)flags;
    if (fd >= 0) {
        dprintf(fd, "%d\n", (int)getpid());
        close(fd);
    }
    return RESULT;
}

int cuDriverGetVersion(int *version) {
    if (RESULT == STUB_LIBRARY)
        return RESULT;
    *version = VERSION;
    return 0;
}
