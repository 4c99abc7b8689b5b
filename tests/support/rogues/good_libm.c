/* Behaves, and needs libm. */
#include <math.h>

double rogue_good_libm(double angle) {
    return cos(angle);
}
