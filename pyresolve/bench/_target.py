"""Which library is measured, and in which environment it loads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyresolve

_PRELOAD = "LD_PRELOAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`path` is `what` it is and loads in `environ`; `note` says why it is not the hook."""

    path: str
    what: str
    note: str | None
    environ: dict[str, str]


def choose() -> Target:
    """Return the hook that pick() chooses, else a libcudart, else libm: what loads here.

    Raises PyresolveError where not even that loads.
    """
    base = {name: value for name, value in os.environ.items() if name != _PRELOAD}
    try:
        choice = pyresolve.pick()
        pinned = choice.env(base, pin="library_path")
        pinned.pop(_PRELOAD, None)
        for change in ({}, pinned):
            report = pyresolve.check(choice, environ={**base, **change})
            if report.verdict is pyresolve.Verdict.OK:
                return Target(
                    path=str(choice),
                    what="the hook that pick() chooses",
                    note=None,
                    environ={**base, **change},
                )
        reason = f"and not the hook, which does not load here: {report.message}"
    except pyresolve.PyresolveError as error:
        reason = f"and not a hook, since none is picked here: {error}"
    for runtime in pyresolve.runtimes():
        if runtime.problem is None:
            return _plain(runtime.path, "a CUDA runtime that is installed here", reason, base)
    report = pyresolve.check("libm.so.6", environ=base)
    for path in report.loaded:
        if path.name == "libm.so.6":
            return _plain(path, "the C library's libm: nothing of CUDA is here", reason, base)
    raise pyresolve.ProbeError(f"not even libm.so.6 loads here: {report.message}")


def _plain(path: Path, what: str, note: str, environ: dict[str, str]) -> Target:
    return Target(path=str(path), what=what, note=note, environ=environ)
