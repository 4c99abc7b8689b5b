"""The checks that make up the health of a node, and their results."""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .. import _overrides
from .._check.check import check
from .._check.line import Summary
from .._disk import cuda, driver as drivers, torch as torches
from .._document import document
from .._errors import NotLoadableError, PyresolveError
from .._model import LoadReport, Mode, Status, Verdict
from .._names import DRIVER_SONAME, dotted
from .._pick.pick import pick
from .._process import helper, interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

PENDING = "pending"
"""The status of a check that has no result yet."""

ABSENT = "absent"
"""The status of a check that is left out here. Only the code in this package sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of one check.

    `name` is the name of the check, `file` that of the file it examined. `status` is the value of
    a Status, the name of an error if nothing could be loaded (`no_variant`), or `pending`.
    `detail` is the cause in a word or two, `message` one sentence, `remedy` a shell command that
    fixes the cause. `report` is the report of the load, if there was one. `elapsed` is how long
    the check took in seconds, `time` when it ended in seconds since the epoch. `pending` says that
    a newer result will come, `pid` is a process that cannot be killed: it sleeps in the kernel.
    """

    name: str
    file: str
    verdict: Verdict
    status: str
    message: str
    detail: str = ""
    remedy: str | None = None
    report: LoadReport | None = None
    elapsed: float = 0.0
    time: float = 0.0
    pending: bool = False
    pid: int | None = None

    @property
    def summary(self) -> Summary:
        """Return the parts of it that one line shows."""
        return Summary(name=self.file, verdict=self.verdict, status=self.status, detail=self.detail)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable (docs/json.md)."""
        return document(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """The build that pick() chooses, loaded as the workers would load it."""

    stem: str = "torch_memory_saver_hook_mode_preload"
    package: str = "torch_memory_saver"
    python: str | None = None
    name: str = "hook"

    @property
    def file(self) -> str:
        """Return the name that stands for the file until one is found."""
        return self.package

    def report(self, *, environ: Mapping[str, str], timeout: float) -> LoadReport:
        """Load it. Raises what pick() raises."""
        try:
            choice = pick(
                self.stem,
                package=self.package,
                python=self.python,
                environ=environ,
                timeout=timeout,
            )
        except NotLoadableError as error:
            return error.report
        assert choice.report is not None, "what was verified has a report"
        message = "; ".join((choice.report.message, *cuda.hidden(environ)))
        return replace(choice.report, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Any library: a path, or a name that the loader searches."""

    path: str
    mode: Mode = Mode.DLOPEN
    name: str

    @property
    def file(self) -> str:
        """Return its file name."""
        return os.path.basename(self.path)  # noqa: PTH119

    def report(self, *, environ: Mapping[str, str], timeout: float) -> LoadReport:
        """Load it. Raises what check() raises."""
        return check(self.path, mode=self.mode.value, environ=environ, timeout=timeout)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The NVIDIA driver, and whether it supports the CUDA version `cuda` (13000 is 13.0).

    Without a driver the verdict is UNKNOWN, or FAIL if it is `required`.
    """

    required: bool = False
    cuda: int | None = None
    name: str = "driver"
    file: ClassVar[str] = DRIVER_SONAME

    def report(self, *, environ: Mapping[str, str], timeout: float) -> LoadReport:
        """Load it and ask for its version. Raises what check() raises."""
        deadline = helper.Deadline(timeout)
        report = check(self.file, environ=environ, timeout=timeout)
        for _, wider in drivers.with_directories(environ):
            if report.status is not Status.NOT_FOUND:
                break
            report = check(self.file, environ=wider, timeout=deadline.left_ns() / 1e9)
        if report.status in (Status.NOT_FOUND, Status.NO_DRIVER):
            hint, remedy = drivers.where(environ)
            message = f"the loader does not find {self.file}, the NVIDIA driver{hint}"
            return replace(
                report,
                remedy=remedy,
                verdict=Verdict.FAIL if self.required else Verdict.UNKNOWN,
                status=Status.NO_DRIVER,
                message=report.driver.problem or message,
                detail="",
            )
        return self._judged(report)

    def _judged(self, report: LoadReport) -> LoadReport:
        version = report.driver.version
        if report.verdict is not Verdict.OK or self.cuda is None:
            return report
        if version is not None and version >= self.cuda:
            return report
        has, wants = dotted(version) or "unknown", dotted(self.cuda)
        return replace(
            report,
            verdict=Verdict.UNKNOWN if version is None else Verdict.FAIL,
            status=Status.VERSION_MISMATCH,
            message=f"the driver {report.driver.path} supports CUDA up to {has}, and CUDA {wants}"
            " is wanted: update the driver",
            detail=f"CUDA {has}, not {wants}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """torch's CUDA library, with the runtime that it maps.

    If it is not `required` and no torch for CUDA is installed, there is nothing to check.
    """

    python: str | None = None
    required: bool = True
    name: str = "torch"
    file: ClassVar[str] = "torch"

    def report(self, *, environ: Mapping[str, str], timeout: float) -> LoadReport | None:
        """Load it; None if there is nothing to check.

        Raises what check() raises, and InterpreterError.
        """
        deadline = helper.Deadline(timeout)
        torch = torches.find(interpreter.site_of(self.python, environ=environ, deadline=deadline))
        if torch and torch.library:
            left = deadline.left_ns() / 1e9
            return check(torch.library, environ=environ, timeout=left)
        if not self.required and not (torch and torch.cuda):
            return None
        python = f" for {self.python}" if self.python else ""
        message = f"torch is not installed{python}: install it, or leave this check out"
        if torch:
            message = (
                f"torch {torch.version or 'of unknown version'} in {torch.root} has no"
                " libc10_cuda.so: it is no CUDA build; install one, or leave this check out"
            )
        return LoadReport(
            path=Path("libc10_cuda.so" if torch else self.file),
            mode=Mode.DLOPEN,
            verdict=Verdict.FAIL,
            status=Status.NOT_FOUND,
            message=message,
        )


Check = Hook | Library | Driver | Torch


DEFAULT = (Hook(), Driver(), Torch(required=False))
"""What is checked without a config."""


def run(check: Check, *, environ: Mapping[str, str], timeout: float) -> Health:
    """Make one check now, in `timeout` seconds; PYRESOLVE_TIMEOUT does not change that."""
    began = time.monotonic()
    environ = {name: value for name, value in environ.items() if name != _overrides.TIMEOUT}
    try:
        health = _reported(check, check.report(environ=environ, timeout=timeout))
    except (PyresolveError, ValueError) as error:
        health = Health(
            name=check.name,
            file=check.file,
            verdict=Verdict.FAIL,
            status=_status(error),
            message=str(error),
            detail=getattr(error, "reason", ""),
            remedy=getattr(error, "remedy", None),
        )
    return replace(health, elapsed=time.monotonic() - began, time=time.time())


def timed_out(check: Check, *, seconds: float, elapsed: float | None = None) -> Health:
    """Return the health of a check that did not return in time."""
    return Health(
        name=check.name,
        file=check.file,
        verdict=Verdict.FAIL,
        status=Status.TIMED_OUT.value,
        message=f"the check {check.name} has not come back within {seconds:g} s: a file system or"
        " a device may not answer, or raise the timeout if this host is slow",
        detail=f"{seconds:g} s",
        elapsed=seconds if elapsed is None else elapsed,
        time=time.time(),
    )


def worst(results: Sequence[Health]) -> Verdict:
    """Return the verdict on all of them together."""
    verdicts = {health.verdict for health in results}
    order = (Verdict.FAIL, Verdict.UNKNOWN)
    return next((verdict for verdict in order if verdict in verdicts), Verdict.OK)


def _reported(check: Check, report: LoadReport | None) -> Health:
    if report is None:
        message = f"{check.file} is not installed: nothing to check"
        return Health(
            name=check.name, file=check.file, verdict=Verdict.OK, status=ABSENT, message=message
        )
    return Health(
        name=check.name,
        file=report.path.name or check.file,
        verdict=report.verdict,
        status=report.status.value,
        message=report.message,
        detail=report.detail,
        remedy=report.remedy,
        report=report,
    )


def _status(error: Exception) -> str:
    """Return `no_variant` for a NoVariantError."""
    return re.sub(r"(?<=.)([A-Z])", r"_\1", type(error).__name__.removesuffix("Error")).lower()
