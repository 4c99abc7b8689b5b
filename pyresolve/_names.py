"""What the names of libraries, hooks and versions mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER_SONAME = "libcuda.so.1"

_RUNTIME = re.compile(r"libcudart\.so\.(\d+)(?:\.\d+)*")


def runtime_major(soname: str) -> int | None:
    """Return the major in a libcudart's SONAME, None for any other name."""
    match = _RUNTIME.fullmatch(soname)
    return int(match[1]) if match else None


def build_pattern(stem: str) -> re.Pattern[str]:
    """Return the pattern of the file names of a hook's builds; its group is the number of _cuNN."""
    # torch_x.so, torch_x.abi3.so, torch_x_cu13.abi3.so, torch_x_cu13.cpython-312-x86_64-....so
    return re.compile(rf"{re.escape(stem)}(?:_cu(\d+))?(?:\.[\w-]+)?\.so")


def same_stem(stem: str) -> Callable[[str], bool]:
    """Return a function that tells whether a file name is a build of this hook."""
    pattern = build_pattern(stem)
    return lambda name: pattern.fullmatch(name) is not None


def dotted(version: int | None) -> str | None:
    """Return `12.8` for 12080."""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"
