/* Kills its process group while loading. */
#include <signal.h>

#include "rogue.h"

ON_LOAD {
    kill(0, SIGKILL);
}
