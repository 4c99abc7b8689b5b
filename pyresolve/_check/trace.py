"""What the loader would map for a program or a library, without running anything of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .._process import helper

if TYPE_CHECKING:
    from collections.abc import Mapping

_MISSING = re.compile(r"^\t(?P<name>.+) => not found$", re.M)
_FOUND = re.compile(r"^\t(?:.+ => )?(?P<path>/.+) \(0x[0-9a-f]+\)$", re.M)


def trace(
    program: str, loader: str, *, environ: Mapping[str, str], deadline: helper.Deadline
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the loader does not find for `program`, and the files that it finds.

    It only lists them: no constructor runs (ld.so(8), LD_TRACE_LOADED_OBJECTS).
    """
    listing = {**environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    text = helper.run([loader, program], environ=listing, deadline=deadline).captured
    missing = dict.fromkeys(match["name"] for match in _MISSING.finditer(text))
    found = dict.fromkeys(match["path"] for match in _FOUND.finditer(text))
    return tuple(missing), tuple(found)
