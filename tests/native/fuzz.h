/* What the fuzzers share: how they say that something is not so, their dice, and their clock. */
#ifndef PYR_FUZZ_H
#define PYR_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#ifndef PYR_LIBFUZZER

static uint64_t random_bits(void) { /* xorshift64*, the same numbers in each run */
    static uint64_t state = 0x9e3779b97f4a7c15;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1d;
}

static uint64_t below(uint64_t limit) {
    return (random_bits() >> 11) % limit;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#endif

#endif
