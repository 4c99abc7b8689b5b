"""check(): try a library in a process of its own, then name the cause."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import _causes, _elf, _judge, _overrides, _probe
from ._environ import (
    LIBRARY_PATH,
    PRELOAD,
    delta,
    join_preload,
    literal,
    parse_library_path,
    parse_preload,
)
from ._runtime import DRIVER_SONAME, copies, supplier
from ._types import LoadReport, Missing, Mode, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._sites import Site
    from ._types import Diagnosis, ElfFacts

EXPLAINED = (Status.MISSING_DEPENDENCY, Status.CRASHED, Status.NOT_LOADABLE)
"""The causes about which explain() finds out more."""

_SYSTEM_PLACES = "the loader's cache and default directories"


def check(
    path: str | os.PathLike[str],
    *,
    mode: str = "dlopen",
    environ: Mapping[str, str] | None = None,
    timeout: float = 10.0,
) -> LoadReport:
    """Try to load the library at `path` in a process of its own and say what came of it.

    `mode` is "dlopen" (opened by a running process; LD_PRELOAD of `environ` is left out) or
    "preload" (put first into LD_PRELOAD before the process starts, unless it is in there).
    `environ` is the environment to try it in, default os.environ. `timeout` is in seconds and holds
    whatever the library does. A text without a slash is searched as the loader searches it.

    A library that does not load is a result, not an error. Raises ValueError for a mode or a
    timeout that means nothing, OverrideError for such a PYRESOLVE_TIMEOUT, ProbeError where no
    process could be started to find out, and UnrepresentablePathError where LD_PRELOAD cannot hold
    the path.
    """
    environ = os.environ if environ is None else environ
    chosen = mode_of(mode)
    deadline = _probe.Deadline(_overrides.timeout(environ, timeout))
    name = _name(path)
    report = _judge.of_file(name, chosen)
    if report is None and chosen is Mode.DLOPEN:
        report = load(name, environ=environ, deadline=deadline)
    elif report is None:
        environ = _preloading(name, environ)
        report = rehearse(name, environ=environ, deadline=deadline)
    if report.status in EXPLAINED:
        from . import _sites

        report = explain(report, environ=environ, site=_sites.current(), deadline=deadline)
    if os.fspath(path) == name and report.elapsed:
        return report
    return replace(report, path=Path(path), elapsed=deadline.spent())


def load(name: str, *, environ: Mapping[str, str], deadline: _probe.Deadline) -> LoadReport:
    """Open `name` with dlopen in a fresh process."""
    answer = _probe.load([name], environ=environ, deadline=deadline)
    return _judge.of_load(name, answer, answer.trials[0], timeout=deadline.timeout)


def rehearse(
    hook: str,
    *,
    environ: Mapping[str, str],
    deadline: _probe.Deadline,
    expected: Path | None = None,
    driver_absent: bool = False,
) -> LoadReport:
    """Start a process in `environ`, whose LD_PRELOAD names `hook`, and see whether it took effect.

    `expected` is the libcudart that the process is to map. Where the driver is absent, which is
    either known or found out here, it is started with the stub driver.
    """

    def trial(variables: Mapping[str, str], *, stub: bool) -> tuple[_probe.Answer, LoadReport]:
        if stub:
            variables = {**variables, PRELOAD: f"{variables[PRELOAD]}:{_probe.STUB_PRELOAD}"}
        answer = _probe.preload(hook, environ=variables, deadline=deadline)
        report = _judge.of_preload(
            hook, answer, timeout=deadline.timeout, expected=expected, stub=stub
        )
        return answer, report

    answer, report = trial(environ, stub=driver_absent)
    if not driver_absent and _lacks(report, DRIVER_SONAME):
        answer, report = trial(environ, stub=True)
    own = (hook, os.path.basename(hook))  # noqa: PTH119
    others = [item for item in parse_preload(environ.get(PRELOAD)) if item not in own]
    if report.status is Status.TIMED_OUT:
        return _judge.of_others(report, others)
    if not answer.trials[0].started:
        without = {**environ, PRELOAD: join_preload(others)}
        alone = _probe.preload(hook, environ=without, deadline=deadline)
        if not alone.trials[0].started:
            return _judge.of_broken_environment(
                hook, Mode.PRELOAD, alone, timeout=deadline.timeout, culprit=_culprit(others)
            )
    return report


def _culprit(preloads: Sequence[str]) -> str | None:
    """Say which preload is unusable, or which there are where all of them look sound."""
    for item in preloads:
        if "/" in item and (report := _judge.of_file(item, Mode.PRELOAD)):
            return f"LD_PRELOAD holds a file that is unusable: {report.message}"
    return f"look at what else LD_PRELOAD holds: {', '.join(preloads)}" if preloads else None


def explain(
    report: LoadReport, *, environ: Mapping[str, str], site: Site, deadline: _probe.Deadline
) -> LoadReport:
    """Look for more about a failure than one trial shows; for a report whose status is EXPLAINED.

    All that is missing, where it was searched and where it is; the file that broke under the
    loader's hands.
    """
    target = os.fspath(report.path)
    if report.status is not Status.MISSING_DEPENDENCY:
        broken = _broken_file(target, environ)
        return _judge.with_broken_file(report, broken) if broken else report
    loader = _elf.read(_probe.HELPER).interpreter
    names = [missing.name for missing in report.missing]
    found: Sequence[str] = ()
    if loader and "/" in target:
        # Traced as the loader will see it: opened in a process without preloads, or as a preload.
        preload = report.mode is Mode.PRELOAD
        variables = {k: v for k, v in environ.items() if preload or k != PRELOAD}
        program = _probe.HELPER if preload else target
        words = _probe.trace(program, environ=variables, loader=loader, deadline=deadline).words
        names = list(_causes.missing_in_trace(words)) or names
        found = _causes.found_in_trace(words)
    users = [_elf.read(path) for path in (target, *found)]
    for user in users[1:]:
        if diagnosis := _elf.diagnose(user):
            return _judge.with_broken_file(report, diagnosis)
    missing = tuple(_missing(name, users, environ, site) for name in names)
    return _judge.with_missing(report, missing)


def _broken_file(target: str, environ: Mapping[str, str]) -> Diagnosis | None:
    """Return what is wrong with a file that `target` needs and the loader would take first."""
    pending, seen = [target], {target}
    while pending:
        user = _elf.read(pending.pop())
        if diagnosis := _elf.diagnose(user):
            return diagnosis
        places = [place for place in _searched(user, environ) if place != _SYSTEM_PLACES]
        for soname in user.needed:
            paths = (os.path.join(place, soname) for place in places)  # noqa: PTH118
            path = next((path for path in paths if os.path.exists(path)), None)  # noqa: PTH110
            if path and path not in seen:
                seen.add(path)
                pending.append(path)
    return None


def _missing(
    name: str, users: Sequence[ElfFacts], environ: Mapping[str, str], site: Site
) -> Missing:
    user = next((facts for facts in users if name in facts.needed), None)
    lying = copies(name, site, environ)
    broken = {
        path: diagnosis.message for path in lying if (diagnosis := _elf.diagnose(_elf.read(path)))
    }
    return Missing(
        name=name,
        needed_by=os.fspath(user.path) if user else None,
        searched=_searched(user, environ),
        elsewhere=tuple(path for path in lying if path not in broken),
        unusable=tuple(broken.values()),
        supplier=supplier(name),
    )


def _searched(user: ElfFacts | None, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return where the loader looks for what `user` needs, in its order (ld.so(8))."""
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    variable = [element or os.curdir for element in elements]
    if user is None:
        return (*variable, _SYSTEM_PLACES)
    origin = os.fspath(user.path.parent)
    rpath = [entry.replace("$ORIGIN", origin) for entry in user.rpath]
    runpath = [entry.replace("$ORIGIN", origin) for entry in user.runpath]
    return (*rpath, *variable, *runpath, _SYSTEM_PLACES)


def _lacks(report: LoadReport, name: str) -> bool:
    return any(missing.name == name for missing in report.missing)


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
    # A text is the loader's to search where it has no slash, a path object always means a file. Not
    # normalized: `link/..` is not where it seems to be.
    if "/" in name or not isinstance(path, str):
        return os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118
    return name


def _preloading(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    preloads = parse_preload(environ.get(PRELOAD))
    if name in preloads:
        return dict(environ)
    if "/" in name:
        return {**environ, **delta(environ, hook=name)}
    return {**environ, PRELOAD: join_preload((literal(name, PRELOAD, name), *preloads))}
