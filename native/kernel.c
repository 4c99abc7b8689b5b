#include "kernel.h"

#include <stdint.h>

/* What getdents64 fills in; glibc has no function for it before 2.30, and opendir allocates. */
struct entry {
    uint64_t inode;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
};

/* Without /proc nobody tells which descriptors there are: a process that just started has few. */
enum {
    FEW = 64
};

static unsigned number_of(const char *name) {
    unsigned number = 0;
    for (; *name >= '0' && *name <= '9'; name++) {
        number = number * 10 + (unsigned)(*name - '0');
    }
    return *name == '\0' ? number : 0; /* "." and ".." */
}

/* Before Linux 5.9. The directory goes on at the next number, whatever was closed meanwhile. */
static void close_listed(unsigned first) {
    int directory = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        for (unsigned fd = first; fd < first + FEW; fd++) {
            close((int)fd);
        }
        return;
    }
    _Alignas(struct entry) char buffer[2048];
    long filled;
    while ((filled = syscall(SYS_getdents64, directory, buffer, sizeof buffer)) > 0) {
        const struct entry *entry;
        for (long at = 0; at < filled; at += entry->size) {
            entry = (const void *)(buffer + at);
            unsigned fd = number_of(entry->name);
            if (fd >= first && fd != (unsigned)directory) {
                close((int)fd);
            }
        }
    }
    close(directory);
}

void pyr_close_from(unsigned first) {
    if (syscall(SYS_close_range, first, ~0U, 0) < 0) {
        close_listed(first);
    }
}
