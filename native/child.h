/* What a process can say about the libraries it has mapped. Runs in the throwaway child only:
 * anything here may crash, hang or be lied to by the target. */
#ifndef PYR_CHILD_H
#define PYR_CHILD_H

#include "records.h"

/* What a process has mapped before its target. */
struct pyr_scene {
    const char *stub;    /* the driver's, if there is no driver */
    const char *python;  /* a library that defines what the interpreter defines, or "" */
    char *const *before; /* libraries that the program has opened, ended by NULL */
};

/* dlopen `target` and report the result. */
void pyr_child_load(struct pyr_records *records, const char *target, const struct pyr_scene *scene);

/* Report on `target` in a process that was started with it in LD_PRELOAD, then open `next`, a
 * library that its program needs, if that is not "". */
void pyr_child_preload(struct pyr_records *records, const char *target, const char *next);

#endif
