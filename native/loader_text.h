/* Reads what glibc's loader says: dlerror's text, and what it prints on stderr. Pure: the results
 * point into the input. */
#ifndef PYR_LOADER_TEXT_H
#define PYR_LOADER_TEXT_H

#include <stdbool.h>

#include "text.h"

/* What the loader says is wrong. */
enum pyr_complaint {
    PYR_SAYS_NOTHING_KNOWN = 0,
    PYR_SAYS_NOT_FOUND,
    PYR_SAYS_DENIED,
    PYR_SAYS_CANNOT_OPEN, /* a limit or a policy: the library may well be there */
    PYR_SAYS_VERSION,     /* a library does not define a version that is required */
    PYR_SAYS_LINK_TIME,   /* a library does not define a symbol in a version; before 2.30 only */
    PYR_SAYS_UNDEFINED,   /* no library defines a symbol */
    PYR_SAYS_BAD_FILE,    /* the file cannot be loaded, whatever the system allows */
    PYR_SAYS_LIMIT,       /* the system refused memory, a mapping or a protection */
};

/* An absent field has length 0. */
struct pyr_loader_text {
    enum pyr_complaint says;
    struct pyr_text file;    /* the file that the loader speaks of */
    struct pyr_text by;      /* the object that requires the version or the symbol */
    struct pyr_text name;    /* the library, version or symbol that is wanted */
    struct pyr_text version; /* of the symbol */
    struct pyr_text reason;  /* the text of errno, or the loader's own words if it gives none */
    struct pyr_text text;    /* the message, without the name of the program */
};

/* Reads what dlerror returned: one message, in which a path may contain line breaks. */
struct pyr_loader_text pyr_loader_read_error(struct pyr_text error);

/* Finds in the stderr of a program why the loader did not start it. */
struct pyr_loader_text pyr_loader_read_stderr(struct pyr_text captured);

/* Did the loader skip `object`, an element of LD_PRELOAD? Old versions of glibc give no reason. */
bool pyr_loader_skipped(struct pyr_text captured, struct pyr_text object, struct pyr_text *reason);

/* Does a limit or a policy of this system refuse what the loader wants to do? Then the file may be
 * sound. */
bool pyr_loader_is_refused(const struct pyr_loader_text *said);

/* Did the loader search for `library` in vain? It passes over files for another machine, and then
 * names the library and not a path. */
bool pyr_loader_finds_no(const struct pyr_loader_text *said, const char *library);

/* Does the driver library define the symbols with such a name? */
bool pyr_loader_is_driver_symbol(struct pyr_text name);

/* Does a Python interpreter define the symbols with such a name? */
bool pyr_loader_is_python_symbol(struct pyr_text name);

#endif
