/* Dies of SIGILL while loading. */
#include <signal.h>

#include "rogue.h"

ON_LOAD {
    raise(SIGILL);
}
