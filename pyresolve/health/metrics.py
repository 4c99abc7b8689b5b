"""Health as Prometheus metrics, for the text file and for the server."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import PyresolveError
from .._model import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .checks import Health

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text"
OPENMETRICS = f"{_OPENMETRICS}; version=1.0.0; charset=utf-8"

_REFUSED = {"q=0", "q=0.0", "q=0.00", "q=0.000"}

_HELP = {
    "pyresolve_health_verdict": "1 for the verdict on the check, 0 for the others.",
    "pyresolve_health_status": (
        "1 for the status behind the verdict, which is gone once it is another."
    ),
    "pyresolve_health_duration_seconds": "How long the check took when it was last made.",
    "pyresolve_health_last_run_timestamp_seconds": (
        "When the check was last made, in seconds since the epoch."
    ),
}


def text(results: Sequence[Health]) -> str:
    """Return the metrics in the text format of Prometheus, without timestamps."""
    samples = [sample for health in results for sample in _samples(health)]
    lines = []
    for name, meaning in _HELP.items():
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
        lines += [f"{name}{labels} {value!r}" for gauge, labels, value in samples if gauge == name]
    return "".join(f"{line}\n" for line in lines)


def exposition(results: Sequence[Health], accept: str) -> tuple[str, str]:
    """Return the metrics for an Accept header, and their content type.

    OpenMetrics if the header names it with any q but 0 (RFC 9110, 12.4.2). The version does not
    matter: gauges are the same in each.
    """
    kinds = [re.sub(r"\s", "", kind).split(";") for kind in accept.lower().split(",")]
    if any(kind == _OPENMETRICS and not _REFUSED & {*rest} for kind, *rest in kinds):
        return f"{text(results)}# EOF\n", OPENMETRICS
    return text(results), TEXT


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


def _samples(health: Health) -> Iterator[tuple[str, str, float]]:
    """Yield gauge, labels and value."""
    for verdict in Verdict:
        labels = _labels(check=health.name, verdict=verdict.value)
        yield "pyresolve_health_verdict", labels, float(health.verdict is verdict)
    labels = _labels(check=health.name)
    yield "pyresolve_health_status", _labels(check=health.name, status=health.status), 1.0
    yield "pyresolve_health_duration_seconds", labels, health.elapsed
    yield "pyresolve_health_last_run_timestamp_seconds", labels, health.time


def _labels(**labels: str) -> str:
    pairs = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
    return f"{{{pairs}}}"


def _escaped(text: str) -> str:
    printable = text.encode("utf-8", "backslashreplace").decode()
    return printable.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
