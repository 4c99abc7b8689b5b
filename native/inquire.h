/* What a process can say about the libraries it has mapped. Runs in the throwaway child only:
 * everything here may crash, hang or be lied to by the target. */
#ifndef PYR_INQUIRE_H
#define PYR_INQUIRE_H

#include "board.h"

/* dlopen `target`, with the stub driver where there is no driver, and report what came of it. */
void pyr_inquire_load(struct pyr_board *board, const char *target, const char *stub);

/* Report what became of `target` in a process that was started with it in LD_PRELOAD. */
void pyr_inquire_preload(struct pyr_board *board, const char *target);

#endif
