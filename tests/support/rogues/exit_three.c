/* Ends the process while loading, with status 3. */
#include "rogue.h"

ON_LOAD {
    exit(3);
}
