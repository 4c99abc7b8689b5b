#include "status.h"

enum pyr_verdict pyr_status_verdict(enum pyr_status status) {
    switch (status) {
    case PYR_LOADABLE:
        return PYR_OK;
    case PYR_NO_DRIVER:
    case PYR_NO_PYTHON:
        return PYR_UNKNOWN;
    default:
        return PYR_FAIL;
    }
}

const char *pyr_status_name(enum pyr_status status) {
    static const char *const names[PYR_STATUSES] = {
        [PYR_LOADABLE] = "loadable",
        [PYR_NO_DRIVER] = "no_driver",
        [PYR_NO_PYTHON] = "no_python",
        [PYR_MISSING_DEPENDENCY] = "missing_dependency",
        [PYR_UNDEFINED_SYMBOL] = "undefined_symbol",
        [PYR_VERSION_MISMATCH] = "version_mismatch",
        [PYR_WRONG_PYTHON] = "wrong_python",
        [PYR_NOT_FOUND] = "not_found",
        [PYR_NOT_ELF] = "not_elf",
        [PYR_TRUNCATED] = "truncated",
        [PYR_WRONG_ARCH] = "wrong_arch",
        [PYR_NOEXEC] = "noexec",
        [PYR_PERMISSION] = "permission",
        [PYR_NOT_LOADABLE] = "not_loadable",
        [PYR_IGNORED] = "ignored",
        [PYR_BYPASSED] = "bypassed",
        [PYR_TORCH_FAILS] = "torch_fails",
        [PYR_CRASHED] = "crashed",
        [PYR_EXITED] = "exited",
        [PYR_TIMED_OUT] = "timed_out",
        [PYR_BROKEN_ENVIRONMENT] = "broken_environment",
    };
    return names[status];
}
