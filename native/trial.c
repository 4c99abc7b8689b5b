#include "trial.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel.h"
#include "preload.h"

#define STUB_PRELOAD "/proc/self/fd/4" /* PYR_WIRE_STUB_FD */

/* What a child becomes. */
struct image {
    const struct pyr_tester *tester;
    char **arguments;
    char **environment;
    int stub; /* a descriptor, or -1 */
};

static bool failed(struct pyr_tester *self, const char *call) {
    self->failed_call = call;
    self->sys_errno = errno;
    return false;
}

/* A file of fixed size: a child that prints without end fills neither memory nor a pipe. */
static int capture_open(const char **failed_call) {
    int fd = pyr_memory_file("pyresolve-capture", MFD_ALLOW_SEALING, PYR_CAPTURE_SIZE, failed_call);
    if (fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0) {
        *failed_call = "fcntl";
        return -1;
    }
    return fd;
}

/* The child shares the file offset, and may have moved it anywhere. */
static bool take_captured(struct pyr_tester *self, struct pyr_text *text) {
    static char bytes[PYR_CAPTURE_SIZE + 1];
    off_t end = lseek(self->capture, 0, SEEK_CUR);
    size_t length = end < 0 || end > PYR_CAPTURE_SIZE ? PYR_CAPTURE_SIZE : (size_t)end;
    ssize_t got = pread(self->capture, bytes, length, 0);
    if (got < 0) {
        return failed(self, "pread");
    }
    bytes[got] = '\0';
    *text = (struct pyr_text){bytes, (size_t)got};
    return true;
}

bool pyr_tester_open(struct pyr_tester *self) {
    const char *call = NULL;
    self->capture = capture_open(&call);
    self->records = self->capture < 0 ? NULL : pyr_records_publish(self->records_path, &call);
    return self->records || failed(self, call);
}

/* Runs in the memory of the supervisor until the exec. */
static void exec_child(void *argument) {
    const struct image *image = argument;
    const struct pyr_tester *tester = image->tester;
    if (dup2(tester->capture, STDOUT_FILENO) < 0 || dup2(tester->capture, STDERR_FILENO) < 0) {
        pyr_records_add(tester->records, PYR_WIRE_NOT_RUN, errno, 1, NULL);
        return;
    }
    unsigned first = STDERR_FILENO + 1;
    if (image->stub >= 0) {
        dup2(image->stub, PYR_WIRE_STUB_FD);
        fcntl(PYR_WIRE_STUB_FD, F_SETFD, 0); /* dup2 onto itself leaves it close-on-exec */
        close(PYR_WIRE_REPORT_FD);
        first = PYR_WIRE_STUB_FD + 1;
    }
    pyr_close_from(first);
    execve(image->arguments[0], image->arguments, image->environment);
    pyr_records_add(tester->records, PYR_WIRE_NOT_RUN, errno, 0, NULL);
}

static bool start(struct pyr_tester *self, const struct image *image, struct pyr_child *child) {
    pyr_records_clear(self->records);
    lseek(self->capture, 0, SEEK_SET);
    child->pid = pyr_supervisor_spawn(self->supervisor, exec_child, (void *)image);
    return child->pid >= 0 || failed(self, "clone");
}

/* Takes what the child printed. Returns false if the helper was not run at all. */
static bool is_run(struct pyr_tester *self, struct pyr_trial *trial) {
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_records_next(self->records, &at, &head, &text);) {
        if (head.kind == PYR_WIRE_NOT_RUN) {
            errno = (int)head.a;
            return failed(self, head.b == 1 ? "dup2" : "execve");
        }
    }
    if (!take_captured(self, &trial->captured)) {
        return false;
    }
    struct pyr_text said = trial->captured;
    const char *lost = memmem(said.at, said.length, PYR_RECORDS_LOST, strlen(PYR_RECORDS_LOST));
    if (lost && !pyr_trial_started(trial) && WIFEXITED(trial->child.status) &&
        WEXITSTATUS(trial->child.status) == PYR_RECORDS_LOST_STATUS) {
        errno = atoi(lost + strlen(PYR_RECORDS_LOST));
        return failed(self, PYR_CALL_RECORDS);
    }
    return true;
}

static char **joined(char **first, char *const *second) {
    size_t length = 0, more = 0;
    while (first[length]) {
        length++;
    }
    while (second[more]) {
        more++;
    }
    char **both = malloc((length + more + 1) * sizeof *both);
    if (both) {
        memcpy(both, first, length * sizeof *both);
        memcpy(both + length, second, (more + 1) * sizeof *both);
    }
    return both;
}

bool pyr_tester_load(struct pyr_tester *self, const char *name, char **environment,
                     struct pyr_outcome *outcome) {
    char *first[] = {(char *)self->helper, "open",       self->records_path,
                     (char *)self->stub,   (char *)name, NULL};
    char **arguments = joined(first, self->before);
    if (!arguments) {
        return failed(self, "malloc");
    }
    struct image image = {.tester = self, .arguments = arguments, .stub = -1};
    image.environment = pyr_preload_none(environment);
    struct pyr_trial trial = {.name = name, .mode = PYR_DLOPEN, .records = self->records};
    if (!image.environment) {
        return failed(self, "malloc");
    }
    if (!start(self, &image, &trial.child)) {
        return false;
    }
    pyr_supervisor_wait(self->supervisor, &trial.child, 1);
    if (!is_run(self, &trial)) {
        return false;
    }
    pyr_classify(&trial, outcome);
    return true;
}

/* --- rehearsals */

static bool rehearsal_start(struct pyr_tester *self, const char *name, char **environment,
                            bool with_stub, struct pyr_child *child) {
    char *arguments[] = {(char *)self->helper, "observe",          self->records_path,
                         (char *)name,         (char *)self->next, NULL};
    struct image image = {.tester = self, .arguments = arguments, .stub = -1};
    image.environment = with_stub ? pyr_preload_last(environment, STUB_PRELOAD) : environment;
    if (!image.environment) {
        return failed(self, "malloc");
    }
    if (with_stub && (image.stub = open(self->stub, O_RDONLY | O_CLOEXEC)) < 0) {
        return failed(self, "open of the stub driver");
    }
    bool started = start(self, &image, child);
    if (image.stub >= 0) {
        close(image.stub);
    }
    return started;
}

bool pyr_rehearsal_start(struct pyr_tester *self, const char *name, char **environment,
                         struct pyr_child *child) {
    return rehearsal_start(self, name, environment, false, child);
}

static bool rehearse(struct pyr_tester *self, char **environment, struct pyr_trial *trial) {
    if (!environment) {
        return failed(self, "malloc");
    }
    if (!rehearsal_start(self, trial->name, environment, trial->stub, &trial->child)) {
        return false;
    }
    pyr_supervisor_wait(self->supervisor, &trial->child, 1);
    return is_run(self, trial);
}

/* Keeps the records of one start while another is tried. */
static void records_copy(struct pyr_records *to, const struct pyr_records *from) {
    uint32_t used = from->used;
    to->used = used > sizeof to->bytes ? 0 : used;
    to->full = from->full;
    memcpy(to->bytes, from->bytes, to->used);
}

/* A function is looked up at its first call, unless LD_BIND_NOW is set (ld.so(8)): only a process
 * that starts with it shows that all of them are found. The loader has more rules for that than
 * the child could repeat. It has the last word on a hook whose process started lazily, except if
 * nothing starts so, which is then not the hook's fault. */
static bool bind_all(struct pyr_tester *self, char **environment, struct pyr_trial *trial,
                     struct pyr_outcome *outcome) {
    static struct pyr_records lazy;
    static struct pyr_outcome bound;
    char **now = pyr_environment_with(environment, (char *)"LD_BIND_NOW=1");
    records_copy(&lazy, self->records);
    trial->bound = true;
    self->next = ""; /* it loaded, or this would not be tried */
    if (!now) {
        return failed(self, "malloc");
    }
    if (!rehearse(self, now, trial)) {
        return false;
    }
    pyr_classify(trial, &bound);
    if (pyr_trial_started(trial) || bound.status == PYR_TIMED_OUT) {
        *outcome = bound;
        return true;
    }
    if (bound.status != outcome->status) { /* else the lazy start tells more */
        trial->stub = false;
        if (!rehearse(self, pyr_preload_without(now, trial->name), trial)) {
            return false;
        }
        if (pyr_trial_started(trial)) {
            *outcome = bound;
        }
    }
    records_copy(self->records, &lazy);
    return true;
}

bool pyr_rehearsal_finish(struct pyr_tester *self, const char *name, char **environment,
                          const struct pyr_child *child, struct pyr_outcome *outcome) {
    struct pyr_trial trial = {
        .name = name,
        .mode = PYR_PRELOAD,
        .child = *child,
        .records = self->records,
    };
    if (!is_run(self, &trial)) {
        return false;
    }
    pyr_classify(&trial, outcome);
    if (pyr_outcome_lacks_driver(outcome)) {
        trial.stub = true;
        if (!rehearse(self, environment, &trial)) {
            return false;
        }
        pyr_classify(&trial, outcome);
    }
    if (outcome->status == PYR_TIMED_OUT) {
        return true;
    }
    if (pyr_trial_started(&trial)) {
        bool lives = outcome->status == PYR_LOADABLE || outcome->status == PYR_UNDEFINED_SYMBOL ||
                     (outcome->status == PYR_NO_DRIVER && outcome->stub);
        return !lives || bind_all(self, environment, &trial, outcome);
    }
    /* Nothing started. Does anything start without the hook? */
    trial.stub = false;
    if (!rehearse(self, pyr_preload_without(environment, name), &trial)) {
        return false;
    }
    if (!pyr_trial_started(&trial)) {
        pyr_classify_broken(&trial, outcome);
    }
    pyr_records_clear(self->records); /* those of the hook's process are gone */
    return true;
}
