"""What became slower since another run, beyond the noise.

Times of two runs are not compared: clocks, kernels and neighbours change between them. Compared is
the ratio of each method to its base, sampled in turns in the same run: the floor, or `python -c
pass` for a method that starts an interpreter. Each run is cut into eight stretches of time with one
ratio of medians each; their spread is the noise, drift included. A method became slower if

* every new ratio is above every old one, which happens by chance once in C(16, 8) = 12870 times,
  whatever the distribution, and
* the new median is more than a fifth above the old one: two runs on one machine differ by more than
  their samples show (placement of pages, contents of caches), and
* the difference is more than a twentieth of the base: a call of some microseconds can be a third
  faster in one process than in the next, and nobody notices.

So the more runs, the smaller the change that is found; with --quick only a large one. Only the
methods of pyresolve count. Threads are left out: what they see is the scheduler.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
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
class Run:
    """The part of a benchmark's document that is compared.

    `ratios` has one for each stretch of a method, and none if there are too few samples for that.
    """

    complete: bool
    target: str
    machine: Mapping[str, object]
    ratios: Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The median ratio of a method then and now; `slower` if that is beyond the noise."""

    name: str
    old: float
    new: float
    slower: bool


def load(path: Path) -> Run:
    """Read a file that `pyresolve bench --json` wrote. ValueError says why it is not one."""
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
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        raise ValueError(f"{path} is not a benchmark: {advice}") from None


def run_of(document: Mapping[str, Any]) -> Run:
    """Return the part of a document that is compared."""
    methods = _samples(document["methods"])
    pairs = {
        method.text: (methods.get(name, []), methods.get(method.base, []))
        for name, method in METHODS.items()
        if method.kind is Kind.OURS
    }
    for one in document["growth"]:
        grown = _samples(one["methods"])
        name = f"check() with {size(int(one['held']))} resident"
        pairs[name] = (grown.get("check", []), grown.get("floor", []))
    return Run(
        complete=bool(document["complete"]),
        target=Path(document["target"]["path"]).name,
        machine={name: document["machine"].get(name) for name in _SAME},
        ratios={name: _ratios(*pair) for name, pair in pairs.items()},
    )


def _samples(methods: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    return {one["name"]: list(map(float, one["samples"])) for one in methods}


def _ratios(samples: Sequence[float], base: Sequence[float]) -> list[float]:
    if min(len(samples), len(base)) < _STRETCHES:
        return []
    stretches = zip(_medians(samples), _medians(base), strict=True)
    return [ours / floor for ours, floor in stretches]


def _medians(samples: Sequence[float]) -> list[float]:
    edges = [len(samples) * at // _STRETCHES for at in range(_STRETCHES + 1)]
    return [statistics.median(samples[begin:end]) for begin, end in pairwise(edges)]


def differences(old: Run, new: Run) -> list[str]:
    """Say how the machines differ, for a warning."""
    return [
        f"{name} {old.machine[name]}, now {new.machine[name]}"
        for name in _SAME
        if old.machine[name] != new.machine[name]
    ]


def changes(old: Run, new: Run) -> list[Change]:
    """Return how each method has changed that both runs measured often enough."""
    return [
        _change(name, old.ratios[name], after)
        for name, after in new.ratios.items()
        if after and old.ratios.get(name)
    ]


def _change(name: str, before: Sequence[float], after: Sequence[float]) -> Change:
    old, new = statistics.median(before), statistics.median(after)
    slower = min(after) > max(before) and new > max(old * _TOLERANCE, old + _NOTICEABLE)
    return Change(name=name, old=old, new=new, slower=slower)
