/* Preloaded into the caller: makes the moments that a probe must survive happen every time.
 * INTERPOSE names one of them:
 *   late    after a poll that saw nothing, 60 ms pass before the caller looks again
 *   signal  a SIGINT arrives after the interpreter last looked for one, just before the first poll
 *   fork    another thread forks while a probe starts; its child, which sleeps for 3 s, holds a
 *           copy of every descriptor that is open at that moment
 *   kernel  there is no pidfd_open, as before Linux 5.3
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef int (*poll_fn)(struct pollfd *, nfds_t, int);
typedef int (*spawn_fn)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                        const posix_spawnattr_t *, char *const[], char *const[]);
typedef long (*syscall_fn)(long, long, long, long, long, long, long);

static int is(const char *moment) {
    const char *chosen = getenv("INTERPOSE");
    return chosen && strcmp(chosen, moment) == 0;
}

int poll(struct pollfd *fds, nfds_t count, int timeout) {
    static int interrupted;
    poll_fn real = (poll_fn)dlsym(RTLD_NEXT, "poll");
    if (count == 2 && is("signal") && !interrupted) {
        interrupted = 1;
        raise(SIGINT);
    }
    int ready = real(fds, count, timeout);
    if (count == 2 && ready == 0 && is("late"))
        usleep(60000);
    return ready;
}

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const envp[]) {
    spawn_fn real = (spawn_fn)dlsym(RTLD_NEXT, "posix_spawn");
    if (is("fork") && fork() == 0) {
        sleep(3);
        _exit(0);
    }
    return real(pid, path, actions, attributes, argv, envp);
}

long syscall(long number, ...) {
    syscall_fn real = (syscall_fn)dlsym(RTLD_NEXT, "syscall");
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_pidfd_open && is("kernel")) {
        errno = ENOSYS;
        return -1;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
