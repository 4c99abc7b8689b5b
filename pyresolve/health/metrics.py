"""Health as Prometheus metrics: one description of them for the text file and for the server."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import PyresolveError
from .._model import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .checks import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One gauge: a value for each set of labels, which all have the same names."""

    name: str
    help: str
    samples: tuple[tuple[dict[str, str], float], ...]


def families(results: Sequence[Health]) -> tuple[Family, ...]:
    """Return what Prometheus is told about each check."""
    return (
        Family(
            name="pyresolve_health_verdict",
            help="1 for the verdict on the check, 0 for the others.",
            samples=tuple(
                (
                    {"check": health.name, "verdict": verdict.value},
                    float(health.verdict is verdict),
                )
                for health in results
                for verdict in Verdict
            ),
        ),
        Family(
            name="pyresolve_health_status",
            help="1 for the status behind the verdict, which is gone once it is another.",
            samples=tuple(
                ({"check": health.name, "status": health.status}, 1.0) for health in results
            ),
        ),
        Family(
            name="pyresolve_health_duration_seconds",
            help="How long the check took when it was last made.",
            samples=tuple(({"check": health.name}, health.elapsed) for health in results),
        ),
        Family(
            name="pyresolve_health_last_run_timestamp_seconds",
            help="When the check was last made, in seconds since the epoch.",
            samples=tuple(({"check": health.name}, health.time) for health in results),
        ),
    )


def text(results: Sequence[Health]) -> str:
    """Return the metrics in the text format of Prometheus, without timestamps."""
    return "".join(f"{line}\n" for family in families(results) for line in _lines(family))


def write(path: Path, content: str) -> None:
    """Replace the file that the textfile collector reads, as a whole or not at all.

    Raises PyresolveError if that fails, and if `path` is a link, a device or anything else than a
    regular file: to replace it would destroy it.
    """
    with suppress(OSError):  # it is not there, or what follows fails in the same way
        if not stat.S_ISREG(path.lstat().st_mode):
            raise PyresolveError(
                f"the metrics cannot be written to {path}, which is no regular file: name a file"
                " that may be replaced, or leave --output out for metrics on stdout"
            )
    try:
        # Not *.prom: the collector would read it half written.
        descriptor, scratch = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=".tmp"
        )
        try:
            with open(descriptor, "w", encoding="utf-8", newline="\n") as file:  # noqa: PTH123
                file.write(content)
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # the collector is another user
                os.fsync(file.fileno())
            Path(scratch).replace(path)
        except BaseException:
            Path(scratch).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PyresolveError(
            f"the metrics cannot be written to {path} ({error.strerror}); what was there before is"
            " untouched"
        ) from error


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} gauge"
    for labels, value in family.samples:
        pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{{{pairs}}} {value!r}"


def _escaped(text: str) -> str:
    printable = text.encode("utf-8", "backslashreplace").decode()
    return printable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
