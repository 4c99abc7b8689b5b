/* Prints how many nanoseconds dlopen of the named library takes in a process that has just begun.
 * RTLD_NOW, as check() opens it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc != 2) {
        return 2;
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    void *handle = dlopen(argv[1], RTLD_NOW);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%lld\n", (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec);
    fflush(stdout);
    _exit(0);
}
