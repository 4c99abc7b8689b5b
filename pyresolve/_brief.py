"""One line of at most 80 characters: what kubelets, problem detectors and pagers show.

`pyresolve-probe` writes the same lines in C (native/brief.c). Pure.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._types import Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._types import LoadReport

WIDTH = 80  # characters; node-problem-detector cuts a message there by default (max_output_length)

_WORST_FIRST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.OK)
_CUT = "..."
_NAME_MIN = 20  # of a name that has to give way to the detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What one check came to: `name` is that of what was checked, `detail` may be empty."""

    name: str
    verdict: Verdict
    status: str
    detail: str = ""


def outcome(report: LoadReport) -> Outcome:
    """Return what a trial load came to, under the file's own name."""
    return Outcome(
        name=os.path.basename(report.path),  # noqa: PTH119
        verdict=report.verdict,
        status=report.status.value,
        detail=report.detail,
    )


def line(outcomes: Sequence[Outcome]) -> str:
    """Return the worst of the outcomes, the first of several, and how many others are not OK."""
    worst = min(outcomes, key=lambda outcome: _WORST_FIRST.index(outcome.verdict))
    if worst.verdict is Verdict.OK and len(outcomes) > 1:
        return f"OK {len(outcomes)} checks"
    others = sum(outcome.verdict is not Verdict.OK for outcome in outcomes) - 1
    more = f" and {others} more" if others > 0 else ""
    head = f"{worst.verdict.name} {worst.status}"
    room = WIDTH - len(head) - len(": ") - len(" ()") - len(more)
    detail, name = _plain(worst.detail), _plain(worst.name)
    detail = _shortened(detail, room - min(len(name), _NAME_MIN))
    name = _shortened(name, room - len(detail))
    return f"{head}{': ' if detail else ''}{detail} ({name}){more}"


def _plain(text: str) -> str:
    return "".join(chr(c) if 0x20 <= c < 0x7F else "?" for c in os.fsencode(text))


def _shortened(text: str, width: int) -> str:
    """Cut from the middle: libraries are told apart by how their names begin and end."""
    if len(text) <= width:
        return text
    kept = width - len(_CUT)
    return text[: kept // 2] + _CUT + text[len(text) - (kept - kept // 2) :]
