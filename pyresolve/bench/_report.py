"""What the samples say: the JSON document, and the table that people read, made from it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from .._document import SCHEMA
from ._methods import METHODS

if TYPE_CHECKING:
    from ._measure import Result, Series

_FENCE = 3.0  # interquartile ranges above the third quartile
_RATIOS = {  # of two medians of one run
    "check() / floor": ("check", "floor"),
    "pyresolve-probe check / floor": ("probe", "floor"),
    "pick(), verified / floor": ("pick", "floor"),
    "whole pyresolve pick / python -c pass": ("pyresolve_pick", "python_pass"),
    "python -I -S child / check()": ("python_child", "check"),
    "ldd / check()": ("ldd", "check"),
    "the package's resolver, cold / pick()": ("resolver", "pick"),
}

_WIDTH = 80  # columns of a terminal
_WRAPPER = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
_ROW = "{:22}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}{:>10}{:>7}".format
_HEADINGS = ("median", "p90", "p99", "max", "ratio", "runs", "outliers", "first")


def document(result: Result) -> dict[str, Any]:
    """Return everything as plain data, every sample included (docs/json.md)."""
    floor = result.methods["floor"].median if result.methods else None
    target = result.target
    return {
        "schema": SCHEMA,
        "complete": result.complete,
        "machine": asdict(result.machine),
        "target": {"path": target.path, "what": target.what, "note": target.note},
        "methods": _methods(result.methods),
        "growth": [
            {"held": one.held, "resident": one.resident, "methods": _methods(one.series)}
            for one in result.growth
        ],
        "threads": [
            {
                "threads": one.count,
                "calls": one.calls,
                "per_second": one.per_second,
                "rounds": one.rounds,
                **summary(one.series, floor),
            }
            for one in result.threads
        ],
        "figures": [
            {"name": name, "value": over.median / under.median, "unit": "x"}
            for name, over, under in _compared(result)
            if over and under and over.median and under.median
        ],
        "problems": result.problems,
    }


def _methods(taken: Mapping[str, Series]) -> list[dict[str, Any]]:
    floor = taken["floor"].median if taken else None
    return [
        {
            "name": name,
            "text": METHODS[name].text,
            "kind": METHODS[name].kind.value,
            **summary(series, floor),
        }
        for name, series in taken.items()
    ]


def summary(series: Series, floor: float | None) -> dict[str, Any]:
    """Return a series as plain data; its percentiles are samples, chosen by nearest rank."""
    ordered, median = sorted(series.samples), series.median
    first, third = _rank(ordered, 0.25), _rank(ordered, 0.75)
    fence = third + _FENCE * (third - first) if first and third else None
    return {
        "problem": series.problem,
        "runs": len(ordered),
        "outliers": sum(sample > fence for sample in ordered) if fence else 0,
        "median": median,
        "p90": _rank(ordered, 0.90),
        "p99": _rank(ordered, 0.99),
        "ratio": median / floor if median and floor else None,
        "warmups": series.warmups,
        "samples": series.samples,
    }


def _rank(ordered: Sequence[float], part: float) -> float | None:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)] if ordered else None


def _compared(result: Result) -> Iterator[tuple[str, Series | None, Series | None]]:
    for name, (over, under) in _RATIOS.items():
        yield name, result.methods.get(over), result.methods.get(under)
    if len(result.growth) > 1:
        small, big = result.growth[0], result.growth[-1]
        span = f"from {size(small.held)} to {size(big.held)} resident"
        for name, method in (("check()", "check"), ("fork()", "fork_exit")):
            yield f"growth of {name} {span}", big.series.get(method), small.series.get(method)


def size(count: int) -> str:
    """Return a number of bytes for people: 1.5 GiB."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 999.5:  # a larger one would need a fourth digit
            break
        value, unit = value / 1024, larger
    return "0" if not count else f"{value:.3g} {unit}"


# --- for people


def table(document: Mapping[str, Any]) -> str:
    """Return a document as text that fits 80 columns, except for long paths."""
    return "\n\n".join(_blocks(document))


def _blocks(document: Mapping[str, Any]) -> Iterator[str]:
    target = document["target"]
    head = [f"measured: {target['path']}", f"  ({target['what']})"]
    if target["note"]:
        head.append(_WRAPPER.fill(target["note"]))
    yield "\n".join([*head, "times in milliseconds; ratio: the median over that of the floor"])
    if document["methods"]:
        yield _block("methods", ((row["text"], row) for row in document["methods"]))
    for one in document["growth"]:
        title = f"{size(one['resident'])} resident"
        yield _block(title, ((row["text"], row) for row in one["methods"]))
    if document["threads"]:
        yield _block("threads at once", ((_threads(row), row) for row in document["threads"]))
    figures = [
        f"{figure['name']:{_WIDTH - 12}}{_digits(figure['value']):>10} {figure['unit']}"
        for figure in document["figures"]
    ]
    if figures:
        yield "\n".join(figures)
    yield from map(_WRAPPER.fill, _notes(document))


def _threads(row: Mapping[str, Any]) -> str:
    rate = row["per_second"]
    return f"{row['threads']}: {rate:.0f} checks/s" if rate else str(row["threads"])


def _block(title: str, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    return "\n".join([_ROW(title, *_HEADINGS), *(_line(name, row) for name, row in rows)])


def _line(name: str, row: Mapping[str, Any]) -> str:
    if not row["runs"]:
        line = f"{name:22} not measured: {row['problem'] or 'interrupted'}"
        return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."
    times = (row["median"], row["p90"], row["p99"], max(row["samples"]))
    return _ROW(
        name,
        *(_digits(seconds * 1e3) for seconds in times),
        _digits(row["ratio"]) if row["ratio"] else "",
        row["runs"],
        row["outliers"],
        _digits(row["warmups"][0] * 1e3) if row["warmups"] else "",
    )


def _digits(value: float) -> str:
    """Return three digits or, of a large number, all that stand before the point."""
    return f"{value:.3f}" if value < 1 else f"{value:#.3g}" if value < 99.95 else f"{value:.0f}"


def _notes(document: Mapping[str, Any]) -> Iterator[str]:
    machine = document["machine"]
    if not document["complete"]:
        yield "INTERRUPTED: this is what was measured until then"
    yield from document["problems"]
    yield (
        "The methods took turns, after warm-ups that do not count; 'first' is the first of these."
        " Outliers lie above the third quartile by more than 3 interquartile ranges; they count"
        " like all others. p99 of fewer than 100 runs is the slowest."
    )
    kernel_driver = f" ({machine['kernel_driver']})" if machine["kernel_driver"] else ""
    yield (
        f"{machine['cpu']}, {machine['cores']} cores, {size(machine['memory'])};"
        f" Linux {machine['kernel']}, glibc {machine['glibc']}, {machine['python']},"
        f" pyresolve {machine['pyresolve']}; driver: {_cuda(machine['driver'])}{kernel_driver};"
        f" GPU: {', '.join(machine['gpus']) or 'none'}"
    )
    if machine["load"] > machine["cores"] / 2:
        yield f"the machine was busy (load {machine['load']}): measure again when it is quiet"


def _cuda(version: int | None) -> str:
    return f"supports CUDA up to {version // 1000}.{version % 1000 // 10}" if version else "none"
