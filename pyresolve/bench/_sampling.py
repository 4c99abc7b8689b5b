"""Samples whose sides are taken in turns.

What makes one side slow for a while (another job, the CPU's clock) makes the others slow as well,
so that it drops out of their ratios; with one run after the other it would not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ._interrupt import Interrupted
from ._methods import Unmeasurable

_Key = TypeVar("_Key")

Side = Callable[[], int]
"""Does it once; returns the nanoseconds that count."""


@dataclass(slots=True, kw_only=True)
class Series:
    """The samples of one side in nanoseconds, in the order in which they were taken.

    `problem` says why there are none, or no more.
    """

    warmups: list[int] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)
    problem: str | None = None


def interleaved(
    sides: Mapping[_Key, Side],
    *,
    runs: int,
    warmups: int,
    budget: float | None,
    heed: Callable[[], None],
    progress: Callable[[int, int], None],
) -> dict[_Key, Series]:
    """Take `runs` samples of each side, one of each in a round, after `warmups` that do not count.

    Every second round goes backwards, so that no side always comes after the same other one. With a
    `budget` in seconds a slow side takes part in as many rounds as that allows, spread evenly over
    the whole time, and in ten at least. Where `heed` raises Interrupted, what there is is returned.
    """
    order = list(sides)
    series = {name: Series() for name in order}
    try:
        for turn in range(-warmups, runs):
            for name in reversed(order) if turn % 2 else order:
                one = series[name]
                if one.problem is None and (turn < 0 or _takes_part(one, turn, runs, budget)):
                    heed()
                    _sample(sides[name], one.samples if turn >= 0 else one.warmups, one)
            progress(max(0, turn + 1), runs)
    except Interrupted:
        pass
    return series


def _takes_part(one: Series, turn: int, runs: int, budget: float | None) -> bool:
    affordable = runs
    if budget is not None and one.warmups:
        affordable = min(runs, max(10, int(budget * 1e9 / min(one.warmups))))
    return (turn + 1) * affordable // runs > turn * affordable // runs


def _sample(side: Side, into: list[int], one: Series) -> None:
    try:
        into.append(side())
    except Unmeasurable as reason:
        one.problem = str(reason)
