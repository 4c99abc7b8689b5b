/* The frames that a helper sends to its caller over the report pipe. Each is sent with one write
 * of at most PIPE_BUF bytes, so that none is torn. Both ends are built together and run on one
 * machine: the struct is the format. */
#ifndef PYR_WIRE_H
#define PYR_WIRE_H

#include <limits.h>
#include <stdint.h>

#define PYR_WIRE_MAGIC UINT32_C(0x50595231)

enum {
    PYR_WIRE_VERSION = 2,
    PYR_WIRE_HEAD_SIZE = 40,
    PYR_WIRE_TEXT_MAX = PIPE_BUF - PYR_WIRE_HEAD_SIZE,
    PYR_WIRE_REPORT_FD = 3, /* the write end, in the helper */
    PYR_WIRE_STUB_FD = 4,   /* the stub driver, in a rehearsed process: LD_PRELOAD names it through
                               /proc/self/fd, since a path may hold a separator */
};

enum pyr_wire_kind {
    /* From the supervisor. */
    PYR_WIRE_HELLO = 1, /* main was reached: programs start in this environment */
    PYR_WIRE_OUTCOME,   /* a: enum pyr_status, with PYR_WIRE_WITH_STUB; b: the pid of a child that
                           outlived SIGKILL, or 0; text: the fields of struct pyr_outcome */
    PYR_WIRE_DONE,      /* the last frame */
    PYR_WIRE_FAILED,    /* the supervisor could not work; a: errno, text: the call that failed */
    /* From a child that tries a target. The supervisor judges them and passes some on. */
    PYR_WIRE_STARTED,   /* main was reached */
    PYR_WIRE_LOAD,      /* a: enum pyr_wire_load bits; b: 1 loaded, 0 not; text: dlerror */
    PYR_WIRE_OBJECT,    /* text: path of a mapped object, as the loader names it */
    PYR_WIRE_RUNTIME,   /* a: cudaRuntimeGetVersion's answer, b: its status; text: path */
    PYR_WIRE_DRIVER,    /* a: cuDriverGetVersion's answer, b: its status or enum pyr_wire_answer;
                           text: path, or dlerror */
    PYR_WIRE_SYMBOL,    /* text: name, NUL, object that the process gets it from, NUL, object that
                           the target alone would get it from */
    PYR_WIRE_UNDEFINED, /* text: a symbol that nothing defines, NUL, the object that uses it */
    PYR_WIRE_NOT_RUN,   /* a: errno of the exec that failed; b: 1 if it was dup2 */
    PYR_WIRE_NEXT,      /* the library that is opened after a preload; b: enum pyr_wire_next;
                           text: its path or, if it failed, dlerror */
    PYR_WIRE_FINISHED,  /* the child reported everything */
};

enum {
    PYR_WIRE_WITH_STUB = 1 << 8, /* the stub driver took the place of an absent one */
};

enum pyr_wire_load {
    PYR_WIRE_LOAD_LAZY = 1,    /* RTLD_LAZY, else RTLD_NOW */
    PYR_WIRE_LOAD_STUB = 2,    /* with the stub driver mapped first */
    PYR_WIRE_LOAD_PRESENT = 4, /* RTLD_NOLOAD: was it mapped before main? */
};

enum pyr_wire_next {
    PYR_WIRE_NEXT_OPENED, /* dlopen was called */
    PYR_WIRE_NEXT_LOADED,
    PYR_WIRE_NEXT_FAILED,
};

/* In place of the status of a version function. */
enum pyr_wire_answer {
    PYR_WIRE_NOT_FOUND = -1,   /* the loader does not find the library; text: dlerror */
    PYR_WIRE_NO_FUNCTION = -2, /* the library has no such function */
    PYR_WIRE_BROKEN = -3,      /* the loader finds it and cannot load it; text: dlerror */
};

struct pyr_wire_frame {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t nonce; /* chosen by the caller: tells a frame of this probe from a stray write */
    uint32_t target;
    uint32_t length; /* of text */
    int64_t a;
    int64_t b; /* the text follows, without a NUL */
};

_Static_assert(sizeof(struct pyr_wire_frame) == PYR_WIRE_HEAD_SIZE, "padding in the frame");
_Static_assert(PYR_WIRE_HEAD_SIZE + PYR_WIRE_TEXT_MAX <= PIPE_BUF, "a frame must be one write");

#endif
