/* Sleeps for ever while loading; SIGTERM does not end it. */
#include <signal.h>

#include "rogue.h"

ON_LOAD {
    signal(SIGTERM, SIG_IGN);
    for (;;)
        pause();
}
