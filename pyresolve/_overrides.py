"""What the user sets: PYRESOLVE_PRELOAD, PYRESOLVE_CUDA, PYRESOLVE_TIMEOUT.

A variable wins over the argument of the same meaning: it is how an operator corrects a launcher
without touching its code.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from ._errors import OverrideError

if TYPE_CHECKING:
    from collections.abc import Mapping

PRELOAD = "PYRESOLVE_PRELOAD"
CUDA = "PYRESOLVE_CUDA"
TIMEOUT = "PYRESOLVE_TIMEOUT"


def timeout(environ: Mapping[str, str], argument: float) -> float:
    """Return the seconds that may be spent. Raises ValueError unless positive and finite."""
    text = environ.get(TIMEOUT)
    if not text:
        seconds = float(argument)
        if not _usable(seconds):
            raise ValueError(f"timeout is {argument!r}: give a positive number of seconds")
        return seconds
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not _usable(seconds):
        raise OverrideError(
            f"{TIMEOUT}={text!r} is no positive number of seconds: correct or unset it",
            variable=TIMEOUT,
            value=text,
        )
    return seconds


def major(environ: Mapping[str, str], argument: int | str | None) -> tuple[int, str] | None:
    """Return the CUDA major that the user set and where, None if there is none."""
    text = environ.get(CUDA)
    if text:
        return _major(text, CUDA), f"{CUDA}={text}"
    if argument is None:
        return None
    return _major(str(argument), "cuda"), f"cuda={argument!r}"


def preload(environ: Mapping[str, str]) -> str | None:
    """Return the file that the user set, None if there is none."""
    text = environ.get(PRELOAD)
    if text and not text.startswith("/"):
        raise OverrideError(
            f"{PRELOAD}={text!r} is no absolute path, which the workers need whatever directory"
            " they start in: write the path in full or unset it",
            variable=PRELOAD,
            value=text,
        )
    return text or None


def _usable(seconds: float) -> bool:
    return math.isfinite(seconds) and 0 < seconds <= 86400 * 365


def _major(text: str, variable: str) -> int:
    match = re.fullmatch(r"(?:cu)?(\d{1,2})(?:\.\d+)*", text.strip(), re.ASCII)
    if match and int(match[1]) > 0:
        return int(match[1])
    raise OverrideError(
        f"{variable}={text!r} names no CUDA version: write the major or the version, such as 12,"
        " 12.8 or cu12 (120 and cu128 could mean several things)",
        variable=variable,
        value=text,
    )
