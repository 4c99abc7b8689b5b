/* Overflows the stack while loading: a handler without a stack of its own cannot run. */
#include "rogue.h"

#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Winfinite-recursion"
static int dive(int depth) {
    volatile char page[4096];
    page[0] = (char)depth;
    return dive(depth + 1) + page[0];
}

ON_LOAD {
    dive(0);
}
