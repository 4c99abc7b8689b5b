/* Memory that a child shares with its supervisor, to leave frames in. The child holds no
 * descriptor of it, so that a target which closes or writes to every descriptor changes nothing. */
#ifndef PYR_RECORDS_H
#define PYR_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

/* What a child prints if it cannot open its records, before the errno, and its exit status then. */
#define PYR_RECORDS_LOST "pyresolve-helper cannot open its records: error "

enum {
    PYR_RECORDS_LOST_STATUS = 121,
    PYR_RECORDS_SIZE = 1 << 18,
};

struct pyr_records {
    uint32_t used;
    uint32_t full; /* 1: a frame did not fit and was left out */
    char bytes[PYR_RECORDS_SIZE - 8];
};

/* The records behind `fd`, or new ones for this process and its children if that is -1. Returns
 * NULL and sets errno on failure. */
struct pyr_records *pyr_records_map(int fd);

void pyr_records_unmap(struct pyr_records *records);

void pyr_records_clear(struct pyr_records *records);

/* Adds a frame; one that does not fit is left out. */
void pyr_records_add(struct pyr_records *records, enum pyr_wire_kind kind, int64_t a, int64_t b,
                     const char *text);
void pyr_records_add_bytes(struct pyr_records *records, enum pyr_wire_kind kind, int64_t a,
                           int64_t b, const char *text, size_t length);

/* Takes the frame at *at and moves *at past it; `text` is not terminated. Returns false if there is
 * no further one. The child may have written anything at all: nothing is trusted. */
bool pyr_records_next(const struct pyr_records *records, uint32_t *at, struct pyr_wire_frame *head,
                      const char **text);

#endif
