#include "trial.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "preload.h"

#define STUB_PRELOAD "/proc/self/fd/4" /* PYR_WIRE_STUB_FD */

/* What the child is to become. */
struct image {
    struct pyr_tester *tester;
    char **arguments;
    char **environment;
    int stub; /* a descriptor, or -1 */
};

static bool cannot(const char *what) {
    fprintf(stderr, "pyresolve-probe: no check is possible: %s: %s\n", what, strerror(errno));
    return false;
}

/* A file of fixed size: a child that prints without end fills neither memory nor a pipe. */
static int capture_open(void) {
    int fd = memfd_create("pyresolve-words", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, PYR_CAPTURE_SIZE) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) < 0) {
        return -1;
    }
    return fd;
}

/* The child has moved the offset that it shares with this process, maybe to nonsense. */
static struct pyr_text captured(const struct pyr_tester *self) {
    static char words[PYR_CAPTURE_SIZE];
    if (self->capture < 0) {
        return (struct pyr_text){words, 0};
    }
    off_t end = lseek(self->capture, 0, SEEK_CUR);
    size_t length = end < 0 || end > PYR_CAPTURE_SIZE ? PYR_CAPTURE_SIZE : (size_t)end;
    ssize_t got = pread(self->capture, words, length, 0);
    return (struct pyr_text){words, got < 0 ? 0 : (size_t)got};
}

/* Only the loader's words in a process with preloads are needed; dlerror's come with the frames. */
bool pyr_tester_begin(struct pyr_tester *self) {
    pyr_supervisor_begin(&self->supervisor, (int64_t)(self->timeout * 1e9));
    self->capture = self->mode == PYR_PRELOAD ? capture_open() : -1;
    if (self->mode == PYR_PRELOAD && self->capture < 0) {
        return cannot("memfd_create");
    }
    self->board = pyr_board_publish(self->board_path);
    return self->board || cannot("memfd_create");
}

/* Ends in the image, in memory that is still this process's own. */
static void become(void *argument) {
    struct image *image = argument;
    const struct pyr_tester *tester = image->tester;
    int output = tester->capture < 0 ? tester->null : tester->capture;
    dup2(tester->null, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    unsigned first = STDERR_FILENO + 1;
    if (image->stub >= 0) {
        dup2(image->stub, PYR_WIRE_STUB_FD);
        first = PYR_WIRE_STUB_FD + 1;
    }
    syscall(SYS_close_range, first, ~0U, 0);
    execve(image->arguments[0], image->arguments, image->environment);
    pyr_board_post(tester->board, PYR_WIRE_NOT_RUN, errno, 0, NULL);
}

/* Did the helper run at all, and did it reach the board? */
static bool is_answer(const struct pyr_tester *self, const struct pyr_trial *trial) {
    struct pyr_wire_frame head;
    const char *text;
    for (uint32_t at = 0; pyr_board_next(self->board, &at, &head, &text);) {
        if (head.kind == PYR_WIRE_NOT_RUN) {
            errno = (int)head.a;
            cannot(self->helper);
            fputs("pyresolve-probe: reinstall pyresolve-native; to have this program elsewhere link"
                  " to it\n",
                  stderr);
            return false;
        }
    }
    if (!pyr_trial_started(trial) && WIFEXITED(trial->status) &&
        WEXITSTATUS(trial->status) == PYR_WIRE_NO_BOARD_STATUS) {
        fputs("pyresolve-probe: no check is possible: a library's process could not reach this one"
              " through /proc: mount it\n",
              stderr);
        return false;
    }
    return true;
}

/* Runs the helper and fills in how it ended. */
static bool try_image(struct pyr_tester *self, struct image *image, struct pyr_trial *trial) {
    pyr_board_clear(self->board);
    if (self->capture >= 0) {
        lseek(self->capture, 0, SEEK_SET);
    }
    pid_t pid = pyr_supervisor_spawn(&self->supervisor, become, image);
    if (pid < 0) {
        return cannot("clone");
    }
    struct pyr_child child = {.pid = pid};
    pyr_supervisor_wait(&self->supervisor, &child, 1);
    trial->in_time = child.end == PYR_WIRE_END_BY_ITSELF;
    trial->status = child.status;
    self->late = !trial->in_time;
    trial->board = self->board;
    trial->words = captured(self);
    return is_answer(self, trial);
}

static bool try_open(struct pyr_tester *self, struct pyr_trial *trial) {
    char *arguments[] = {(char *)self->helper, "open", self->board_path, (char *)self->stub,
                         (char *)trial->name,  NULL};
    struct image image = {
        .tester = self,
        .arguments = arguments,
        .environment = pyr_preload_none(self->environment),
        .stub = -1,
    };
    return image.environment ? try_image(self, &image, trial) : cannot("malloc");
}

static bool try_preload(struct pyr_tester *self, char **environment, struct pyr_trial *trial) {
    char *arguments[] = {(char *)self->helper, "observe", self->board_path, (char *)trial->name,
                         NULL};
    struct image image = {
        .tester = self,
        .arguments = arguments,
        .environment = environment,
        .stub = trial->stub ? open(self->stub, O_RDONLY | O_CLOEXEC) : -1,
    };
    if (trial->stub && image.stub < 0) {
        return cannot(self->stub);
    }
    bool answered = environment ? try_image(self, &image, trial) : cannot("malloc");
    if (image.stub >= 0) {
        close(image.stub);
    }
    return answered;
}

static bool check_preload(struct pyr_tester *self, struct pyr_trial *trial,
                          struct pyr_outcome *outcome) {
    const char *variable;
    char **environment = pyr_preload_first(self->environment, trial->name, &variable);
    if (variable) {
        fprintf(stderr,
                "pyresolve-probe: %s cannot be preloaded: its path holds what %s does not take"
                " literally; move the environment to a path without it\n",
                trial->name, variable);
        return false;
    }
    if (!try_preload(self, environment, trial)) {
        return false;
    }
    pyr_judge(trial, outcome);
    if (pyr_outcome_lacks_driver(outcome)) {
        trial->stub = true;
        if (!try_preload(self, pyr_preload_last(environment, STUB_PRELOAD), trial)) {
            return false;
        }
        pyr_judge(trial, outcome);
    }
    if (outcome->status == PYR_TIMED_OUT || pyr_trial_started(trial)) {
        return true;
    }
    /* Nothing started: does anything without the hook? */
    trial->stub = false;
    if (!try_preload(self, pyr_preload_without(environment, trial->name), trial)) {
        return false;
    }
    if (!pyr_trial_started(trial)) {
        pyr_judge_broken(trial, outcome);
    }
    return true;
}

bool pyr_tester_check(struct pyr_tester *self, const char *name, struct pyr_outcome *outcome) {
    int error;
    if (pyr_judge_file(name, outcome, &error)) {
        return true;
    }
    if (error) {
        errno = error;
        return cannot(name);
    }
    if (self->late) {
        pyr_judge_late(self->timeout, outcome);
        return true;
    }
    struct pyr_trial trial = {.name = name, .mode = self->mode, .timeout = self->timeout};
    if (self->mode == PYR_PRELOAD) {
        return check_preload(self, &trial, outcome);
    }
    if (!try_open(self, &trial)) {
        return false;
    }
    pyr_judge(&trial, outcome);
    return true;
}
