"""Pick the build of a GPU hook library that will really load in the workers, and prove it.

The names below are imported when they are first used: a launcher that imports pyresolve and does
not call it pays next to nothing.
"""

from __future__ import annotations

from ._imports import importing as _importing

TYPE_CHECKING = False  # type checkers know this name; the import of typing would cost 10 ms

if TYPE_CHECKING:
    from typing import Any

    from ._audit import Audit, Finding, audit
    from ._check.check import check
    from ._errors import (
        ConfigError,
        InterpreterError,
        NotCudaError,
        NotLoadableError,
        NoVariantError,
        OverrideError,
        ProbeError,
        PyresolveError,
        ResolverError,
        UnrepresentablePathError,
    )
    from ._model import (
        Driver,
        Evidence,
        LoadReport,
        Missing,
        Mode,
        Origin,
        Pin,
        Runtime,
        Source,
        Status,
        Verdict,
    )
    from ._pick.pick import Choice, pick
    from ._survey import driver, runtimes
    from .health.checks import Health
    from .health.monitor import HealthMonitor

__all__ = [
    "Audit",
    "Choice",
    "ConfigError",
    "Driver",
    "Evidence",
    "Finding",
    "Health",
    "HealthMonitor",
    "InterpreterError",
    "LoadReport",
    "Missing",
    "Mode",
    "NoVariantError",
    "NotCudaError",
    "NotLoadableError",
    "Origin",
    "OverrideError",
    "Pin",
    "ProbeError",
    "PyresolveError",
    "ResolverError",
    "Runtime",
    "Source",
    "Status",
    "UnrepresentablePathError",
    "Verdict",
    "audit",
    "check",
    "driver",
    "pick",
    "runtimes",
]

_HOME = {
    "Audit": "_audit",
    "Finding": "_audit",
    "Health": "health.checks",
    "HealthMonitor": "health.monitor",
    "audit": "_audit",
    "Choice": "_pick.pick",
    "check": "_check.check",
    "driver": "_survey",
    "pick": "_pick.pick",
    "runtimes": "_survey",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401  (whatever the name stands for)
    if name not in __all__:
        raise AttributeError(f"module 'pyresolve' has no attribute {name!r}")
    home = _HOME.get(name, "_errors" if name.endswith("Error") else "_model")
    try:
        with _importing:
            from importlib import import_module

            value = getattr(import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}._native":
            raise
        raise ImportError(
            f"{__path__[0]} is the source tree, where nothing is built: run pip install . and start"
            " Python in another directory, or with -P"
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
