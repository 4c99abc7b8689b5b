/* What a trial comes to: the statuses, in the order of pyresolve/_model.py, and their verdicts. */
#ifndef PYR_STATUS_H
#define PYR_STATUS_H

enum pyr_status {
    PYR_LOADABLE,
    PYR_NO_DRIVER,
    PYR_NO_PYTHON,
    PYR_MISSING_DEPENDENCY,
    PYR_UNDEFINED_SYMBOL,
    PYR_VERSION_MISMATCH,
    PYR_WRONG_PYTHON,
    PYR_NOT_FOUND,
    PYR_NOT_ELF,
    PYR_TRUNCATED,
    PYR_WRONG_ARCH,
    PYR_NOEXEC,
    PYR_PERMISSION,
    PYR_NOT_LOADABLE,
    PYR_IGNORED,
    PYR_BYPASSED,
    PYR_TORCH_FAILS,
    PYR_CRASHED,
    PYR_EXITED,
    PYR_TIMED_OUT,
    PYR_BROKEN_ENVIRONMENT,
    PYR_STATUSES,
};

/* The exit status of a program that reports it. */
enum pyr_verdict {
    PYR_OK = 0,
    PYR_FAIL = 1,
    PYR_UNKNOWN = 3,
};

enum pyr_verdict pyr_status_verdict(enum pyr_status status);

/* The lower-case name, as the documents and the line have it. */
const char *pyr_status_name(enum pyr_status status);

#endif
