/* Leaves a daemon for 60 s, in a session of its own and adopted by init; loading goes on. */
#include <sys/wait.h>

#include "rogue.h"

ON_LOAD {
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        pid_t left = fork();
        if (left == 0) {
            sleep(60);
            _exit(0);
        }
        rogue_write_pid((int)left); /* here, where it is waited for */
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
