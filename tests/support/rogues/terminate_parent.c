/* Tells its parent to end while loading, and loads. */
#include <signal.h>

#include "rogue.h"

ON_LOAD {
    kill(getppid(), SIGTERM);
}
