"""What became slower since another run, beyond the noise.

The rule. No time is compared with a time: clocks, kernels and neighbours change from one day to the
next. What is compared is each method's ratio to its base, taken in turns with it in the same run:
the floor, or `python -c pass` for what starts an interpreter. Each run is cut into eight stretches
of time, and each stretch gives one ratio of medians; how far these lie apart is the noise, drift
included. A method became slower where

* every one of the new ratios is above every one of the old, which by chance alone, whatever the
  distribution, happens once in C(16, 8) = 12870 times, and
* the median of the new is more than a fifth above the median of the old: two runs on one machine
  differ by more than their samples tell (where pages and caches come to lie, what else runs), and
* it is so by more than a twentieth of the base, less than which nobody waits for: a call of some
  microseconds is a third faster in one process than in the next.

So the more runs, the smaller a change it finds: with --quick only a large one.

Only pyresolve's own methods count: what an alternative costs is no regression. Threads are left
out, since what they see is the machine's scheduler.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from .._document import SCHEMA
from ._methods import METHODS, Kind
from ._report import size

_STRETCHES = 8
_TOLERANCE = 1.2
_NOTICEABLE = 0.05  # of the base
_SAME = ("cpu", "cores", "kernel", "glibc", "python")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The samples of a method and of its base, in the order in which they were taken."""

    samples: Sequence[float]
    base: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What of a document of `pyresolve bench` can be compared."""

    complete: bool
    target: str
    machine: Mapping[str, object]
    pairs: Mapping[str, Pair]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The ratio of a method to its base, then and now; `slower` where that is beyond the noise."""

    name: str
    old: float
    new: float
    slower: bool


def load(path: Path) -> Run:
    """Read what another `pyresolve bench --json` wrote; ValueError says why it is not that."""
    advice = "give a file that pyresolve bench --json wrote"
    try:
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): {advice}") from None
    except ValueError:
        raise ValueError(f"{path} is not JSON: {advice}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ValueError(
            f"{path} has schema {schema}, expected {SCHEMA}: measure again with this pyresolve"
        )
    try:
        return run_of(document)
    except (LookupError, TypeError, AttributeError, ValueError):
        raise ValueError(f"{path} is another document than a benchmark: {advice}") from None


def run_of(document: Mapping[str, Any]) -> Run:
    """Return what of a document can be compared."""
    methods = {one["name"]: _numbers(one["samples"]) for one in document["methods"]}
    return Run(
        complete=bool(document["complete"]),
        target=Path(document["target"]["path"]).name,
        machine={name: document["machine"].get(name) for name in _SAME},
        pairs={**dict(_own(methods)), **dict(_growing(document["growth"]))},
    )


def _own(methods: Mapping[str, Sequence[float]]) -> Iterator[tuple[str, Pair]]:
    for name, method in METHODS.items():
        if method.kind is Kind.OURS and name in methods:
            yield method.text, Pair(samples=methods[name], base=methods.get(method.base, ()))


def _growing(growth: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Pair]]:
    for one in growth:
        methods = {series["name"]: _numbers(series["samples"]) for series in one["methods"]}
        pair = Pair(samples=methods.get("check", ()), base=methods.get("floor", ()))
        yield f"check() with {size(int(one['held']))} resident", pair


def _numbers(values: Sequence[float]) -> Sequence[float]:
    return [float(value) for value in values]


def differences(old: Run, new: Run) -> list[str]:
    """Say in what the machines differ, for a warning."""
    return [
        f"{name} {old.machine[name]}, now {new.machine[name]}"
        for name in _SAME
        if old.machine[name] != new.machine[name]
    ]


def changes(old: Run, new: Run) -> list[Change]:
    """Return how each method that both runs measured often enough has changed."""
    return [
        change
        for name, pair in new.pairs.items()
        if name in old.pairs and (change := _change(name, old.pairs[name], pair))
    ]


def _change(name: str, old: Pair, new: Pair) -> Change | None:
    before, after = _ratios(old), _ratios(new)
    if not before or not after:
        return None
    then, now = statistics.median(before), statistics.median(after)
    slower = min(after) > max(before) and now > max(then * _TOLERANCE, then + _NOTICEABLE)
    return Change(name=name, old=then, new=now, slower=slower)


def _ratios(pair: Pair) -> list[float]:
    """Return one ratio for each stretch; none where there are too few samples for that."""
    if min(len(pair.samples), len(pair.base)) < _STRETCHES:
        return []
    stretches = zip(_cut(pair.samples), _cut(pair.base), strict=True)
    return [statistics.median(ours) / statistics.median(base) for ours, base in stretches]


def _cut(samples: Sequence[float]) -> list[Sequence[float]]:
    edges = [len(samples) * at // _STRETCHES for at in range(_STRETCHES + 1)]
    return [samples[begin:end] for begin, end in pairwise(edges)]
