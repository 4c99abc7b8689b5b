/* Writes to COUNTED_FILE that it is loaded: "+" and, some time later, "-"; two at once show. */
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void __attribute__((constructor)) on_load(void) {
    const char *path = getenv("COUNTED_FILE");
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd >= 0 && write(fd, "+", 1) == 1) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        if (write(fd, "-", 1) == 1)
            close(fd);
    }
}
