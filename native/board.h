/* Where a child leaves its frames for its supervisor: memory that both share. The child holds no
 * descriptor of ours, so a target that closes or writes to every descriptor changes nothing. */
#ifndef PYR_BOARD_H
#define PYR_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

enum {
    PYR_BOARD_SIZE = 1 << 18,
};

struct pyr_board {
    uint32_t used;
    uint32_t full; /* 1: a frame did not fit and was left out */
    char bytes[PYR_BOARD_SIZE - 8];
};

/* The board behind `fd`, or a new one for this process and its children where that is -1. Returns
 * NULL and sets errno where that fails. */
struct pyr_board *pyr_board_map(int fd);

void pyr_board_unmap(struct pyr_board *board);

void pyr_board_clear(struct pyr_board *board);

/* Adds a frame; one that does not fit is left out. */
void pyr_board_post(struct pyr_board *board, enum pyr_wire_kind kind, int64_t a, int64_t b,
                    const char *text);
void pyr_board_post_bytes(struct pyr_board *board, enum pyr_wire_kind kind, int64_t a, int64_t b,
                          const char *text, size_t length);

/* Takes the frame at *at and moves *at behind it; `text` is not terminated. Returns false where
 * there is no further one. The child may have written anything at all: nothing is believed. */
bool pyr_board_next(const struct pyr_board *board, uint32_t *at, struct pyr_wire_frame *head,
                    const char **text);

#endif
