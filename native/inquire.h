/* What a process can say about the libraries it has mapped. Runs in the throwaway child only:
 * everything here may crash, hang or be lied to by the target. */
#ifndef PYR_INQUIRE_H
#define PYR_INQUIRE_H

#include <stdint.h>

#include "wire.h"

enum {
    PYR_BOARD_SIZE = 1 << 18,
};

/* Where the child leaves its frames: memory shared with the supervisor. The child holds no
 * descriptor of ours, so a target that closes or writes to every descriptor changes nothing. */
struct pyr_board {
    uint32_t used;
    uint32_t full; /* 1: a frame did not fit and was left out */
    char bytes[PYR_BOARD_SIZE - 8];
};

void pyr_board_post(struct pyr_board *board, enum pyr_wire_kind kind, int64_t a, int64_t b,
                    const char *text);

/* dlopen `target`, with the stub driver where there is no driver, and report what came of it. */
void pyr_inquire_load(struct pyr_board *board, const char *target, const char *stub);

/* Report what became of `target` in a process that was started with it in LD_PRELOAD. */
void pyr_inquire_preload(struct pyr_board *board, const char *target);

#endif
