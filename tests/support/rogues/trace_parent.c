/* Attaches to its parent as a debugger, which stops that. It hangs in any case, so that it is
 * judged alike if the system forbids the attaching. */
#include <sys/ptrace.h>

#include "rogue.h"

ON_LOAD {
    ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
    for (;;)
        pause();
}
