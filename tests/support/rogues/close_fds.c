/* Closes file descriptors 0 to 1023 while loading. */
#include "rogue.h"

ON_LOAD {
    for (int fd = 0; fd < 1024; fd++)
        close(fd);
}
