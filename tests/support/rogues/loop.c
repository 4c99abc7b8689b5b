/* Spins for ever while loading. */
#include "rogue.h"

ON_LOAD {
    for (volatile int turns = 0;; turns = !turns)
        ;
}
