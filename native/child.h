/* What a process can say about the libraries it has mapped. Runs in the throwaway child only:
 * anything here may crash, hang or be lied to by the target. */
#ifndef PYR_CHILD_H
#define PYR_CHILD_H

#include "records.h"

/* dlopen `target`, with the stub driver if there is no driver, and report the result. */
void pyr_child_load(struct pyr_records *records, const char *target, const char *stub);

/* Report on `target` in a process that was started with it in LD_PRELOAD. */
void pyr_child_preload(struct pyr_records *records, const char *target);

#endif
