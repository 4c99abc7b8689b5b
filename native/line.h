/* One line about several checks, for what shows no more: kubelets, problem detectors, pagers. Pure.
 */
#ifndef PYR_LINE_H
#define PYR_LINE_H

#include <stdint.h>

#include "status.h"

enum {
    PYR_LINE_WIDTH = 80, /* node-problem-detector cuts a message there (max_output_length) */
};

/* What one check came to. */
struct pyr_line_check {
    int32_t verdict; /* enum pyr_verdict */
    const char *status;
    const char *detail; /* the cause in a word or two, or empty */
    const char *name;   /* of what was checked; of a path the last component is shown */
};

/* Writes the worst of `count` > 0 checks, the first of several, and how many others are not OK.
 * NUL-terminated, without a newline, printable ASCII. */
void pyr_line_write(const struct pyr_line_check *checks, uint32_t count,
                    char line[PYR_LINE_WIDTH + 1]);

/* The verdict on all of them. */
int pyr_line_verdict(const struct pyr_line_check *checks, uint32_t count);

#endif
