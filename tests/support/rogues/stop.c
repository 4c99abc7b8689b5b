/* Stops itself while loading: it neither ends nor burns time. */
#include <signal.h>

#include "rogue.h"

ON_LOAD {
    raise(SIGSTOP);
}
