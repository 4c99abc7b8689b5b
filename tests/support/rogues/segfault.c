/* Dies of SIGSEGV while loading. */
#include "rogue.h"

ON_LOAD {
    int *volatile nowhere = NULL;
    *nowhere = 1;
}
