"""runtimes() and driver(): what is there, whatever pick() makes of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import _overrides
from ._check import report as reports
from ._disk import cuda, driver as drivers, fault
from ._disk.files import absolute
from ._environ import LIBRARY_PATH, parse_library_path
from ._model import Driver, Mode, Runtime, Status
from ._names import DRIVER_SONAME
from ._process import helper, interpreter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def driver(*, environ: Mapping[str, str] | None = None, timeout: float = 10.0) -> Driver:
    """Return the NVIDIA driver library that a process started in `environ` finds.

    It is asked for its version in another process; nothing initialises it. `environ` defaults
    to os.environ, `timeout` is in seconds. Raises what check() raises.
    """
    base = dict(os.environ if environ is None else environ)
    deadline = helper.Deadline(_overrides.timeout(base, timeout))
    answer = helper.attempt([DRIVER_SONAME], environ=base, deadline=deadline)
    trial = answer.trials[0]
    found = reports.driver_of(trial)
    if found.path or found.absent:
        return _explained(found, base)
    report = reports.of_trial(DRIVER_SONAME, Mode.DLOPEN, answer, trial, timeout=deadline.timeout)
    return _explained(Driver(problem=report.message), base)


def _explained(driver: Driver, environ: Mapping[str, str]) -> Driver:
    """Name the file that the loader skipped on its way, if there is one."""
    for element in parse_library_path(environ.get(LIBRARY_PATH)) if driver.path is None else ():
        path = os.path.join(absolute(element), DRIVER_SONAME)  # noqa: PTH118
        diagnosis = fault.find(path)
        if diagnosis and diagnosis.status is not Status.NOT_FOUND:
            return replace(driver, problem=diagnosis.message)
    if driver.absent:
        hint, _ = drivers.where(environ)
        return replace(driver, problem=f"the loader does not find {DRIVER_SONAME}{hint}")
    return driver


def runtimes(
    *,
    python: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout: float = 10.0,
) -> tuple[Runtime, ...]:
    """Return every libcudart that is installed here, each asked for its version.

    First those in packages, then those in a conda prefix, LD_LIBRARY_PATH and the toolkit's
    directories. Each is loaded in its own process. `python` is the interpreter of the
    workers if it is not this one, `environ` defaults to os.environ, `timeout` is in seconds and
    holds for all. Raises what check() raises.
    """
    base = dict(os.environ if environ is None else environ)
    deadline = helper.Deadline(_overrides.timeout(base, timeout))
    site = interpreter.site_of(python, environ=base, deadline=deadline)
    return versions(cuda.installed(site, base), environ=base, deadline=deadline)


def versions(
    found: Sequence[Runtime], *, environ: Mapping[str, str], deadline: helper.Deadline
) -> tuple[Runtime, ...]:
    """Return libcudart files with the version that each answers."""
    if not found:
        return ()
    paths = [absolute(os.fspath(runtime.path)) for runtime in found]
    answer = helper.attempt(paths, environ=environ, deadline=deadline)
    return tuple(
        _asked(runtime, path, answer, trial, deadline.timeout)
        for runtime, path, trial in zip(found, paths, answer.trials, strict=True)
    )


def _asked(
    runtime: Runtime, path: str, answer: helper.Answer, trial: helper.Trial, timeout: float
) -> Runtime:
    asked = reports.runtime_of(trial)
    if asked and asked.version is None:
        problem = f"{path} does not answer cudaRuntimeGetVersion: it is no CUDA runtime"
        return replace(runtime, path=Path(path), problem=problem)
    if asked:
        return replace(runtime, path=Path(path), version=asked.version)
    report = reports.of_trial(path, Mode.DLOPEN, answer, trial, timeout=timeout)
    return replace(runtime, path=Path(path), problem=report.message)
