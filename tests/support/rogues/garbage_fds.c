/* Writes garbage to every file descriptor from 3 to 1023 while loading. */
#include <string.h>

#include "rogue.h"

ON_LOAD {
    char garbage[64];
    memset(garbage, 0xA5, sizeof garbage);
    for (int fd = 3; fd < 1024; fd++)
        if (write(fd, garbage, sizeof garbage) < 0)
            continue;
}
