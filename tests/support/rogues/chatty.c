/* Prints 2 MiB each to stdout and stderr while loading: a pipe that nobody drains fills up. */
#include <string.h>

#include "rogue.h"

ON_LOAD {
    char line[1024];
    memset(line, '#', sizeof line);
    line[sizeof line - 1] = '\n';
    for (int i = 0; i < 2048; i++) {
        fwrite(line, 1, sizeof line, stdout);
        fwrite(line, 1, sizeof line, stderr);
    }
    fflush(stdout);
}
