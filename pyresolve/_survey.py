"""runtimes() and driver(): what is there, whatever pick() makes of it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import _elf, _judge, _overrides, _probe, _runtime, _sites
from ._environ import LIBRARY_PATH, parse_library_path
from ._types import Driver, Mode, Runtime, Status

if TYPE_CHECKING:
    from collections.abc import Mapping


def site(
    python: str | os.PathLike[str] | None,
    *,
    environ: Mapping[str, str],
    deadline: _probe.Deadline,
) -> _sites.Site:
    """Return the site of the workers' interpreter, by default of this one."""
    if python is None:
        return _sites.current()
    from . import _interpreter

    return _interpreter.site_of(python, environ=environ, deadline=deadline)


def driver(*, environ: Mapping[str, str] | None = None, timeout: float = 10.0) -> Driver:
    """Return the NVIDIA driver library that a process started in `environ` finds.

    It is asked for its version in a process of its own; nothing initialises it. `environ` defaults
    to os.environ, `timeout` is in seconds. Raises what check() raises.
    """
    base = dict(os.environ if environ is None else environ)
    deadline = _probe.Deadline(_overrides.timeout(base, timeout))
    answer = _probe.load([_runtime.DRIVER_SONAME], environ=base, deadline=deadline)
    trial = answer.trials[0]
    if trial.driver or trial.finished:
        return _explained(_judge.driver_of(trial), base)
    report = _judge.of_load(_runtime.DRIVER_SONAME, answer, trial, timeout=deadline.timeout)
    return Driver(problem=report.message)


def _explained(driver: Driver, environ: Mapping[str, str]) -> Driver:
    """Name the file that the loader skipped on its way, if there is one."""
    for element in parse_library_path(environ.get(LIBRARY_PATH)) if driver.path is None else ():
        path = os.path.join(os.path.abspath(element), _runtime.DRIVER_SONAME)  # noqa: PTH100, PTH118
        diagnosis = _elf.diagnose(_elf.read(path))
        if diagnosis and diagnosis.status is not Status.NOT_FOUND:
            return replace(driver, problem=diagnosis.message)
    return driver


def runtimes(
    *,
    python: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout: float = 10.0,
) -> tuple[Runtime, ...]:
    """Return every libcudart that is installed here, each asked for its version.

    First those in packages, then those in a conda prefix, LD_LIBRARY_PATH and the toolkit's
    directories. Each is loaded in a process of its own. `python` is the interpreter of the
    workers where it is not this one, `environ` defaults to os.environ, `timeout` is in seconds and
    holds for all. Raises what check() raises.
    """
    base = dict(os.environ if environ is None else environ)
    deadline = _probe.Deadline(_overrides.timeout(base, timeout))
    found = _runtime.installed(site(python, environ=base, deadline=deadline), base)
    if not found:
        return ()
    paths = [os.path.abspath(runtime.path) for runtime in found]  # noqa: PTH100  (links stay)
    answer = _probe.load(paths, environ=base, deadline=deadline)
    return tuple(
        _asked(runtime, path, answer, trial, deadline.timeout)
        for runtime, path, trial in zip(found, paths, answer.trials, strict=True)
    )


def _asked(
    runtime: Runtime, path: str, answer: _probe.Answer, trial: _probe.Trial, timeout: float
) -> Runtime:
    asked = _judge.runtime_of(trial)
    if asked and asked.version is None:
        problem = f"{path} does not answer cudaRuntimeGetVersion: it is no CUDA runtime"
        return replace(runtime, path=Path(path), problem=problem)
    if asked:
        return replace(runtime, path=Path(path), version=asked.version)
    bad = _judge.of_file(path, Mode.DLOPEN)
    report = bad or _judge.of_load(path, answer, trial, timeout=timeout)
    return replace(runtime, path=Path(path), problem=report.message)
