/* The least that any isolated check must do, for `pyresolve bench` to measure: a dynamic program
 * that starts and ends, and given a library opens it and prints how many nanoseconds that took.
 * Linked as any program is, unlike the helper that is held against it. */
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    if (argc < 2) {
        return 0;
    }
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    void *handle = dlopen(argv[1], RTLD_NOW); /* as check() opens it */
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    printf("%lld\n", (end.tv_sec - begin.tv_sec) * 1000000000LL + end.tv_nsec - begin.tv_nsec);
    fflush(stdout);
    _exit(0); /* no destructor of the library's */
}
