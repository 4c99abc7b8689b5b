/* The throwaway process. It never loads anything itself: it forks a child for each target (this
 * process is fresh, tiny and single-threaded, so that costs a tenth of an exec), waits for it with
 * a deadline, passes on what the child left on the shared board and how it ended, and kills all
 * that the target has started. Whatever the target does to its own process, the answer comes from
 * here.
 *
 *   pyresolve-helper load    NONCE TIMEOUT_NS STUB TARGET...
 *   pyresolve-helper preload NONCE TIMEOUT_NS STUB TARGET ENV...
 *   pyresolve-helper run     NONCE TIMEOUT_NS ARGC ARG... ENV...
 *   pyresolve-helper observe BOARD TARGET
 *
 * `load` runs in the environment that is tried. `preload` and `run` are given it as arguments and
 * run in an empty one, so that it can break only their child; that child's image is `observe`, or
 * any program whose output is the answer.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inquire.h"

enum {
    EXIT_USAGE = 2,
    PROGRAM_ARGS = 8, /* of a program that `run` starts */
    NS_PER_S = 1000000000,
};

struct supervisor {
    uint64_t nonce;
    int64_t deadline;
    uint32_t target;
    struct pyr_board *board;
    size_t waiting; /* bytes in `frames` that are not sent yet */
    char frames[PIPE_BUF];
};

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void report_flush(struct supervisor *self) {
    ssize_t written;
    do {
        written = write(PYR_WIRE_REPORT_FD, self->frames, self->waiting);
    } while (written < 0 && errno == EINTR);
    if (written < 0) {
        _exit(EXIT_FAILURE); /* the caller is gone */
    }
    self->waiting = 0;
}

/* Whole frames are gathered up to PIPE_BUF, since every write wakes the caller. */
static void report_frame(struct supervisor *self, struct pyr_wire_frame *head, const char *text) {
    head->magic = PYR_WIRE_MAGIC;
    head->version = PYR_WIRE_VERSION;
    head->nonce = self->nonce;
    head->target = self->target;
    if (sizeof self->frames - self->waiting < sizeof *head + head->length) {
        report_flush(self);
    }
    memcpy(self->frames + self->waiting, head, sizeof *head);
    memcpy(self->frames + self->waiting + sizeof *head, text, head->length);
    self->waiting += sizeof *head + head->length;
}

static void report(struct supervisor *self, enum pyr_wire_kind kind, int64_t a, int64_t b,
                   const char *text) {
    struct pyr_wire_frame head = {
        .kind = (uint16_t)kind, .a = a, .b = b, .length = (uint32_t)strlen(text)};
    report_frame(self, &head, text);
}

_Noreturn static void give_up(struct supervisor *self, const char *call) {
    report(self, PYR_WIRE_FAILED, errno, 0, call);
    report_flush(self);
    _exit(EXIT_FAILURE);
}

/* The child may have written anything at all to the board: nothing on it is believed. */
static void pass_on(struct supervisor *self) {
    uint32_t used = __atomic_load_n(&self->board->used, __ATOMIC_ACQUIRE);
    uint32_t at = 0;
    while (used <= sizeof self->board->bytes && used - at >= PYR_WIRE_HEAD_SIZE) {
        struct pyr_wire_frame head;
        memcpy(&head, self->board->bytes + at, sizeof head);
        at += PYR_WIRE_HEAD_SIZE;
        if (head.magic != PYR_WIRE_MAGIC || head.kind < PYR_WIRE_STARTED ||
            head.kind > PYR_WIRE_FINISHED || head.length > PYR_WIRE_TEXT_MAX ||
            head.length > used - at) {
            break;
        }
        report_frame(self, &head, self->board->bytes + at);
        at += head.length;
    }
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

/* Waits for `pid` until the deadline, which a SIGTERM brings forward. */
static bool wait_until_deadline(struct supervisor *self, pid_t pid, int *status) {
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

/* In the child, before anything of the target's runs. The group is its own, so that a target which
 * signals its process group does not reach the supervisor. */
static void child_begin(const sigset_t *mask, pid_t supervisor) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) {
        _exit(EXIT_FAILURE);
    }
    sigprocmask(SIG_SETMASK, mask, NULL);
    close(PYR_WIRE_REPORT_FD);
}

static pid_t child_fork(struct supervisor *self, const sigset_t *mask) {
    pid_t supervisor = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        give_up(self, "fork");
    }
    if (pid == 0) {
        child_begin(mask, supervisor);
    }
    return pid;
}

static void child_end(struct supervisor *self, pid_t pid) {
    int status = 0;
    bool in_time = wait_until_deadline(self, pid, &status);
    if (!in_time) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    kill_descendants();
    pass_on(self);
    report(self, PYR_WIRE_ENDED, status, !in_time, "");
}

static void supervise_loads(struct supervisor *self, const sigset_t *mask, const char *stub,
                            char **targets) {
    for (; *targets && self->deadline > 0; targets++, self->target++) {
        self->board->used = 0;
        self->board->full = 0;
        pid_t pid = child_fork(self, mask);
        if (pid == 0) {
            pyr_inquire_load(self->board, *targets, stub);
            _exit(EXIT_SUCCESS); /* no destructor of the target's */
        }
        child_end(self, pid);
    }
}

static void supervise_program(struct supervisor *self, const sigset_t *mask, char **argv,
                              char **envp) {
    pid_t pid = child_fork(self, mask);
    if (pid == 0) {
        dup2(STDERR_FILENO, STDOUT_FILENO); /* what the program says is all in one place */
        execve(argv[0], argv, envp);
        pyr_board_post(self->board, PYR_WIRE_NOT_RUN, errno, 0, NULL);
        _exit(EXIT_FAILURE);
    }
    child_end(self, pid);
}

static struct pyr_board *board_map(int fd) {
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(NULL, sizeof(struct pyr_board), PROT_READ | PROT_WRITE, flags, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void main_load(struct supervisor *self, const sigset_t *mask, char **argv) {
    self->board = board_map(-1);
    if (!self->board) {
        give_up(self, "mmap");
    }
    supervise_loads(self, mask, argv[0], argv + 1);
}

static void main_preload(struct supervisor *self, const sigset_t *mask, char *program,
                         char **argv) {
    /* Not close-on-exec: the child's loader is to find it. Where close_range is missing (before
     * Linux 5.9) its number may be taken by a descriptor that the caller left open. */
    int stub = open(argv[0], O_RDONLY);
    if (stub < 0 || dup2(stub, PYR_WIRE_STUB_FD) < 0) {
        give_up(self, "open of the stub driver");
    }
    int board = memfd_create("pyresolve-board", MFD_CLOEXEC);
    if (board < 0 || ftruncate(board, sizeof(struct pyr_board)) < 0) {
        give_up(self, "memfd_create");
    }
    self->board = board_map(board);
    if (!self->board) {
        give_up(self, "mmap");
    }
    /* Named through this process and not inherited: constructors run before the child's main, and
     * may close every descriptor that they find. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), board);
    char *observe[] = {program, "observe", path, argv[1], NULL};
    supervise_program(self, mask, observe, argv + 2);
}

static void main_run(struct supervisor *self, const sigset_t *mask, int argc, char **argv) {
    self->board = board_map(-1);
    if (!self->board) {
        give_up(self, "mmap");
    }
    char *program[PROGRAM_ARGS + 1] = {NULL};
    int count = atoi(argv[0]);
    if (count < 1 || count > PROGRAM_ARGS || count >= argc) {
        errno = EINVAL;
        give_up(self, "run");
    }
    memcpy(program, argv + 1, (size_t)count * sizeof *program);
    supervise_program(self, mask, program, argv + 1 + count);
}

static int main_observe(char **argv) {
    int fd = open(argv[0], O_RDWR | O_CLOEXEC);
    struct pyr_board *board = fd < 0 ? NULL : board_map(fd);
    if (!board) {
        fprintf(stderr, PYR_WIRE_NO_BOARD " %s: %s\n", argv[0], strerror(errno));
        _exit(EXIT_FAILURE);
    }
    pyr_inquire_preload(board, argv[1]);
    _exit(EXIT_SUCCESS); /* no destructor of the target's */
}

static void supervisor_begin(struct supervisor *self, sigset_t *mask) {
    sigset_t signals = awaited_signals();
    sigprocmask(SIG_BLOCK, &signals, mask);
    /* The caller's thread waits for this process: when that dies, nobody does. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    syscall(SYS_close_range, PYR_WIRE_REPORT_FD + 1, ~0U, 0);
    fcntl(PYR_WIRE_REPORT_FD, F_SETFD, FD_CLOEXEC);
    /* No core of a crash that was provoked. Zero would still start a core handler that is a pipe;
     * one byte stops both kinds (core(5)). */
    setrlimit(RLIMIT_CORE, &(struct rlimit){.rlim_cur = 1, .rlim_max = 1});
    report(self, PYR_WIRE_HELLO, getpid(), 0, "");
    report_flush(self); /* at once: that this was reached is news by itself */
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "observe") == 0) {
        return main_observe(argv + 2);
    }
    if (argc < 6) {
        fputs("pyresolve-helper is started by pyresolve, not by hand\n", stderr);
        return EXIT_USAGE;
    }
    struct supervisor self = {
        .nonce = strtoull(argv[2], NULL, 16),
        .deadline = now_ns() + strtoll(argv[3], NULL, 10),
    };
    sigset_t mask;
    supervisor_begin(&self, &mask);
    if (strcmp(argv[1], "load") == 0) {
        main_load(&self, &mask, argv + 4);
    } else if (strcmp(argv[1], "preload") == 0) {
        main_preload(&self, &mask, argv[0], argv + 4);
    } else if (strcmp(argv[1], "run") == 0) {
        main_run(&self, &mask, argc - 4, argv + 4);
    }
    report(&self, PYR_WIRE_DONE, 0, 0, "");
    report_flush(&self);
    _exit(EXIT_SUCCESS);
}
