/* The one line that a probe prints: what pyresolve/_brief.py makes of reports, made in C. Pure. */
#ifndef PYR_BRIEF_H
#define PYR_BRIEF_H

#include <stddef.h>
#include <stdint.h>

enum {
    PYR_BRIEF_WIDTH = 80,
    PYR_DETAIL_SIZE = 256,
};

/* The causes that a trial can name; each has the verdict that goes with it. */
enum pyr_status {
    PYR_LOADABLE,
    PYR_NO_DRIVER,
    PYR_MISSING_DEPENDENCY,
    PYR_UNDEFINED_SYMBOL,
    PYR_VERSION_MISMATCH,
    PYR_NOT_FOUND,
    PYR_NOT_ELF,
    PYR_TRUNCATED,
    PYR_WRONG_ARCH,
    PYR_NOEXEC,
    PYR_PERMISSION,
    PYR_NOT_LOADABLE,
    PYR_IGNORED,
    PYR_BYPASSED,
    PYR_CRASHED,
    PYR_EXITED,
    PYR_TIMED_OUT,
    PYR_BROKEN_ENVIRONMENT,
    PYR_STATUSES,
};

/* The exit status is the verdict. */
enum pyr_verdict {
    PYR_OK = 0,
    PYR_FAIL = 1,
    PYR_UNKNOWN = 3,
};

/* Bytes that need no terminator. */
struct pyr_text {
    const char *at;
    size_t length;
};

struct pyr_outcome {
    const char *name; /* of the library, as it was given */
    enum pyr_status status;
    uint32_t detail_length;
    char detail[PYR_DETAIL_SIZE]; /* the cause in a word or two, not terminated */
};

/* What several checks came to. */
struct pyr_tally {
    uint32_t checks;
    uint32_t bad; /* those that are not OK */
    struct pyr_outcome worst;
};

enum pyr_verdict pyr_status_verdict(enum pyr_status status);

/* Adds to the detail. Of a long one the two ends are kept, which is all that a line has room for.
 */
void pyr_detail_add(struct pyr_outcome *outcome, struct pyr_text text);

void pyr_tally_add(struct pyr_tally *tally, const struct pyr_outcome *outcome);

/* Writes the line for at least one check, NUL-terminated and without a newline. */
void pyr_brief_line(const struct pyr_tally *tally, char line[PYR_BRIEF_WIDTH + 1]);

#endif
