#include "records.h"

#include <string.h>
#include <sys/mman.h>

/* Where nothing else is mapped: a library comes to lie where it would in any process, and one that
 * writes beyond its end finds there what it would find in any. The kernel need not comply. */
#define PLACE ((void *)0x200000000000)

struct pyr_records *pyr_records_map(int fd) {
    int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
    void *memory = mmap(PLACE, sizeof(struct pyr_records), PROT_READ | PROT_WRITE, flags, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void pyr_records_unmap(struct pyr_records *records) {
    munmap(records, sizeof *records);
}

void pyr_records_clear(struct pyr_records *records) {
    records->used = 0;
    records->full = 0;
}

void pyr_records_add_bytes(struct pyr_records *records, enum pyr_wire_kind kind, int64_t a,
                           int64_t b, const char *text, size_t length) {
    if (length > PYR_WIRE_TEXT_MAX) {
        length = PYR_WIRE_TEXT_MAX;
    }
    struct pyr_wire_frame head = {
        .magic = PYR_WIRE_MAGIC,
        .version = PYR_WIRE_VERSION,
        .kind = (uint16_t)kind,
        .length = (uint32_t)length,
        .a = a,
        .b = b,
    };
    /* Room is kept for the last frame: a target with much to report must not seem to have died. */
    size_t kept = kind == PYR_WIRE_FINISHED ? 0 : sizeof head;
    if (sizeof records->bytes - records->used < sizeof head + length + kept) {
        records->full = 1;
        return;
    }
    char *at = records->bytes + records->used;
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, text, length);
    /* The supervisor reads only after this process has ended, however it ends: `used` moves last
     * so that a crash half way through leaves whole frames. */
    __atomic_store_n(&records->used, records->used + (uint32_t)(sizeof head + length),
                     __ATOMIC_RELEASE);
}

void pyr_records_add(struct pyr_records *records, enum pyr_wire_kind kind, int64_t a, int64_t b,
                     const char *text) {
    pyr_records_add_bytes(records, kind, a, b, text ? text : "", text ? strlen(text) : 0);
}

bool pyr_records_next(const struct pyr_records *records, uint32_t *at, struct pyr_wire_frame *head,
                      const char **text) {
    uint32_t used = __atomic_load_n(&records->used, __ATOMIC_ACQUIRE);
    if (used > sizeof records->bytes || *at > used || used - *at < PYR_WIRE_HEAD_SIZE) {
        return false;
    }
    memcpy(head, records->bytes + *at, sizeof *head);
    if (head->magic != PYR_WIRE_MAGIC || head->version != PYR_WIRE_VERSION ||
        head->kind < PYR_WIRE_STARTED || head->kind > PYR_WIRE_FINISHED ||
        head->length > PYR_WIRE_TEXT_MAX || head->length > used - *at - PYR_WIRE_HEAD_SIZE) {
        return false;
    }
    *text = records->bytes + *at + PYR_WIRE_HEAD_SIZE;
    *at += PYR_WIRE_HEAD_SIZE + head->length;
    return true;
}
