"""One line of at most 80 characters about several checks. It is written by native/line.c."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._model import Verdict
from .._native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._model import LoadReport

_VERDICTS = {Verdict.OK: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}  # enum pyr_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a line says of one check: `name` is what was checked, `detail` may be empty."""

    name: str
    verdict: Verdict
    status: str
    detail: str = ""


def summary(report: LoadReport) -> Summary:
    """Return what a line says of one library."""
    return Summary(
        name=os.fspath(report.path),
        verdict=report.verdict,
        status=report.status.value,
        detail=report.detail,
    )


def summary_line(checks: Sequence[Summary]) -> str:
    """Return the worst of the checks, the first of several, and how many others are not OK."""
    array = ffi.new("struct pyr_line_check[]", len(checks))
    texts = []  # must live as long as the array
    for item, check in zip(array, checks, strict=True):
        item.verdict = _VERDICTS[check.verdict]
        for field in ("name", "status", "detail"):
            text = ffi.new("char[]", os.fsencode(getattr(check, field)))
            setattr(item, field, text)
            texts.append(text)
    line = ffi.new("char[]", lib.PYR_LINE_WIDTH + 1)
    lib.pyr_line_write(array, len(checks), line)
    return bytes(ffi.string(line)).decode("ascii")
