"""What the samples say: rows, figures, the table, the JSON document."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._methods import METHODS

if TYPE_CHECKING:
    from ._measure import Result, Together
    from ._sampling import Series

_FENCE = 3.0  # interquartile ranges above the third quartile
_GROWTH_OF_TARGETS = 4 << 30  # bytes that the targets for growth speak of
_KIB = 1024
_SHOWN = 78  # characters of a reason in the table; the document has all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Nanoseconds of a series; percentiles are samples that were taken, by nearest rank."""

    runs: int
    median: float
    p90: int
    p99: int
    max: int
    outliers: int


def summary(samples: Sequence[int]) -> Summary | None:
    """Sum up samples; None where there are none."""
    if not samples:
        return None
    ordered = sorted(samples)
    first, third = _rank(ordered, 0.25), _rank(ordered, 0.75)
    fence = third + _FENCE * (third - first)
    return Summary(
        runs=len(ordered),
        median=statistics.median(ordered),
        p90=_rank(ordered, 0.90),
        p99=_rank(ordered, 0.99),
        max=ordered[-1],
        outliers=sum(sample > fence for sample in ordered),
    )


def _rank(ordered: Sequence[int], part: float) -> int:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number that the project holds itself to; `bound` is "≤" or "≥" of `target`."""

    name: str
    value: float
    unit: str
    bound: str
    target: float | None

    @property
    def met(self) -> bool | None:
        """Tell whether it is met, None where it has no target here."""
        if self.target is None:
            return None
        return self.value <= self.target if self.bound == "≤" else self.value >= self.target


def figures(result: Result) -> list[Figure]:
    """Return the figures that can be told from what was measured."""
    return list(_figures(result))


def _figures(result: Result) -> Iterator[Figure]:
    middle = {
        name: statistics.median(one.samples) for name, one in result.methods.items() if one.samples
    }
    for name, over, under, target in (
        ("check() / floor", "check", "floor", 1.35),
        ("pick(), verified / floor", "pick", "floor", 3.0),
        ("whole pyresolve pick / python -c pass", "pyresolve_pick", "python_pass", 6.0),
        ("python -I -S child / check()", "python_child", "check", None),
        ("ldd / check()", "ldd", "check", None),
        ("the package's resolver, cold / pick()", "resolver", "pick", None),
    ):
        if over in middle and under in middle:
            value = middle[over] / middle[under]
            yield Figure(name=name, value=value, unit="x", bound="≤", target=target)
    if len(result.growth) > 1:
        small, big = result.growth[0], result.growth[-1]
        of_targets = small.held == 0 and big.held >= _GROWTH_OF_TARGETS
        span = f"from {size(small.held)} to {size(big.held)} resident"
        for name, method, bound, target in (
            ("check()", "check", "≤", 1.1),
            ("fork()", "fork_exit", "≥", 100.0),
        ):
            before, after = median(small.series.get(method)), median(big.series.get(method))
            if before and after:
                yield Figure(
                    name=f"growth of {name} {span}",
                    value=after / before,
                    unit="x",
                    bound=bound,
                    target=target if of_targets else None,
                )
    if result.helper:
        value = max(result.helper) / 1e6
        name = "memory of the helper before it loads its target"
        yield Figure(name=name, value=value, unit="MB", bound="≤", target=3.0)


def size(count: int) -> str:
    """Return a number of bytes for people: 1.5 GiB."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < _KIB:
            break
        value, unit = value / _KIB, larger
    return "0" if not count else f"{value:.3g} {unit}"


# --- for people


def table(result: Result) -> str:
    """Return everything as aligned text."""
    return "\n\n".join(block for block in _blocks(result) if block)


def _blocks(result: Result) -> Iterator[str]:
    target, plan = result.target, result.plan
    yield "\n".join(
        [
            f"measured: {target.path}",
            f"  ({target.what})",
            *([f"  {target.note}"] if target.note else []),
            "times in milliseconds; x floor: the ratio of the medians",
        ]
    )
    floor = median(result.methods.get("floor"))
    rows = [_row(METHODS[name].text, one, floor) for name, one in result.methods.items()]
    if rows:
        yield _aligned([_HEAD, *rows])
    for one in result.growth:
        base = median(one.series.get("floor"))
        rows = [_row(METHODS[name].text, series, base) for name, series in one.series.items()]
        title = f"from a caller with {size(one.resident)} resident"
        yield _aligned([(title, *_HEAD[1:]), *rows])
    if result.threads:
        yield _aligned(
            [
                ("threads that check at the same time", *_HEAD[1:], "checks/s"),
                *(_thread_row(one, floor) for one in result.threads),
            ]
        )
    shown = [
        (
            figure.name,
            f"{figure.value:.3g} {figure.unit}",
            "" if figure.target is None else f"{figure.bound} {figure.target:g} {figure.unit}",
            {True: "yes", False: "no", None: ""}[figure.met],
        )
        for figure in figures(result)
    ]
    if shown:
        yield _aligned([("figures", "value", "target", "met"), *shown])
    yield "\n".join(_notes(result, plan.warmups))


_HEAD = ("methods", "median", "p90", "p99", "max", "x floor", "runs", "outliers", "first")


def _row(text: str, one: Series, floor: float | None) -> tuple[str, ...]:
    told = summary(one.samples)
    if told is None:
        return (f"  {text}", _shortened(f"not measured: {one.problem or 'interrupted'}"))
    return (
        f"  {text}",
        *(f"{value / 1e6:.3f}" for value in (told.median, told.p90, told.p99, told.max)),
        f"{told.median / floor:.2f}" if floor else "",
        str(told.runs),
        str(told.outliers),
        f"{one.warmups[0] / 1e6:.3f}" if one.warmups else "",
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _thread_row(one: Together, floor: float | None) -> tuple[str, ...]:
    row = _row(str(one.threads), one.series, floor)
    rate = per_second(one)
    return row if rate is None else (*row, f"{rate:.0f}")


def per_second(one: Together) -> float | None:
    """Return how many checks a second all threads did together, by the median round."""
    return one.calls / statistics.median(one.walls) * 1e9 if one.walls else None


def median(one: Series | None) -> float | None:
    """Return the median of a series, None where it has no samples."""
    return statistics.median(one.samples) if one and one.samples else None


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Align cells; a row of two that says why something is missing may be as long as it is."""
    told = [row for row in rows if len(row) != 2]
    count = max(map(len, told))
    widths = [max(len(row[at]) for row in told if at < len(row)) for at in range(1, count)]
    first = max(len(row[0]) for row in rows)
    lines = []
    for name, *cells in rows:
        if len(cells) > 1:
            cells = [cell.rjust(width) for cell, width in zip(cells, widths, strict=False)]
        lines.append("  ".join((name.ljust(first), *cells)).rstrip())
    return "\n".join(lines)


def _notes(result: Result, warmups: int) -> Iterator[str]:
    machine = result.machine
    if not result.complete:
        yield "INTERRUPTED: this is what was measured until then"
    yield from result.problems
    yield (
        f"methods took turns, each after {warmups} warm-ups that do not count ('first' is the first"
        " of them); outliers, above the third quartile by more than 3 interquartile ranges, count"
        " like all others; p99 of fewer than 100 runs is the slowest"
    )
    if result.helper:
        each = " + ".join(size(one) for one in result.helper)
        yield f"memory of a check's processes before the target is loaded: {each} resident"
    cuda = f"supports CUDA up to {_dotted(machine.driver)}" if machine.driver else "none"
    kernel_driver = f" ({machine.kernel_driver})" if machine.kernel_driver else ""
    yield (
        f"{machine.cpu}, {machine.cores} cores, {size(machine.memory)};"
        f" Linux {machine.kernel}, glibc {machine.glibc}, {machine.python},"
        f" pyresolve {machine.pyresolve}; driver: {cuda}{kernel_driver};"
        f" GPU: {', '.join(machine.gpus) or 'none'}"
    )
    if machine.load > machine.cores / 2:
        yield f"the machine was busy before (load {machine.load}): measure again when it is quiet"


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"


# --- for programs


def document(result: Result) -> dict[str, Any]:
    """Return everything as plain data, every sample included (docs/json.md)."""
    floor = median(result.methods.get("floor"))
    return {
        "complete": result.complete,
        "machine": result.machine.to_dict(),
        "target": {
            "path": result.target.path,
            "what": result.target.what,
            "note": result.target.note or None,
        },
        "methods": [
            {
                "name": name,
                "text": METHODS[name].text,
                "kind": METHODS[name].kind.value,
                **_series(one, floor),
            }
            for name, one in result.methods.items()
        ],
        "growth": [
            {
                "held": one.held,
                "resident": one.resident,
                "methods": [
                    {"name": name, **_series(series, median(one.series.get("floor")))}
                    for name, series in one.series.items()
                ],
            }
            for one in result.growth
        ],
        "threads": [
            {
                "threads": one.threads,
                "calls": one.calls,
                "per_second": per_second(one),
                "rounds": [wall / 1e9 for wall in one.walls],
                **_series(one.series, floor),
            }
            for one in result.threads
        ],
        "helper": result.helper,
        "figures": [
            {
                "name": figure.name,
                "value": figure.value,
                "unit": figure.unit,
                "bound": figure.bound,
                "target": figure.target,
                "met": figure.met,
            }
            for figure in figures(result)
        ],
        "problems": result.problems,
    }


def _series(one: Series, floor: float | None) -> dict[str, Any]:
    """Return a series in seconds."""
    told = summary(one.samples)
    return {
        "problem": one.problem,
        "runs": len(one.samples),
        "outliers": told.outliers if told else 0,
        "median": told.median / 1e9 if told else None,
        "p90": told.p90 / 1e9 if told else None,
        "p99": told.p99 / 1e9 if told else None,
        "ratio": told.median / floor if told and floor else None,
        "warmups": [sample / 1e9 for sample in one.warmups],
        "samples": [sample / 1e9 for sample in one.samples],
    }
