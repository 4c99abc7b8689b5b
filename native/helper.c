/* The throwaway process. It never loads anything itself: it forks a child for each target (this
 * process is fresh, tiny and single-threaded, so that costs less than an exec), passes on what the
 * child left on their board and how it ended. Whatever the target does to its own process, the
 * answer comes from here.
 *
 *   pyresolve-helper load    NONCE TIMEOUT_NS STUB TARGET...
 *   pyresolve-helper preload NONCE TIMEOUT_NS STUB TARGET ENV...
 *   pyresolve-helper run     NONCE TIMEOUT_NS ARGC ARG... ENV...
 *   pyresolve-helper observe BOARD TARGET
 *   pyresolve-helper open    BOARD STUB TARGET
 *
 * `load` runs in the environment that is tried. `preload` and `run` are given it as arguments and
 * run in an empty one, so that it can break only their child; that child's image is `observe`, or
 * any program whose output is the answer. `open` is the child of another supervisor:
 * pyresolve-probe.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inquire.h"
#include "supervise.h"

enum {
    EXIT_USAGE = 2,
    PROGRAM_ARGS = 8, /* of a program that `run` starts */
    LOADS_AT_ONCE = 16,
};

struct helper {
    struct pyr_supervisor supervisor;
    uint64_t nonce;
    uint32_t target;
    size_t waiting; /* bytes in `frames` that are not sent yet */
    char frames[PIPE_BUF];
};

static void report_flush(struct helper *self) {
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
static void report_frame(struct helper *self, struct pyr_wire_frame *head, const char *text) {
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

static void report(struct helper *self, enum pyr_wire_kind kind, int64_t a, int64_t b,
                   const char *text) {
    struct pyr_wire_frame head = {
        .kind = (uint16_t)kind, .a = a, .b = b, .length = (uint32_t)strlen(text)};
    report_frame(self, &head, text);
}

_Noreturn static void give_up(struct helper *self, const char *call) {
    report(self, PYR_WIRE_FAILED, errno, 0, call);
    report_flush(self);
    _exit(EXIT_FAILURE);
}

static void pass_on(struct helper *self, const struct pyr_board *board,
                    const struct pyr_child *child) {
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_board_next(board, &at, &head, &text);) {
        report_frame(self, &head, text);
    }
    bool stuck = child->end == PYR_WIRE_END_STUCK;
    report(self, PYR_WIRE_ENDED, stuck ? child->pid : child->status, child->end, "");
}

/* The board of another child is none of its business. */
static pid_t load_fork(struct helper *self, struct pyr_board *boards[], size_t own,
                       const char *target, const char *stub) {
    pid_t pid = pyr_supervisor_fork(&self->supervisor);
    if (pid < 0) {
        give_up(self, "fork");
    }
    if (pid == 0) {
        close(PYR_WIRE_REPORT_FD);
        for (size_t i = 0; i < LOADS_AT_ONCE && boards[i]; i++) {
            if (i != own) {
                pyr_board_unmap(boards[i]);
            }
        }
        pyr_inquire_load(boards[own], target, stub);
        _exit(EXIT_SUCCESS); /* no destructor of the target's */
    }
    return pid;
}

/* All at once: one that hangs delays no other, and what they cost is mostly their own time. */
static void supervise_loads(struct helper *self, const char *stub, char **targets, size_t count) {
    struct pyr_board *boards[LOADS_AT_ONCE] = {NULL};
    struct pyr_child children[LOADS_AT_ONCE];
    while (count > 0 && self->supervisor.deadline > 0) {
        size_t some = count < LOADS_AT_ONCE ? count : LOADS_AT_ONCE;
        for (size_t i = 0; i < some; i++) {
            boards[i] = boards[i] ? boards[i] : pyr_board_map(-1);
            if (!boards[i]) {
                give_up(self, "mmap");
            }
            pyr_board_clear(boards[i]);
            children[i].pid = load_fork(self, boards, i, targets[i], stub);
        }
        pyr_supervisor_wait(&self->supervisor, children, some);
        for (size_t i = 0; i < some; i++, self->target++) {
            pass_on(self, boards[i], &children[i]);
        }
        targets += some;
        count -= some;
    }
}

struct program {
    struct pyr_board *board;
    char **argv;
    char **envp;
};

static void become(void *argument) {
    const struct program *program = argument;
    dup2(STDERR_FILENO, STDOUT_FILENO); /* what the program says is all in one place */
    execve(program->argv[0], program->argv, program->envp);
    pyr_board_post(program->board, PYR_WIRE_NOT_RUN, errno, 0, NULL);
}

static void supervise_program(struct helper *self, struct pyr_board *board, char **argv,
                              char **envp) {
    struct program program = {board, argv, envp};
    struct pyr_child child = {.pid = pyr_supervisor_spawn(&self->supervisor, become, &program)};
    if (child.pid < 0) {
        give_up(self, "clone");
    }
    pyr_supervisor_wait(&self->supervisor, &child, 1);
    pass_on(self, board, &child);
}

static void main_preload(struct helper *self, char *program, char **argv) {
    /* Not close-on-exec: the child's loader is to find it. Where close_range is missing (before
     * Linux 5.9) its number may be taken by a descriptor that the caller left open. */
    int stub = open(argv[0], O_RDONLY);
    if (stub < 0 || dup2(stub, PYR_WIRE_STUB_FD) < 0) {
        give_up(self, "open of the stub driver");
    }
    char path[PYR_BOARD_PATH_SIZE];
    struct pyr_board *board = pyr_board_publish(path);
    if (!board) {
        give_up(self, "memfd_create");
    }
    char *observe[] = {program, "observe", path, argv[1], NULL};
    supervise_program(self, board, observe, argv + 2);
}

static void main_run(struct helper *self, int argc, char **argv) {
    struct pyr_board *board = pyr_board_map(-1);
    if (!board) {
        give_up(self, "mmap");
    }
    char *program[PROGRAM_ARGS + 1] = {NULL};
    int count = atoi(argv[0]);
    if (count < 1 || count > PROGRAM_ARGS || count >= argc) {
        errno = EINVAL;
        give_up(self, "run");
    }
    memcpy(program, argv + 1, (size_t)count * sizeof *program);
    supervise_program(self, board, program, argv + 1 + count);
}

static struct pyr_board *board_open(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct pyr_board *board = fd < 0 ? NULL : pyr_board_map(fd);
    if (!board) {
        fprintf(stderr, PYR_WIRE_NO_BOARD " %s: %s\n", path, strerror(errno));
        _exit(PYR_WIRE_NO_BOARD_STATUS);
    }
    close(fd); /* a target writes to whatever is open */
    return board;
}

_Noreturn static void main_observe(char **argv) {
    pyr_inquire_preload(board_open(argv[0]), argv[1]);
    _exit(EXIT_SUCCESS); /* no destructor of the target's */
}

_Noreturn static void main_open(char **argv) {
    pyr_inquire_load(board_open(argv[0]), argv[2], argv[1]);
    _exit(EXIT_SUCCESS);
}

static void helper_begin(struct helper *self, int64_t timeout_ns) {
    pyr_supervisor_begin(&self->supervisor, timeout_ns);
    /* The caller's thread waits for this process: when that dies, nobody does. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    syscall(SYS_close_range, PYR_WIRE_REPORT_FD + 1, ~0U, 0);
    fcntl(PYR_WIRE_REPORT_FD, F_SETFD, FD_CLOEXEC);
    report(self, PYR_WIRE_HELLO, getpid(), 0, "");
    report_flush(self); /* at once: that this was reached is news by itself */
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "observe") == 0) {
        main_observe(argv + 2);
    }
    if (argc == 5 && strcmp(argv[1], "open") == 0) {
        main_open(argv + 2);
    }
    if (argc < 6) {
        fputs("pyresolve-helper is started by pyresolve, not by hand\n", stderr);
        return EXIT_USAGE;
    }
    struct helper self = {.nonce = strtoull(argv[2], NULL, 16)};
    helper_begin(&self, strtoll(argv[3], NULL, 10));
    if (strcmp(argv[1], "load") == 0) {
        supervise_loads(&self, argv[4], argv + 5, (size_t)argc - 5);
    } else if (strcmp(argv[1], "preload") == 0) {
        main_preload(&self, argv[0], argv + 4);
    } else if (strcmp(argv[1], "run") == 0) {
        main_run(&self, argc - 4, argv + 4);
    }
    report(&self, PYR_WIRE_DONE, 0, 0, "");
    report_flush(&self);
    _exit(EXIT_SUCCESS);
}
