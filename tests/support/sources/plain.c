/* A program without anything of pyresolve's: does a library load? Exit status 42 if it does, 41 if
 * not; any other end is the library's doing or the loader's.
 *
 *   plain dlopen PATH N     opens it, with N things in its memory beside
 *   plain preload PATH N    was started with it in LD_PRELOAD */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A library that makes the loader read or write beyond its own memory has chance effects. */
static void crowd(int count) {
    for (int i = 0; i < count; i++) {
        size_t size = 40 + (size_t)i % 7 * 600;
        char *block = malloc(size);
        if (block) {
            memset(block, i, size);
        }
        if (i % 2) {
            free(block);
        }
        mmap(NULL, 16384u << i % 8, i % 3 ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
}

int main(int argc, char **argv) {
    if (argc != 4) {
        return 2;
    }
    bool opens = strcmp(argv[1], "dlopen") == 0;
    if (opens) { /* a preload is there already, and may have damaged what more calls would need */
        crowd(atoi(argv[3]));
    }
    int how = opens ? RTLD_NOW | RTLD_LOCAL : RTLD_LAZY | RTLD_NOLOAD;
    void *handle = dlopen(argv[2], how);
    if (!handle) {
        const char *error = dlerror();
        fprintf(stderr, "%s\n", error ? error : "not mapped");
    }
    _exit(handle ? 42 : 41);
}
