#include "supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "kernel.h"

enum {
    END_MS = 150,  /* for all that was killed to end */
    LOST_MS = 100, /* how often to look for an end if a call failed that would have told of it */
    LOOK_MS = 2,   /* how often to look for new children: no signal tells that one was adopted */
};

/* SIGCHLD, and the signals which say that the caller stopped waiting or is gone. All are blocked,
 * so that none is lost between two calls. */
static sigset_t awaited_signals(void) {
    static const int awaited[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    sigset_t signals;
    sigemptyset(&signals);
    for (size_t i = 0; i < sizeof awaited / sizeof *awaited; i++) {
        sigaddset(&signals, awaited[i]);
    }
    return signals;
}

void pyr_supervisor_begin(struct pyr_supervisor *self, int64_t timeout_ns, pid_t caller) {
    self->deadline = now_ns() + timeout_ns;
    self->caller = caller;
    self->stop_signal = 0;
    sigset_t signals = awaited_signals();
    sigprocmask(SIG_BLOCK, &signals, &self->mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* No core dump of a crash that a target causes. A limit of 0 would still start a core handler
     * that is a pipe; 1 stops both kinds (core(5)). */
    setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_cur = 1, .rlim_max = 1});
}

/* The child gets its own process group, so that a target which signals its group does not reach the
 * supervisor. */
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
    void (*exec_child)(void *);
    void *argument;
};

static int child_main(void *argument) {
    const struct spawned *spawned = argument;
    child_begin(spawned->self, spawned->supervisor);
    spawned->exec_child(spawned->argument);
    _exit(EXIT_FAILURE);
}

/* This process has no signal handler that could run in the child. */
pid_t pyr_supervisor_spawn(const struct pyr_supervisor *self, void (*exec_child)(void *),
                           void *argument) {
    struct spawned spawned = {self, getpid(), exec_child, argument};
#ifdef __SANITIZE_ADDRESS__ /* it reports every stack that belongs to no thread */
    pid_t pid = fork();
    return pid == 0 ? child_main(&spawned) : pid;
#else
    static _Alignas(16) char stack[16384];
    return clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &spawned);
#endif
}

/* Waits until `limit` or for one of the signals. Returns its number, or -1, and who sent it. */
static int wait_for_signal(const sigset_t *signals, int64_t limit, siginfo_t *info) {
    int64_t left = limit - now_ns();
    left = left > 0 ? left : 0;
    struct timespec timeout = {.tv_sec = left / NS_PER_S, .tv_nsec = left % NS_PER_S};
    return sigtimedwait(signals, info, &timeout);
}

/* Reaps all that has ended, and records how the children ended. Returns false if none is left. */
static bool reap(struct pyr_child *children, size_t count, enum pyr_child_end end) {
    for (;;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended <= 0) {
            return ended == 0 || errno != ECHILD;
        }
        for (size_t i = 0; i < count; i++) {
            if (children[i].pid == ended && children[i].end == PYR_CHILD_STUCK) {
                children[i].end = end;
                children[i].status = status;
            }
        }
    }
}

static bool all_have_ended(const struct pyr_child *children, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (children[i].end == PYR_CHILD_STUCK) {
            return false;
        }
    }
    return true;
}

static void note_signal(struct pyr_supervisor *self, struct pyr_child *children, size_t count,
                        const siginfo_t *info) {
    bool by_kernel = info->si_code > 0;
    for (size_t i = 0; i < count && !by_kernel; i++) {
        if (children[i].pid == info->si_pid) {
            children[i].hostile = true;
            if (children[i].end == PYR_CHILD_STUCK) { /* not reaped: the pid is still its own */
                kill(children[i].pid, SIGKILL);
            }
            return;
        }
    }
    if (by_kernel || self->caller == 0 || info->si_pid == self->caller) {
        self->stop_signal = info->si_signo;
        self->deadline = 0;
    }
}

/* Waits until the deadline, or until a signal tells this process to end. An exit noticed after the
 * deadline counts as a timeout, or verdicts would depend on scheduling. */
static void wait_until_deadline(struct pyr_supervisor *self, struct pyr_child *children,
                                size_t count) {
    sigset_t signals = awaited_signals();
    while (now_ns() < self->deadline) {
        reap(children, count, PYR_CHILD_ENDED);
        bool ended = all_have_ended(children, count);
        siginfo_t info;
        int64_t look = now_ns() + LOST_MS * NS_PER_MS;
        look = look < self->deadline ? look : self->deadline;
        /* What a child sent before its end is pending then. */
        int number = wait_for_signal(&signals, ended ? 0 : look, &info);
        if (number > 0 && number != SIGCHLD) {
            note_signal(self, children, count, &info);
        } else if (ended && number < 0) {
            return;
        }
    }
}

/* Returns false if the children cannot be enumerated: no /proc, or a kernel without this file. */
static bool kill_children(void) {
    char list[4096];
    int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, list, sizeof list - 1);
    if (fd >= 0) {
        close(fd);
    }
    if (length < 0) {
        return false;
    }
    list[length] = '\0';
    char *end;
    for (char *at = list;; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at || *end == '\0') {
            return true; /* a number at the very end may be cut: the list is read again */
        }
        kill((pid_t)pid, SIGKILL);
    }
}

/* As a subreaper this process inherits all that the target started, daemons included (prctl(2)). A
 * killed child leaves its own children to this process, so the list is read until it is empty. No
 * single one is waited for: a traced child ends only after its tracer, and an uninterruptible sleep
 * may last longer than this process. */
static void end_descendants(struct pyr_child *children, size_t count) {
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    int64_t limit = now_ns() + END_MS * NS_PER_MS;
    while (reap(children, count, PYR_CHILD_KILLED) && now_ns() < limit) {
        if (!kill_children() && all_have_ended(children, count)) {
            return; /* without that list the descendants cannot be enumerated */
        }
        wait_for_signal(&child, now_ns() + LOOK_MS * NS_PER_MS, NULL);
    }
}

void pyr_supervisor_wait(struct pyr_supervisor *self, struct pyr_child *children, size_t count) {
    for (size_t i = 0; i < count; i++) {
        children[i].end = PYR_CHILD_STUCK;
        children[i].hostile = false;
        children[i].status = 0;
    }
    wait_until_deadline(self, children, count);
    for (size_t i = 0; i < count; i++) {
        if (children[i].end == PYR_CHILD_STUCK) {
            kill(children[i].pid, SIGKILL);
        }
    }
    end_descendants(children, count);
}

int pyr_memory_file(const char *name, unsigned flags, size_t size, const char **failed_call) {
    int fd = pyr_memfd_create(name, flags | MFD_CLOEXEC);
    *failed_call = "memfd_create";
    if (fd < 0) {
        return -1;
    }
    /* Beyond RLIMIT_FSIZE the signal would end this process; ignored, the call fails with EFBIG. */
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    sigaction(SIGXFSZ, &ignore, &before);
    int answer = ftruncate(fd, (off_t)size), saved = errno;
    sigaction(SIGXFSZ, &before, NULL);
    *failed_call = "ftruncate";
    if (answer < 0) {
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

/* The child opens it through /proc and does not inherit it: constructors run before its main, and
 * may close every descriptor. */
struct pyr_records *pyr_records_publish(char path[PYR_RECORDS_PATH_SIZE],
                                        const char **failed_call) {
    int fd = pyr_memory_file("pyresolve-records", 0, sizeof(struct pyr_records), failed_call);
    if (fd < 0) {
        return NULL;
    }
    snprintf(path, PYR_RECORDS_PATH_SIZE, "/proc/%ld/fd/%d", (long)getpid(), fd);
    *failed_call = "mmap";
    return pyr_records_map(fd);
}
