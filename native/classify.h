/* The one judge: from what a trial left to its outcome. Reads the headers of files that are named
 * to it, and has no other effect. */
#ifndef PYR_CLASSIFY_H
#define PYR_CLASSIFY_H

#include "records.h"
#include "status.h"
#include "supervise.h"
#include "text.h"

enum pyr_mode {
    PYR_DLOPEN,
    PYR_PRELOAD,
};

/* What is known about a library after the child that tried it has ended. */
struct pyr_trial {
    const char *name; /* as the loader was given it */
    enum pyr_mode mode;
    bool stub;   /* in preload mode: the stub driver was preloaded with it */
    bool bound;  /* in preload mode: with LD_BIND_NOW, so that the loader found every function */
    bool forked; /* the child is a fork: its own code ran, whatever the records say */
    bool python; /* what an interpreter defines was defined, but no interpreter runs */
    struct pyr_child child;
    const struct pyr_records *records;
    struct pyr_text captured; /* stdout and stderr of the child, as far as they were kept */
};

/* `fields` holds five NUL-terminated texts, empty if they do not apply:
 *   name      the library, symbol or version that is missing; how the child ended; the limit or
 *             policy that refuses a file that may be sound, in the loader's words
 *   version   of that symbol
 *   file      the file that is at fault
 *   by        the object that uses the symbol or wants the version
 *   text      what the loader or the child said */
struct pyr_outcome {
    enum pyr_status status;
    bool stub;     /* the stub driver took the place of an absent one */
    int32_t stuck; /* the pid of a child that outlived SIGKILL, or 0 */
    uint32_t length;
    char fields[PYR_WIRE_TEXT_MAX];
};

/* Did the child's own code run? */
bool pyr_trial_started(const struct pyr_trial *trial);

/* Judges the file alone. Returns false if it is sound or the loader is to search for it. */
bool pyr_classify_file(const char *name, struct pyr_outcome *outcome);

void pyr_classify(const struct pyr_trial *trial, struct pyr_outcome *outcome);

/* No program at all starts in this environment, or none in time, as `trial` without the hook
 * showed.
 */
void pyr_classify_broken(const struct pyr_trial *trial, struct pyr_outcome *outcome);

/* There was no time left to try it. */
void pyr_classify_late(struct pyr_outcome *outcome);

/* It ended the process that supervised it, or tried to. */
void pyr_classify_hostile(struct pyr_outcome *outcome);

/* In preload mode: nothing but the driver was missing, so that the stub is worth a try. */
bool pyr_outcome_lacks_driver(const struct pyr_outcome *outcome);

/* Writes the cause in a word or two, as the line shows it. */
void pyr_outcome_detail(const struct pyr_outcome *outcome, char detail[PYR_WIRE_TEXT_MAX]);

#endif
