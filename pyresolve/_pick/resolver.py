"""The package's own resolver. No other module may import the package."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path

from .._errors import ResolverError
from .._imports import importing


class Ask(str, Enum):
    """When to ask the package's own resolver."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def ask(package: str, stem: str, when: Ask) -> Path | None:
    """Return the file that the package itself would preload; None if it has no such function.

    AUTO asks only if that costs and loads nothing: torch is imported here already, and built for
    CUDA. Otherwise the function would import torch, or open a libcudart in this process.

    A function that is there and raises is ResolverError: its reason must reach the user.
    """
    if when is Ask.NEVER or (when is Ask.AUTO and not _torch_is_here()):
        return None
    name = f"{package}.utils"
    try:
        with importing:
            import importlib

            function = getattr(importlib.import_module(name), "get_binary_path_from_package", None)
    except ImportError:
        return None
    except Exception as error:
        raise ResolverError(f"the import of {name} failed: {error!r}") from error
    if function is None:
        return None
    try:
        return Path(function(stem)).absolute()
    except Exception as error:
        raise ResolverError(
            f"{name}.get_binary_path_from_package({stem!r}) raised {error!r}: fix what it says, or"
            ' go without it (resolver="never")'
        ) from error


def _torch_is_here() -> bool:
    version = getattr(sys.modules.get("torch"), "version", None)
    return bool(getattr(version, "cuda", None))
