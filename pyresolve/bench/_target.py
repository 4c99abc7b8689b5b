"""Which library is measured, and in which environment it loads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyresolve

_PRELOAD, _LIBRARY_PATH = "LD_PRELOAD", "LD_LIBRARY_PATH"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`path` loads in `environ`, which is the user's own, less preloads, and as `note` says."""

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
        reason = f"the hook does not load here ({choice.report.message})" if choice.report else ""
        change: dict[str, str] = {}
        for _ in range(2):
            report = pyresolve.check(choice, environ={**base, **change})
            if report.verdict is pyresolve.Verdict.OK:
                return Target(
                    path=str(choice),
                    what="the hook that pick() chooses",
                    note=None,
                    environ={**base, **change},
                )
            change = choice.env(base, pin="library_path")
            change.pop(_PRELOAD, None)
    except pyresolve.PyresolveError as error:
        reason = f"no hook is picked here ({error})"
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
