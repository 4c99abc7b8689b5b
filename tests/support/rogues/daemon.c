/* Leaves a daemon for 60 s, in a session of its own and adopted by init; loading goes on. */
#include <sys/wait.h>

#include "rogue.h"

ON_LOAD {
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() == 0) {
            rogue_write_pid((int)getpid());
            sleep(60);
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}
