"""pyresolve bench: what a probe costs on this machine, compared with the alternatives."""

from __future__ import annotations

import json
import re
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ._output import print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ..bench._compare import Run
    from ..bench._measure import Plan, Progress

_INTERRUPTED = 130
_RESIDENT = (0, 1 << 30, 4 << 30)
_THREADS = (1, 8)
_SPARE = 256 << 20  # bytes that are left to everything else
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_INTERVAL = 5.0  # seconds between two lines of progress if stderr is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("--quick", action="store_true", help="a first look, with fewer runs")
    parser.add_argument(
        "--runs", type=int, metavar="N", help="N runs of everything (default: fewer of the slow)"
    )
    parser.add_argument(
        "--rss",
        metavar="SIZES",
        help="resident memory of the caller, as in 0,1G,4G (the default, as far as it fits)",
    )
    parser.add_argument(
        "--threads", metavar="COUNTS", help="threads that check at the same time (default: 1,8)"
    )
    parser.add_argument("--json", dest="document", type=Path, metavar="FILE", help="every sample")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="cost against resident memory, .svg or .png"
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="OLD",
        help="a file that --json wrote: print what became slower, and exit 1 if anything did",
    )


def run(arguments: argparse.Namespace) -> int:
    """Refuse what cannot be done, measure, print the table, then write the files."""
    from ..bench import _compare, _machine, _measure, _plot, _report

    notes: list[str] = []
    plan = _plan(arguments, _machine.free_memory(), notes)
    if arguments.plot:
        _plot.require(arguments.plot)
    old = _compare.load(arguments.compare) if arguments.compare else None
    for path in (arguments.document, arguments.plot):
        _require_writable(path)
    for note in notes:
        print_text(f"pyresolve: {note}", to_stderr=True)
    with _measure.Interrupt() as interrupt:
        machine, target = _machine.look(), _machine.choose()
        if old and old.target != Path(target.path).name:
            raise ValueError(
                f"{arguments.compare} measured {old.target}, but {Path(target.path).name} would be"
                " measured here: their costs cannot be compared"
            )
        with _progress() as progress:
            result = _measure.measure(
                plan, machine=machine, target=target, interrupt=interrupt, progress=progress
            )
        document = _report.document(result)
        print_text(_report.table(document))
        sys.stdout.flush()  # before the files, so that a failed write loses nothing
        written = _write(arguments, document)
    if not result.complete:
        return _INTERRUPTED
    compared = _compared(old, _compare.run_of(document)) if old else 0
    return compared if written else 1


def _plan(arguments: argparse.Namespace, free: int, notes: list[str]) -> Plan:
    from ..bench._measure import FULL, QUICK

    plan = replace(
        QUICK if arguments.quick else FULL,
        threads=_counts(arguments.threads) if arguments.threads else _THREADS,
        resident=_resident(arguments.rss, free, notes),
    )
    runs = arguments.runs
    if runs is None:
        return plan
    if runs < 1:
        raise ValueError(f"--runs is {runs}: give at least 1")
    return replace(plan, runs=runs, growth_runs=runs, thread_rounds=runs, budget=None)


def _resident(text: str | None, free: int, notes: list[str]) -> tuple[int, ...]:
    """Return the sizes to hold, all at the same time; of the default those that fit."""
    from ..bench._report import size

    if text is None:
        fit = [one for at, one in enumerate(_RESIDENT) if _needed(_RESIDENT[: at + 1]) <= free]
        notes += [
            f"not measured with {size(one)} resident: {size(free)} are free here"
            for one in _RESIDENT[len(fit) :]
        ]
        return tuple(fit)
    sizes = tuple(sorted({_size(word) for word in text.split(",")}))
    if _needed(sizes) > free:
        raise ValueError(
            f"--rss {text} needs {size(_needed(sizes))} at the same time, {size(_SPARE)} of it to"
            f" stay free, but {size(free)} are free here: give smaller sizes"
        )
    return sizes


def _needed(sizes: tuple[int, ...]) -> int:
    """Return what holding these takes, page tables included."""
    return sum(sizes) + sum(sizes) // 100 + _SPARE


def _size(word: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)(?:iB)?", word.strip(), re.ASCII)
    if not match:
        raise ValueError(f"--rss has {word!r}: give sizes such as 0,512M,4G")
    return int(match[1]) * _UNITS[match[2]]


def _counts(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,3}", word, re.ASCII) for word in words):
        raise ValueError(f"--threads is {text!r}: give counts from 1 to 9999, such as 1,8")
    return tuple(sorted(set(map(int, words))))


def _require_writable(path: Path | None) -> None:
    """Raise ValueError if the file cannot be written, before minutes of measuring."""
    if path is None:
        return
    existed = path.exists()
    try:
        with path.open("ab"):
            pass
        if not existed:
            path.unlink()
    except OSError as error:
        raise ValueError(
            f"{path} cannot be written ({error.strerror}): give another file"
        ) from None


def _write(arguments: argparse.Namespace, document: Mapping[str, Any]) -> bool:
    """Write the files that were asked for; tell whether that worked."""
    from ..bench import _plot

    files = {}
    if arguments.document:
        files[arguments.document] = json.dumps(document).encode() + b"\n"
    measured = {row["name"] for one in document["growth"] for row in one["methods"] if row["runs"]}
    if arguments.plot and "check" not in measured:
        print_text("pyresolve: no plot: no growth was measured", to_stderr=True)
    elif arguments.plot:
        files[arguments.plot] = _plot.draw(document, arguments.plot.suffix)
    outcomes = [_written(path, content) for path, content in files.items()]
    return all(outcomes)


def _written(path: Path, content: bytes) -> bool:
    try:
        path.write_bytes(content)
    except OSError as error:
        print_text(f"pyresolve: {path} was not written: {error.strerror}", to_stderr=True)
        return False
    return True


def _compared(old: Run, new: Run) -> int:
    """Print what became slower and return the exit status: 3 if nothing can be compared."""
    from ..bench import _compare

    if others := _compare.differences(old, new):
        warning = f"the other run is of another machine ({'; '.join(others)})"
        print_text(f"pyresolve: warning: {warning}: only ratios are compared", to_stderr=True)
    if not old.complete:
        print_text("pyresolve: warning: the other run was interrupted", to_stderr=True)
    changes = _compare.changes(old, new)
    if not changes:
        print_text("pyresolve: nothing to compare: it takes 8 runs of a method", to_stderr=True)
        return 3
    slower = [change for change in changes if change.slower]
    print_text("")
    for change in slower:
        print_text(f"SLOWER  {change.name}: {change.new:.2f} x its base, was {change.old:.2f} x")
    if not slower:
        print_text(f"nothing became slower, of {len(changes)} that were compared")
    return 1 if slower else 0


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show the progress: one line that changes on a terminal, else a line every few seconds."""
    terminal = sys.stderr.isatty()
    shown_at, phase = 0.0, ""

    def show(what: str, done: int, of: int) -> None:
        nonlocal shown_at, phase
        text = f"pyresolve: measuring {what}, round {done} of {of}"
        if terminal:
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif what != phase or time.monotonic() > shown_at + _INTERVAL:
            print_text(text, to_stderr=True)
            shown_at, phase = time.monotonic(), what

    try:
        yield show
    finally:
        if terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
