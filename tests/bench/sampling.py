"""Samples whose sides are taken in turns, and the table that compares them.

What makes one side slow for a while (another job, the CPU's clock) makes the other slow as well, so
that it drops out of their ratio; with two runs after each other it would not.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Side = Callable[[], int]
"""Does it once; returns the nanoseconds that count."""


def timed(action: Callable[[], object]) -> Side:
    """Return the side that is all of `action`, by this process's clock."""

    def side() -> int:
        begin = time.perf_counter_ns()
        action()
        return time.perf_counter_ns() - begin

    return side


def interleaved(
    sides: Mapping[str, Side], *, runs: int, warmup: int = 5
) -> dict[str, tuple[int, ...]]:
    """Take `runs` samples of each side, one of each in a round.

    Every second round goes backwards, so that no side always comes after the same other one.
    """
    samples: dict[str, list[int]] = {name: [] for name in sides}
    for turn in range(-warmup, runs):
        for name in reversed(sides) if turn % 2 else sides:
            taken = sides[name]()
            if turn >= 0:
                samples[name].append(taken)
    return {name: tuple(taken) for name, taken in samples.items()}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line of the table. `target` bounds `value`; None where it is for information."""

    name: str
    samples: Sequence[int]
    value: float | None = None
    unit: str = "ms"
    target: float | None = None

    @property
    def met(self) -> bool:
        """Tell whether the value is within its target, for what it is worth on this machine."""
        return self.value is not None and self.target is not None and self.value <= self.target


def absolute(name: str, samples: Sequence[int], target: float) -> Figure:
    """Return a figure that is held against a time in ms."""
    value = statistics.median(samples) / 1e6
    return Figure(name=name, samples=samples, value=value, target=target)


def ratio(
    name: str, samples: Sequence[int], base: Sequence[int], target: float | None = None
) -> Figure:
    """Return a figure that is held against another one: the ratio of their medians."""
    value = statistics.median(samples) / statistics.median(base)
    return Figure(name=name, samples=samples, value=value, unit="x", target=target)


def difference(name: str, samples: Sequence[int], base: Sequence[int], target: float) -> Figure:
    """Return a figure for what `samples` cost over `base`: the difference of their medians."""
    value = (statistics.median(samples) - statistics.median(base)) / 1e6
    return Figure(name=name, samples=samples, value=value, target=target)


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as aligned text."""
    rows = [("", "median ms", "p90 ms", "value", "target", "met", "runs")]
    rows += [_row(figure) for figure in figures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *cells in rows:
        right = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join((name.ljust(widths[0]), *right)))
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    p90 = statistics.quantiles(figure.samples, n=10)[-1]
    return (
        figure.name,
        f"{statistics.median(figure.samples) / 1e6:.3f}",
        f"{p90 / 1e6:.3f}",
        "" if figure.value is None else f"{figure.value:.2f} {figure.unit}",
        "" if figure.target is None else f"≤ {figure.target:g} {figure.unit}",
        "" if figure.target is None else ("yes" if figure.met else "no"),
        str(len(figure.samples)),
    )


def machine() -> str:
    """Return what the figures were taken on."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return (
        f"{models[0] if models else platform.machine()}, {os.cpu_count()} cores;"
        f" Linux {platform.release()},"
        f" {os.confstr('CS_GNU_LIBC_VERSION')},"
        f" {platform.python_implementation()} {platform.python_version()}"
    )
