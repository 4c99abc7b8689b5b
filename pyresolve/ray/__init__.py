"""Resolve on the node where a Ray worker starts: `pip install 'pyresolve-native[ray]'`.

The names below are imported when they are first used: what starts a worker needs none of Ray.
"""

from __future__ import annotations

from importlib.util import find_spec

from .._imports import importing

TYPE_CHECKING = False  # as in pyresolve itself

if TYPE_CHECKING:
    from ._environment import runtime_env
    from ._plugin import PreloadPlugin
    from ._survey import Node, Survey, survey

__all__ = ["Node", "PreloadPlugin", "Survey", "runtime_env", "survey"]

if find_spec("ray") is None:
    raise ImportError("pyresolve.ray needs Ray: install pyresolve-native with its extra 'ray'")

_HOME = {"PreloadPlugin": "_plugin", "runtime_env": "_environment"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'pyresolve.ray' has no attribute {name!r}")
    with importing:
        from importlib import import_module

        value = getattr(import_module(f".{_HOME.get(name, '_survey')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
