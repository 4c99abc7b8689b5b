/* Starts a thread that spins for ever; loading goes on. */
#include <pthread.h>

#include "rogue.h"

static void *spin(void *argument) {
    (void)argument;
    for (volatile int turns = 0;; turns = !turns)
        ;
    return NULL;
}

ON_LOAD {
    pthread_t thread;
    pthread_create(&thread, NULL, spin, NULL);
}
