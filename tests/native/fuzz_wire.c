/* Fuzz pyr_wire_scan: any bytes give an answer that keeps the promises of probe.h.
 *
 *   libFuzzer:  clang -DPYR_LIBFUZZER -fsanitize=fuzzer,address,undefined ...
 *   elsewhere:  gcc -std=c11 -D_GNU_SOURCE -g -O1 -fsanitize=address,undefined
 *                   -fno-sanitize-recover -iquote native native/probe.c tests/native/fuzz_wire.c
 *               ./a.out SECONDS     mutates frames of its own making, the same way in each run
 */
#include "probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "wire.h"

#define NONCE UINT64_C(0x0123456789abcdef)

static int is_frame(const struct pyr_wire_frame *head) {
    return head->magic == PYR_WIRE_MAGIC && head->version == PYR_WIRE_VERSION &&
           head->nonce == NONCE && head->kind >= PYR_WIRE_HELLO &&
           head->kind <= PYR_WIRE_FINISHED && head->length <= PYR_WIRE_TEXT_MAX;
}

/* What is whole is a row of valid frames; what is behind it is the beginning of one. */
static void check(const char *bytes, size_t size, int64_t whole, int done) {
    size_t at = 0;
    int last = 0;
    CHECK(done == 0 || done == 1);
    CHECK(whole >= -1 && whole <= (int64_t)size);
    for (;;) {
        struct pyr_wire_frame head;
        if (size - at < sizeof head)
            break;
        memcpy(&head, bytes + at, sizeof head);
        if (!is_frame(&head)) {
            CHECK(whole == -1);
            return;
        }
        if (size - at - sizeof head < head.length)
            break;
        last = head.kind == PYR_WIRE_DONE || head.kind == PYR_WIRE_FAILED;
        at += sizeof head + head.length;
    }
    CHECK(whole == (int64_t)at);
    CHECK(done == last);
}

/* The bytes lie on the heap, in a block of their size, where a sanitizer guards the end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *bytes = malloc(size ? size : 1);
    CHECK(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    int done = -1, again = -1;
    int64_t whole = pyr_wire_scan(bytes, size, NONCE, &done);
    check(bytes, size, whole, done);
    /* In two portions, as a pipe delivers: the same in the end. */
    if (whole >= 0) {
        size_t first = size / 2;
        int64_t part = pyr_wire_scan(bytes, first, NONCE, &again);
        CHECK(part >= 0 && part <= whole);
        int64_t rest = pyr_wire_scan(bytes + part, size - (size_t)part, NONCE, &again);
        CHECK(part + rest == whole);
        CHECK(rest == 0 || again == done);
    }
    CHECK(pyr_wire_scan(bytes, size, NONCE + 1, &done) <= 0);
    free(bytes);
    return 0;
}

#ifndef PYR_LIBFUZZER

enum {
    ROOM = 1 << 16,
    MAX_FRAMES = 8,
    MAX_MUTATIONS = 4
};

static size_t make_frames(uint8_t *bytes) {
    size_t size = 0;
    for (uint64_t n = below(MAX_FRAMES + 1); n > 0; n--) {
        struct pyr_wire_frame head = {
            .magic = PYR_WIRE_MAGIC,
            .version = PYR_WIRE_VERSION,
            .kind = (uint16_t)(1 + below(PYR_WIRE_FINISHED)),
            .nonce = NONCE,
            .target = (uint32_t)random_bits(),
            .length = (uint32_t)(below(4) ? below(80) : PYR_WIRE_TEXT_MAX - below(3)),
            .a = (int64_t)random_bits(),
            .b = (int64_t)random_bits(),
        };
        memcpy(bytes + size, &head, sizeof head);
        memset(bytes + size + sizeof head, (int)below(256), head.length);
        size += sizeof head + head.length;
    }
    return size;
}

static uint32_t odd_value(void) {
    const uint32_t values[] = {
        0,
        1,
        PYR_WIRE_TEXT_MAX,
        PYR_WIRE_TEXT_MAX + 1,
        UINT32_MAX,
        UINT32_MAX - PYR_WIRE_HEAD_SIZE + 1,
        INT32_MAX,
        PYR_WIRE_MAGIC,
        (uint32_t)random_bits(),
    };
    return values[below(sizeof values / sizeof values[0])];
}

static size_t mutate(uint8_t *bytes, size_t size) {
    for (uint64_t n = below(MAX_MUTATIONS + 1); n > 0 && size > sizeof(uint32_t); n--) {
        uint64_t at = below(size);
        uint32_t value = odd_value();
        switch (below(4)) {
        case 0:
            bytes[at] ^= (uint8_t)(1u << below(8));
            break;
        case 1:
            size = at;
            break;
        case 2: /* a head that moved: bytes lost */
            memmove(bytes, bytes + at, size - at);
            size -= at;
            break;
        default:
            at = at & ~UINT64_C(3);
            memcpy(bytes + at, &value, size - at < sizeof value ? size - at : sizeof value);
            break;
        }
    }
    return size;
}

int main(int argc, char **argv) {
    static uint8_t bytes[ROOM];
    if (argc != 2) {
        fprintf(stderr, "usage: %s SECONDS\n", argv[0]);
        return 2;
    }
    double end = now() + atof(argv[1]);
    unsigned long long executions = 0;
    for (; now() < end; executions++)
        LLVMFuzzerTestOneInput(bytes, mutate(bytes, make_frames(bytes)));
    printf("%llu executions\n", executions);
    return 0;
}

#endif
