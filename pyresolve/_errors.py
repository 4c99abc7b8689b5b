"""Errors: misuse, no answer, or a failure of pyresolve itself. A broken library is a result."""

from __future__ import annotations

import copyreg
import errno
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from ._model import LoadReport

_POLICY = (
    "a security policy of this host or of its container (seccomp, AppArmor, SELinux) forbids it:"
    " allow that call"
)
REFUSALS = {
    errno.EAGAIN: "no more processes may be started here: raise the limit (ulimit -u, or the"
    " pids limit of the container)",
    errno.ENOMEM: "the system is out of memory, or allows this process no more: raise ulimit -v and"
    " the memory limit of the container",
    errno.EMFILE: "this process has too many files open: raise ulimit -n",
    errno.ENFILE: "the system has too many files open",
    errno.EFBIG: "no file may be so large here: raise ulimit -f",
    errno.EPERM: _POLICY,
    errno.ENOSYS: _POLICY,
}
"""What refuses a system call that fails so, and what to do. It says nothing about a library."""


class PyresolveError(Exception):
    """Base of every error that pyresolve raises on purpose.

    `remedy` is a shell command that fixes the cause, None if no single one does.
    """

    remedy: str | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Survive the way out of another process, fields and all."""
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class NoVariantError(PyresolveError):
    """No build of the hook fits: package missing, no hooks in it, or none for this major.

    `searched` are the directories that were looked at, `found` the builds that are there,
    `major` the CUDA major that was wanted (None if it was not known).
    """

    def __init__(
        self,
        message: str,
        *,
        searched: tuple[Path, ...] = (),
        found: tuple[Path, ...] = (),
        major: int | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.searched = searched
        self.found = found
        self.major = major


class NotLoadableError(PyresolveError):
    """The chosen build does not work in the environment of the workers; `report` says why.

    `choice` is the Choice that failed, with all that led to it.
    """

    def __init__(self, message: str, *, report: LoadReport, choice: Any = None) -> None:  # noqa: ANN401  (a Choice)
        super().__init__(message)
        self.report = report
        self.choice = choice
        self.remedy = report.remedy


class ResolverError(PyresolveError):
    """The package's own resolver is there and raised; the original error is the cause."""


class NotCudaError(PyresolveError):
    """torch is built for another accelerator; `accelerator` names it."""

    def __init__(self, message: str, *, accelerator: str) -> None:
        super().__init__(message)
        self.accelerator = accelerator


class OverrideError(PyresolveError, ValueError):
    """An override (`variable`) has a value that means nothing here."""

    def __init__(self, message: str, *, variable: str, value: str) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value


class ConfigError(PyresolveError, ValueError):
    """A file that says what to check cannot be read, or says what means nothing."""


class UnrepresentablePathError(PyresolveError):
    """A path that LD_PRELOAD or LD_LIBRARY_PATH cannot hold: they know no escaping."""

    def __init__(self, message: str, *, path: str, variable: str) -> None:
        super().__init__(message)
        self.path = path
        self.variable = variable


class InterpreterError(PyresolveError):
    """The workers' interpreter (`python`) cannot be asked where its packages are."""

    def __init__(self, message: str, *, python: str) -> None:
        super().__init__(message)
        self.python = python


class ProbeError(PyresolveError):
    """The probe itself could not run: helper missing or not executable, out of processes.

    `reason` is the text of the errno of the call that failed, empty if there is none.
    """

    def __init__(self, message: str, *, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason
