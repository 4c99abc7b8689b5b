/* What rogues share: a constructor, and a file for the pid of what they leave behind. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ON_LOAD static void __attribute__((constructor)) on_load(void)

static inline void rogue_write_pid(int pid) {
    const char *path = getenv("ROGUE_PIDFILE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644) : -1;
    if (fd >= 0) {
        dprintf(fd, "%d\n", pid);
        close(fd);
    }
}
