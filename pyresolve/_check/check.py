"""check(): try a library in its own process, then name the cause."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _overrides
from .._disk.elf import printable
from .._disk.files import absolute
from .._environ import PRELOAD, delta, join_preload, literal, parse_preload
from .._errors import UnrepresentablePathError
from .._imports import importing
from .._model import LoadReport, Mode, Status, Verdict
from .._process import helper, interpreter
from . import report as reports

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXPLAINED = (
    Status.MISSING_DEPENDENCY,
    Status.UNDEFINED_SYMBOL,
    Status.VERSION_MISMATCH,
    Status.CRASHED,
    Status.NOT_LOADABLE,
)
"""The causes about which explain() finds out more."""

ORDER_MATTERS = (Status.CRASHED, Status.EXITED, Status.BYPASSED)
"""The causes of which another order of LD_PRELOAD may be free."""


def check(
    path: str | os.PathLike[str],
    *,
    mode: str = "dlopen",
    after: Sequence[str | os.PathLike[str]] = (),
    python: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout: float = 10.0,
) -> LoadReport:
    """Try to load the library at `path` in its own process and report the result.

    `mode` is "dlopen" (opened by a running process; LD_PRELOAD of `environ` is left out) or
    "preload" (put first into LD_PRELOAD before the process starts, unless it is in there). `after`
    are libraries that the process opens before, in this order, as an import does; only with
    "dlopen". `python` is the interpreter of a Python extension, default the running one: what it
    defines is read from its files. `environ` is the environment to try it in, default os.environ.
    `timeout` is in seconds and holds whatever the library does. A text without a slash is searched
    as the loader searches it.

    A library that does not load is a result, not an error. Raises ValueError for an empty path and
    for a mode or a timeout that means nothing, OverrideError for such a PYRESOLVE_TIMEOUT,
    ProbeError if no process could be started to find out, and UnrepresentablePathError if
    LD_PRELOAD cannot hold the path.
    """
    environ = os.environ if environ is None else environ
    chosen = mode_of(mode)
    if after and chosen is Mode.PRELOAD:
        raise ValueError("nothing is opened before a preload: give after= with mode='dlopen'")
    deadline = helper.Deadline(_overrides.timeout(environ, timeout))
    name = _name(path)
    before = [_name(library) for library in after]
    report = _try(name, chosen, before, python=python, environ=environ, deadline=deadline)
    if report.verdict is Verdict.FAIL and before:  # a trace would not have them
        report = _blamed(report, before, environ, deadline)
    elif report.status in EXPLAINED:
        with importing:
            from .._disk import site
            from .explain import Circumstances, explain

        load = None
        if chosen is Mode.PRELOAD:
            environ = {**environ, **_preloading(name, environ)}
        else:
            load = partial(_try, name, chosen, python=python, environ=environ, deadline=deadline)
        where = Circumstances(environ=environ, site=site.current(), deadline=deadline, load=load)
        report = explain(report, where)
    if os.fspath(path) == name and report.elapsed:
        return report
    return replace(report, path=Path(path), elapsed=deadline.spent())


def _try(
    name: str,
    mode: Mode,
    before: Sequence[str],
    *,
    python: str | os.PathLike[str] | None,
    environ: Mapping[str, str],
    deadline: helper.Deadline,
) -> LoadReport:
    nowhere = "/" in name and not name.startswith("/")  # the current directory was deleted
    if (nowhere or not helper.can_try(name)) and (bad := reports.of_file(name, mode)):
        return bad
    if mode is Mode.PRELOAD:
        try:
            change = _preloading(name, environ)
        except UnrepresentablePathError:
            if "/" in name and (bad := reports.of_file(name, mode)):
                return bad
            raise
        report = rehearse(name, change=change, environ=environ, deadline=deadline)
        return _in_other_order(report, name, environ, deadline)
    load = partial(_load, name, before, environ, deadline)
    report = load()
    if report.status is not Status.NO_PYTHON:
        return report
    with importing:
        from . import extension

    executable = interpreter.resolve(python, environ)
    return extension.check(report, executable, load=load, environ=environ, deadline=deadline)


def _load(
    name: str,
    before: Sequence[str],
    environ: Mapping[str, str],
    deadline: helper.Deadline,
    python: str = "",
) -> LoadReport:
    answer = helper.attempt(
        [name], before=before, python=python, environ=environ, deadline=deadline
    )
    return reports.of_trial(
        name, Mode.DLOPEN, answer, answer.trials[0], timeout=deadline.timeout, environ=environ
    )


def _blamed(
    report: LoadReport,
    before: Sequence[str],
    environ: Mapping[str, str],
    deadline: helper.Deadline,
) -> LoadReport:
    """Name the library of `before` that fails by itself, if there is one."""
    for count, library in enumerate(before):
        first = _load(library, before[:count], environ, deadline)
        if first.verdict is Verdict.FAIL:
            message = f"{library}, which is opened before {report.path}, fails: {first.message}"
            return replace(first, path=report.path, message=message)
    return report


def _in_other_order(
    report: LoadReport, name: str, environ: Mapping[str, str], deadline: helper.Deadline
) -> LoadReport:
    """Say if a preload works behind the others, and only there."""
    others = parse_preload(environ.get(PRELOAD))
    if report.status not in ORDER_MATTERS or not others or name in others or "/" not in name:
        return report
    change = {PRELOAD: "", **delta(environ, hook=name, ahead=others)}
    again = rehearse(name, change=change, environ=environ, deadline=deadline)
    if again.verdict is Verdict.FAIL:
        return report
    message = (
        f"{name} does not work ahead of {', '.join(others)} ({report.detail}), and works behind:"
        f" write LD_PRELOAD={change[PRELOAD]}"
    )
    return replace(report, message=printable(message))


def rehearse(
    hook: str,
    *,
    change: Mapping[str, str],
    environ: Mapping[str, str],
    deadline: helper.Deadline,
    next_library: str = "",
) -> LoadReport:
    """Start a process in `environ` with `change`, whose LD_PRELOAD names `hook`.

    It then opens `next_library`, if there is one: torch's.
    """
    answer = helper.attempt(
        [],
        hook=hook,
        next_library=next_library,
        change=change,
        environ=environ,
        deadline=deadline,
    )
    final = {**environ, **change}
    return of_rehearsal(
        hook, answer, environ=final, timeout=deadline.timeout, next_library=next_library
    )


def of_rehearsal(
    hook: str,
    answer: helper.Answer,
    *,
    environ: Mapping[str, str],
    timeout: float,
    next_library: str = "",
) -> LoadReport:
    """Report on the rehearsal in an answer, which is its last trial, made in `environ`."""
    own = (hook, os.path.basename(hook))  # noqa: PTH119
    others = [item for item in parse_preload(environ[PRELOAD]) if item not in own]
    return reports.of_trial(
        hook,
        Mode.PRELOAD,
        answer,
        answer.trials[-1],
        timeout=timeout,
        environ=environ,
        others=others,
        next_library=next_library,
    )


def mode_of(mode: str) -> Mode:
    """Return the mode that a text means. Raises ValueError."""
    try:
        return Mode(mode)
    except ValueError:
        known = " or ".join(repr(known.value) for known in Mode)
        raise ValueError(f"mode is {mode!r}: give {known}") from None


def _name(path: str | os.PathLike[str]) -> str:
    name = os.fspath(path)
    if not isinstance(name, str):
        raise TypeError(f"expected a path as text, not {name!r}: use os.fsdecode")
    if not name:
        raise ValueError("path is empty: name a library")
    # The loader searches for a text without a slash; a path object always means a file. Paths are
    # not normalized: `link/..` depends on where the link leads.
    if "/" in name or not isinstance(path, str):
        return absolute(name)
    return name


def _preloading(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables, LD_PRELOAD at least, with which `name` is preloaded."""
    preloads = parse_preload(environ.get(PRELOAD))
    if name in preloads:
        return {PRELOAD: environ[PRELOAD]}
    if "/" in name:
        return {PRELOAD: environ.get(PRELOAD, ""), **delta(environ, hook=name)}
    return {PRELOAD: join_preload((literal(name, PRELOAD, name), *preloads))}
