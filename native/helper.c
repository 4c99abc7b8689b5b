/* The throwaway process: it tries libraries and reports one outcome for each. It never loads
 * anything itself. For a dlopen it forks a child (this process is fresh, small and single-threaded,
 * so that a fork costs less than an exec), for a rehearsal it execs one. Whatever a target does to
 * its own process, the answer comes from here.
 *
 *   pyresolve-helper try     NONCE TIMEOUT_NS STUB PYTHON COUNT BEFORE... COUNT TARGET...
 *                            [HOOK NEXT NAME=VALUE...]
 *   pyresolve-helper run     NONCE TIMEOUT_NS ARGC ARG... ENV...
 *   pyresolve-helper observe RECORDS TARGET NEXT
 *   pyresolve-helper open    RECORDS STUB TARGET BEFORE...
 *
 * `try` opens the targets with dlopen in the environment that it was started in, and rehearses HOOK
 * in the same environment with the variables changed: it is preloaded, then NEXT is opened. PYTHON
 * defines what an interpreter defines. PYTHON and NEXT may be "". It is started without LD_PRELOAD,
 * so that an environment in which no program starts shows as a helper that never says HELLO. `run`
 * runs a program whose output is the answer; it is given the environment as arguments and runs in
 * an empty one. `observe` and `open` are the children of a rehearsal and of pyresolve-probe.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "child.h"
#include "kernel.h"
#include "preload.h"
#include "trial.h"

enum {
    EXIT_USAGE = 2,
    PROGRAM_ARGS = 8, /* of a program that `run` starts */
    LOADS_AT_ONCE = 16,
};

struct helper {
    struct pyr_supervisor supervisor;
    struct pyr_records *rehearsal; /* the records of the one that is rehearsed, or NULL */
    uint64_t nonce;
    uint32_t target; /* the number of the one that is reported on */
    size_t waiting;  /* bytes in `frames` that are not sent yet */
    char frames[PIPE_BUF];
};

static void report_flush(struct helper *self) {
    ssize_t written;
    do {
        written = write(PYR_WIRE_REPORT_FD, self->frames, self->waiting);
    } while (written < 0 && errno == EINTR);
    if (written < 0) { /* the caller is gone, or forbids it */
        fprintf(stderr, "pyresolve-helper: write: %s\n", strerror(errno));
        _exit(EXIT_FAILURE);
    }
    self->waiting = 0;
}

/* Frames are collected up to PIPE_BUF, since every write wakes the caller. */
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

/* The facts that the caller wants, then the outcome. */
static void report_outcome(struct helper *self, const struct pyr_records *records,
                           const struct pyr_outcome *outcome) {
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; records && pyr_records_next(records, &at, &head, &text);) {
        if (head.kind >= PYR_WIRE_OBJECT && head.kind <= PYR_WIRE_UNDEFINED) {
            report_frame(self, &head, text);
        }
    }
    head = (struct pyr_wire_frame){
        .kind = PYR_WIRE_OUTCOME,
        .a = outcome->status | (outcome->stub ? PYR_WIRE_WITH_STUB : 0),
        .b = outcome->stuck,
        .length = outcome->length,
    };
    report_frame(self, &head, outcome->fields);
    self->target++;
}

/* --- targets that are opened with dlopen */

struct load {
    struct pyr_records *records;
    struct pyr_child *child; /* NULL if there is none, since the file settled the outcome */
    struct pyr_outcome outcome;
};

/* The child gives up the records of the others, so that its target cannot write to them. */
static pid_t load_fork(struct helper *self, struct load loads[], size_t own, const char *target,
                       const struct pyr_scene *scene) {
    pid_t pid = pyr_supervisor_fork(&self->supervisor);
    if (pid < 0) {
        give_up(self, "fork");
    }
    if (pid == 0) {
        pyr_close_from(PYR_WIRE_REPORT_FD);
        if (self->rehearsal) {
            pyr_records_unmap(self->rehearsal);
        }
        for (size_t i = 0; i < LOADS_AT_ONCE; i++) {
            if (i != own && loads[i].records) {
                pyr_records_unmap(loads[i].records);
            }
        }
        pyr_child_load(loads[own].records, target, scene);
        _exit(EXIT_SUCCESS); /* no destructor of the target's */
    }
    return pid;
}

static void load_start(struct helper *self, struct load loads[], size_t own, const char *target,
                       const struct pyr_scene *scene, struct pyr_child *child) {
    struct load *load = &loads[own];
    load->child = NULL;
    if (pyr_classify_file(target, &load->outcome)) {
        return;
    }
    load->records = load->records ? load->records : pyr_records_map(-1);
    if (!load->records) {
        give_up(self, "mmap");
    }
    pyr_records_clear(load->records);
    child->pid = load_fork(self, loads, own, target, scene);
    load->child = child;
}

static void load_finish(struct helper *self, struct load *load, const char *target,
                        const struct pyr_scene *scene) {
    if (load->child) {
        struct pyr_trial trial = {.name = target,
                                  .mode = PYR_DLOPEN,
                                  .forked = true,
                                  .python = *scene->python != '\0',
                                  .child = *load->child,
                                  .records = load->records,
                                  .captured = {"", 0}};
        pyr_classify(&trial, &load->outcome);
    }
    report_outcome(self, load->child ? load->records : NULL, &load->outcome);
}

/* --- the hook that is rehearsed */

struct rehearsal {
    struct pyr_tester tester;
    const char *hook; /* NULL: none */
    char **environment;
    struct pyr_child *child; /* NULL if the file settled the outcome */
    struct pyr_outcome outcome;
};

static void rehearsal_start(struct helper *self, struct rehearsal *rehearsal,
                            struct pyr_child *child) {
    struct pyr_tester *tester = &rehearsal->tester;
    rehearsal->child = NULL;
    if (pyr_classify_file(rehearsal->hook, &rehearsal->outcome)) {
        return;
    }
    if (!pyr_tester_open(tester) ||
        !pyr_rehearsal_start(tester, rehearsal->hook, rehearsal->environment, child)) {
        errno = tester->sys_errno;
        give_up(self, tester->failed_call);
    }
    rehearsal->child = child;
    self->rehearsal = tester->records;
}

static void rehearsal_finish(struct helper *self, struct rehearsal *rehearsal) {
    struct pyr_tester *tester = &rehearsal->tester;
    if (rehearsal->child && !pyr_rehearsal_finish(tester, rehearsal->hook, rehearsal->environment,
                                                  rehearsal->child, &rehearsal->outcome)) {
        errno = tester->sys_errno;
        give_up(self, tester->failed_call);
    }
    report_outcome(self, rehearsal->child ? tester->records : NULL, &rehearsal->outcome);
}

/* All side by side: one that hangs delays no other, and each costs mostly its own time. */
static void try_all(struct helper *self, const struct pyr_scene *scene, char **targets,
                    size_t count, struct rehearsal *rehearsal) {
    static struct load loads[LOADS_AT_ONCE];
    struct pyr_child children[LOADS_AT_ONCE + 1];
    bool rehearse = rehearsal->hook != NULL;
    while ((count > 0 || rehearse) && !self->supervisor.stop_signal) {
        size_t some = count < LOADS_AT_ONCE ? count : LOADS_AT_ONCE, running = 0;
        if (rehearse) {
            rehearsal_start(self, rehearsal, &children[running]);
            running += rehearsal->child != NULL;
        }
        for (size_t i = 0; i < some; i++) {
            load_start(self, loads, i, targets[i], scene, &children[running]);
            running += loads[i].child != NULL;
        }
        pyr_supervisor_wait(&self->supervisor, children, running);
        for (size_t i = 0; i < some; i++) {
            load_finish(self, &loads[i], targets[i], scene);
        }
        targets += some;
        count -= some;
        if (rehearse) {
            /* Its target's number is the last, though it runs with the first of the others. */
            uint32_t target = self->target;
            self->target += (uint32_t)count;
            rehearsal_finish(self, rehearsal);
            self->target = target;
            rehearse = false;
        }
    }
}

/* Takes a count and so many arguments; returns the first of these. */
static char **take_list(struct helper *self, char ***arguments, size_t *count) {
    char **at = *arguments, *end = "";
    long wanted = *at ? strtol(*at++, &end, 10) : -1;
    char **list = at;
    for (; wanted > 0 && *at; at++) {
        wanted--;
    }
    if (wanted != 0 || *end != '\0') {
        errno = EINVAL;
        give_up(self, "try");
    }
    *count = (size_t)(at - list);
    *arguments = at;
    return list;
}

static void main_try(struct helper *self, char *program, char **argv) {
    char **rest = argv + 2;
    size_t before_count, count;
    char **before = take_list(self, &rest, &before_count);
    char **targets = take_list(self, &rest, &count);
    before[before_count] = NULL; /* in place of the second count */
    const struct pyr_scene scene = {.stub = argv[0], .python = argv[1], .before = before};
    struct rehearsal rehearsal = {
        .tester = {.supervisor = &self->supervisor, .helper = program, .stub = scene.stub},
        .environment = environ,
    };
    if (rest[0] && rest[1]) {
        rehearsal.hook = *rest++;
        rehearsal.tester.next = *rest++;
    }
    for (; *rest; rest++) {
        rehearsal.environment = pyr_environment_with(rehearsal.environment, *rest);
        if (!rehearsal.environment) {
            give_up(self, "malloc");
        }
    }
    try_all(self, &scene, targets, count, &rehearsal);
}

/* --- a program whose output is the answer */

struct program {
    struct pyr_records *records;
    char **argv;
    char **envp;
};

static void exec_program(void *argument) {
    const struct program *program = argument;
    dup2(STDERR_FILENO, STDOUT_FILENO); /* both outputs are collected in one place */
    execve(program->argv[0], program->argv, program->envp);
    pyr_records_add(program->records, PYR_WIRE_NOT_RUN, errno, 0, NULL);
}

static void main_run(struct helper *self, int argc, char **argv) {
    char *arguments[PROGRAM_ARGS + 1] = {NULL};
    struct program program = {pyr_records_map(-1), arguments, NULL};
    if (!program.records) {
        give_up(self, "mmap");
    }
    int count = atoi(argv[0]);
    if (count < 1 || count > PROGRAM_ARGS || count >= argc) {
        errno = EINVAL;
        give_up(self, "run");
    }
    memcpy(arguments, argv + 1, (size_t)count * sizeof *arguments);
    program.envp = argv + 1 + count;
    struct pyr_child child = {.pid =
                                  pyr_supervisor_spawn(&self->supervisor, exec_program, &program)};
    if (child.pid < 0) {
        give_up(self, "clone");
    }
    pyr_supervisor_wait(&self->supervisor, &child, 1);
    struct pyr_trial trial = {
        .name = arguments[0], .child = child, .records = program.records, .captured = {"", 0}};
    struct pyr_wire_frame head;
    const char *text;
    uint32_t at = 0;
    if (pyr_records_next(program.records, &at, &head, &text) && head.kind == PYR_WIRE_NOT_RUN) {
        report(self, PYR_WIRE_NOT_RUN, head.a, 0, "");
    }
    struct pyr_outcome outcome;
    pyr_classify(&trial, &outcome);
    report_outcome(self, NULL, &outcome);
}

/* --- the children of a rehearsal and of pyresolve-probe */

static struct pyr_records *records_open(const char *path) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    struct pyr_records *records = fd < 0 ? NULL : pyr_records_map(fd);
    if (!records) {
        fprintf(stderr, PYR_RECORDS_LOST "%d (%s): %s\n", errno, strerror(errno), path);
        _exit(PYR_RECORDS_LOST_STATUS);
    }
    close(fd); /* a target may write to every open descriptor */
    return records;
}

_Noreturn static void main_observe(char **argv) {
    pyr_child_preload(records_open(argv[0]), argv[1], argv[2]);
    _exit(EXIT_SUCCESS); /* no destructor of the target's */
}

_Noreturn static void main_open(char **argv) {
    struct pyr_scene scene = {.stub = argv[1], .python = "", .before = argv + 3};
    pyr_child_load(records_open(argv[0]), argv[2], &scene);
    _exit(EXIT_SUCCESS);
}

static void helper_begin(struct helper *self, int64_t timeout_ns) {
    pyr_supervisor_begin(&self->supervisor, timeout_ns, getppid());
    /* PDEATHSIG fires when the thread that spawned this process exits; nobody wants the result
     * then. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    pyr_close_from(PYR_WIRE_REPORT_FD + 1);
    fcntl(PYR_WIRE_REPORT_FD, F_SETFD, FD_CLOEXEC);
    report(self, PYR_WIRE_HELLO, getpid(), 0, "");
    report_flush(self); /* at once, in case this process does not get further */
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "observe") == 0) {
        main_observe(argv + 2);
    }
    if (argc >= 5 && strcmp(argv[1], "open") == 0) {
        main_open(argv + 2);
    }
    if (argc < 6) {
        fputs("pyresolve-helper is started by pyresolve, not by hand\n", stderr);
        return EXIT_USAGE;
    }
    struct helper self = {.nonce = strtoull(argv[2], NULL, 16)};
    helper_begin(&self, strtoll(argv[3], NULL, 10));
    if (strcmp(argv[1], "try") == 0) {
        main_try(&self, argv[0], argv + 4);
    } else if (strcmp(argv[1], "run") == 0) {
        main_run(&self, argc - 4, argv + 4);
    }
    report(&self, PYR_WIRE_DONE, 0, 0, "");
    report_flush(&self);
    _exit(EXIT_SUCCESS);
}
