/* Tries a library in a process that is exec'd, the helper's `open` or `observe`, as often as a
 * verdict takes. */
#ifndef PYR_TRIAL_H
#define PYR_TRIAL_H

#include "classify.h"
#include "supervise.h"

/* The call that fails if a child finds no /proc, or another one. */
#define PYR_CALL_RECORDS "open of the records in /proc"

enum {
    PYR_CAPTURE_SIZE = 1 << 16,
};

/* What all trials of a process share. */
struct pyr_tester {
    struct pyr_supervisor *supervisor;
    const char *helper; /* paths */
    const char *stub;
    const char *next;    /* what a rehearsal opens after main was reached, or "" */
    char *const *before; /* what a load opens before its target, ended by NULL */
    struct pyr_records *records;
    char records_path[PYR_RECORDS_PATH_SIZE];
    int capture; /* a descriptor of what a child prints */
    /* After a function returned false: the system call that failed, and its errno. */
    const char *failed_call;
    int sys_errno;
};

/* Opens what the trials share. The caller fills in what stands before `records`. */
bool pyr_tester_open(struct pyr_tester *self);

/* Opens `name` with dlopen in a process with `environment`. `name` is absolute, or has no slash and
 * is for the loader to search. */
bool pyr_tester_load(struct pyr_tester *self, const char *name, char **environment,
                     struct pyr_outcome *outcome);

/* A rehearsal: starts a process in `environment`, whose LD_PRELOAD names `name`, and sees whether
 * that takes effect. It is started, then waited for together with other children of the same
 * supervisor, then finished, which starts further processes if the first did not settle it: one
 * with the stub driver, and one without `name`. */
bool pyr_rehearsal_start(struct pyr_tester *self, const char *name, char **environment,
                         struct pyr_child *child);
bool pyr_rehearsal_finish(struct pyr_tester *self, const char *name, char **environment,
                          const struct pyr_child *child, struct pyr_outcome *outcome);

#endif
