#include "supervise.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    NS_PER_S = 1000000000,
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

/* SIGCHLD is waited for. SIGTERM says that the caller waits no longer, or is gone. Both are
 * blocked, so that none is lost between two calls. */
static sigset_t awaited_signals(void) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    return signals;
}

void pyr_supervisor_begin(struct pyr_supervisor *self, int64_t timeout_ns) {
    self->deadline = now_ns() + timeout_ns;
    sigset_t signals = awaited_signals();
    sigprocmask(SIG_BLOCK, &signals, &self->mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* No core of a crash that was provoked. Zero would still start a core handler that is a pipe;
     * one byte stops both kinds (core(5)). */
    setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_cur = 1, .rlim_max = 1});
}

/* The group is the child's own, so that a target which signals its process group does not reach
 * the supervisor. */
static void child_begin(const struct pyr_supervisor *self, pid_t supervisor) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) {
        _exit(EXIT_FAILURE);
    }
    sigprocmask(SIG_SETMASK, &self->mask, NULL);
}

pid_t pyr_supervisor_fork(const struct pyr_supervisor *self) {
    pid_t supervisor = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        child_begin(self, supervisor);
    }
    return pid;
}

struct spawned {
    const struct pyr_supervisor *self;
    pid_t supervisor;
    void (*image)(void *);
    void *argument;
};

static int child_main(void *argument) {
    const struct spawned *spawned = argument;
    child_begin(spawned->self, spawned->supervisor);
    spawned->image(spawned->argument);
    _exit(EXIT_FAILURE);
}

/* No signal handler of this process can run in the child: there is none. */
pid_t pyr_supervisor_spawn(const struct pyr_supervisor *self, void (*image)(void *),
                           void *argument) {
    static _Alignas(16) char stack[16384];
    struct spawned spawned = {self, getpid(), image, argument};
    return clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &spawned);
}

/* Waits until the deadline, which a SIGTERM brings forward. */
static bool wait_until_deadline(struct pyr_supervisor *self, pid_t pid, int *status) {
    sigset_t signals = awaited_signals();
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid) {
            return true;
        }
        int64_t left = self->deadline - now_ns();
        if (left <= 0) {
            return false;
        }
        struct timespec timeout = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
        if (sigtimedwait(&signals, NULL, &timeout) == SIGTERM) {
            self->deadline = 0;
        }
    }
}

/* As a subreaper this process inherits all that the target has started, daemons included. A killed
 * child hands its own children over in turn, so the list is read until it is empty. */
static void kill_descendants(void) {
    for (;;) {
        pid_t ended;
        do {
            ended = waitpid(-1, NULL, WNOHANG);
        } while (ended > 0);
        if (ended < 0) {
            return;
        }
        char list[4096];
        int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
        ssize_t length = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
        if (fd >= 0) {
            close(fd);
        }
        if (length <= 0) {
            return; /* no /proc, or a kernel without this file: nothing names them */
        }
        list[length] = '\0';
        char *end;
        for (char *at = list;; at = end) {
            long pid = strtol(at, &end, 10);
            if (end == at || *end == '\0') {
                break; /* a number at the very end may be cut: it comes again */
            }
            kill((pid_t)pid, SIGKILL);
            waitpid((pid_t)pid, NULL, 0);
        }
    }
}

bool pyr_supervisor_wait(struct pyr_supervisor *self, pid_t pid, int *status) {
    bool in_time = wait_until_deadline(self, pid, status);
    if (!in_time) {
        kill(pid, SIGKILL);
        waitpid(pid, status, 0);
    }
    kill_descendants();
    return in_time;
}

struct pyr_board *pyr_board_share(void) {
    return pyr_board_map(-1);
}

/* Named through this process and not inherited: constructors run before the child's main, and may
 * close every descriptor that they find. */
struct pyr_board *pyr_board_publish(char path[PYR_BOARD_PATH_SIZE]) {
    int fd = memfd_create("pyresolve-board", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, sizeof(struct pyr_board)) < 0) {
        return NULL;
    }
    snprintf(path, PYR_BOARD_PATH_SIZE, "/proc/%ld/fd/%d", (long)getpid(), fd);
    return pyr_board_map(fd);
}
