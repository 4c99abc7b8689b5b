/* Aborts while loading. */
#include "rogue.h"

ON_LOAD {
    abort();
}
