/* Tries a library in a process of its own and judges what came of it: pyresolve/_check.py in C, of
 * which only the search for more about a failure is missing. */
#ifndef PYR_TRIAL_H
#define PYR_TRIAL_H

#include "judge.h"
#include "supervise.h"

enum {
    PYR_CAPTURE_SIZE = 1 << 16,
};

/* What all trials of a process share. */
struct pyr_tester {
    struct pyr_supervisor supervisor;
    enum pyr_mode mode;
    double timeout;     /* seconds in all, as they are reported */
    bool late;          /* they are over */
    const char *helper; /* paths */
    const char *stub;
    char **environment;
    struct pyr_board *board;
    char board_path[PYR_BOARD_PATH_SIZE];
    int null;    /* a descriptor of /dev/null */
    int capture; /* one of what a child prints, where that matters; else -1 */
};

/* Makes a supervisor of this process. Both functions say on stderr what is wrong and return false
 * where no answer can be had. */
bool pyr_tester_begin(struct pyr_tester *self);

/* `name` is absolute, or without a slash and for the loader to search. */
bool pyr_tester_check(struct pyr_tester *self, const char *name, struct pyr_outcome *outcome);

#endif
