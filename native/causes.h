/* From what the loader said to the name of the cause: pyresolve/_causes.py in C. Pure. */
#ifndef PYR_CAUSES_H
#define PYR_CAUSES_H

#include <stdbool.h>

#include "brief.h"

/* `name` is the library, version or symbol that is wanted, `version` that of a symbol, `file` the
 * one that the loader speaks of. An absent one has no length. */
struct pyr_cause {
    enum pyr_status status;
    struct pyr_text name;
    struct pyr_text version;
    struct pyr_text file;
};

/* Names the cause in dlerror's text, or in the last words of a program that did not start. The
 * result points into `words`. */
struct pyr_cause pyr_cause_of_words(struct pyr_text words);

/* Is the driver library what defines a symbol of this name? */
bool pyr_cause_is_driver_symbol(struct pyr_text name);

/* Are these the very bytes of `string`? */
bool pyr_text_is(struct pyr_text text, const char *string);

#endif
