/* From what a trial showed to its outcome: pyresolve/_judge.py in C. Looks at files that are named
 * to it, and at nothing else. */
#ifndef PYR_JUDGE_H
#define PYR_JUDGE_H

#include <stdbool.h>

#include "board.h"
#include "brief.h"

enum pyr_mode {
    PYR_DLOPEN,
    PYR_PRELOAD,
};

/* What is known about a library once the child that tried it has ended. */
struct pyr_trial {
    const char *name; /* as the loader was given it */
    enum pyr_mode mode;
    bool stub;      /* in preload mode: the stub driver was preloaded with it */
    bool in_time;   /* false: it was killed because its time was up */
    int status;     /* as waitpid gives it */
    double timeout; /* seconds */
    const struct pyr_board *board;
    struct pyr_text words; /* what was printed on stderr */
};

/* What is judged leaves the name of the outcome to the caller. */

/* Did the child's own code run? */
bool pyr_trial_started(const struct pyr_trial *trial);

/* What is wrong with the file itself. False where that does not settle it; *error is then an errno
 * that says nothing about the file, or 0. */
bool pyr_judge_file(const char *name, struct pyr_outcome *outcome, int *error);

void pyr_judge(const struct pyr_trial *trial, struct pyr_outcome *outcome);

/* In preload mode nothing but the driver was missing: the stub is to be tried. */
bool pyr_outcome_lacks_driver(const struct pyr_outcome *outcome);

/* No program at all starts in this environment, as `trial` showed. */
void pyr_judge_broken(const struct pyr_trial *trial, struct pyr_outcome *outcome);

/* Its time was up, maybe before it began. */
void pyr_judge_late(double timeout, struct pyr_outcome *outcome);

#endif
