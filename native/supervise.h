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

#include "board.h"

enum {
    PYR_BOARD_PATH_SIZE = 64,
};

struct pyr_supervisor {
    int64_t deadline; /* monotonic ns; 0 once there is nobody left to wait for */
    int told;         /* the signal that brought it forward, or 0 */
    sigset_t mask;    /* of signals, as a child is to have it */
};

/* Makes a supervisor of this process; the time begins now. */
void pyr_supervisor_begin(struct pyr_supervisor *self, int64_t timeout_ns);

/* As fork(2). The child is in a group of its own and dies with its supervisor. */
pid_t pyr_supervisor_fork(const struct pyr_supervisor *self);

/* The same for a child that is to be another program: `image` ends in an exec, or returns where
 * that fails. It runs in this process's memory, which costs less than a copy, while this process
 * waits. */
pid_t pyr_supervisor_spawn(const struct pyr_supervisor *self, void (*image)(void *),
                           void *argument);

struct pyr_child {
    pid_t pid;
    enum pyr_wire_end end;
    int status; /* as waitpid gives it, 0 of one that is stuck */
};

/* Waits for the end of all the children, or puts one to them when time is up, and kills what they
 * left behind, for which it takes 150 ms at most. They bring their pids. */
void pyr_supervisor_wait(struct pyr_supervisor *self, struct pyr_child *children, size_t count);

/* A board for a child that is exec'd and finds it by `path`. Returns NULL and sets errno where that
 * fails. */
struct pyr_board *pyr_board_publish(char path[PYR_BOARD_PATH_SIZE]);

#endif
