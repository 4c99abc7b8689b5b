/* A process that has children try something and outlives whatever they do: it waits with
 * a deadline, reads what they left on boards that it shares with them, and kills all that they
 * started.
 * The process must be single-threaded and have no other children. */
#ifndef PYR_SUPERVISE_H
#define PYR_SUPERVISE_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "records.h"

enum {
    PYR_RECORDS_PATH_SIZE = 64,
};

struct pyr_supervisor {
    int64_t deadline; /* monotonic ns; 0 after stop_signal */
    pid_t caller;     /* who may tell this process to end; 0: anybody */
    int stop_signal;  /* the signal that told this process to end, or 0 */
    sigset_t mask;    /* the signal mask that children get */
};

/* Makes this process a supervisor. The timeout begins now. Signals to end that neither the kernel
 * nor `caller` sent are ignored, those of children count against them. */
void pyr_supervisor_begin(struct pyr_supervisor *self, int64_t timeout_ns, pid_t caller);

/* As fork(2). The child is in its own process group and is killed when the supervisor ends. */
pid_t pyr_supervisor_fork(const struct pyr_supervisor *self);

/* The same for a child that becomes another program: `exec_child` ends in an exec, or returns if
 * that fails. It runs in this process's memory while this process waits, as after vfork(2), which
 * costs less than a copy: it must not allocate. */
pid_t pyr_supervisor_spawn(const struct pyr_supervisor *self, void (*exec_child)(void *),
                           void *argument);

enum pyr_child_end {
    PYR_CHILD_ENDED,
    PYR_CHILD_KILLED, /* because its time was up */
    PYR_CHILD_STUCK,  /* killed as well, and still there: it sleeps in the kernel */
};

struct pyr_child {
    pid_t pid;
    enum pyr_child_end end;
    bool hostile; /* it told this process to end, and was killed for that */
    int status;   /* as waitpid gives it, 0 of one that is stuck */
};

/* Waits until all the children have ended, or kills them at the deadline. Then kills what they left
 * behind, which takes at most 150 ms. The caller fills in the pids. */
void pyr_supervisor_wait(struct pyr_supervisor *self, struct pyr_child *children, size_t count);

/* An unnamed file of `size` bytes. Returns a descriptor, or -1 with errno and the call that failed.
 */
int pyr_memory_file(const char *name, unsigned flags, size_t size, const char **failed_call);

/* Records for a child that is exec'd and opens them at `path`. Returns NULL on failure, as above.
 */
struct pyr_records *pyr_records_publish(char path[PYR_RECORDS_PATH_SIZE], const char **failed_call);

#endif
