/* Where this process gets a symbol from. Looks up and loads nothing. */
#ifndef PYR_SCOPE_H
#define PYR_SCOPE_H

#include <stddef.h>

/* Writes the path of the object that the process gets `symbol` from, as the loader names it, and
 * returns its length; 0 if nothing in the global scope defines it or `size` is too small. */
size_t pyr_scope_owner(const char *symbol, char *path, size_t size);

#endif
