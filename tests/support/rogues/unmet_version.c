/* Needs a GLIBC version that no libc has: clock_gettime@GLIBC_2.17, patched after linking. */
#include <time.h>

int rogue_unmet_version(struct timespec *now) {
    return clock_gettime(CLOCK_MONOTONIC, now);
}
