"""Cost against the caller's resident memory, to be read without the text."""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._report import median, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from ._measure import Result

SUFFIXES = (".svg", ".png")

# Okabe and Ito's colours, which every kind of colour vision tells apart.
_LINES = {
    "fork": ("fork() + dlopen", "#D55E00", "-"),
    "fork_exit": ("fork() alone", "#D55E00", ":"),
    "python_child": ("Python child", "#CC79A7", "-"),
    "ldd": ("ldd", "#E69F00", "-"),
    "check": ("pyresolve.check()", "#0072B2", "-"),
    "floor": ("floor: spawn + dlopen", "#555555", "--"),
}
_GAP = 0.055  # of the height of the axes, between two labels


def require(path: Path) -> None:
    """Raise ValueError where no plot can be drawn into a file of this name."""
    if path.suffix not in SUFFIXES:
        known = " or ".join(SUFFIXES)
        raise ValueError(f"--plot {path} ends in {path.suffix or 'nothing'}: give a {known} file")
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of a home it cannot write
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--plot needs matplotlib, which cannot be imported ({error}):"
            " pip install 'pyresolve-native[bench]'"
        ) from None


def draw(result: Result, suffix: str) -> bytes:
    """Return the picture; for a result whose growth was measured."""
    picture = io.BytesIO()
    figure(result).savefig(picture, format=suffix.removeprefix("."), dpi=160)
    return picture.getvalue()


def figure(result: Result) -> Figure:
    """Return matplotlib's figure; pyplot, which looks for a display, stays out of it."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    drawn = Figure(figsize=(9, 5.4), layout="constrained")
    axes = drawn.add_subplot()
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = []
    for name, (label, colour, style) in _LINES.items():
        points = [
            (one.resident, middle / 1e6)
            for one in result.growth
            if (middle := median(one.series.get(name)))
        ]
        if points:
            x, y = zip(*points, strict=True)
            weight = 2.8 if name == "check" else 1.8
            axes.plot(
                x, y, style, color=colour, linewidth=weight, marker="o", markersize=5, clip_on=False
            )
            ends.append((y[-1], f"{label}  {y[-1]:.3g} ms", colour))
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.3, high * 1.3)
    _label(axes, sorted(ends))
    places = [one.resident for one in result.growth]
    axes.set_xticks(places, [size(one.held or one.resident) for one in result.growth])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ms"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("resident memory of the process that asks")
    axes.set_ylabel("median time of one answer")
    axes.grid(visible=True, which="major", axis="y", color="#DDDDDD", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    drawn.suptitle(_title(result), x=0.01, ha="left", fontsize=13, fontweight="bold")
    machine = result.machine
    axes.set_title(
        f"does {Path(result.target.path).name} load?   "
        f"{machine.cpu}, Linux {machine.kernel}, glibc {machine.glibc}",
        loc="left",
        fontsize=8.5,
        color="#555555",
    )
    return drawn


def _label(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:  # noqa: ANN401
    """Write the labels beside the right ends of their lines, lowest first, none over another."""
    place = float("-inf")
    for y, text, colour in ends:
        height = axes.transAxes.inverted().transform(axes.transData.transform((1, y)))[1]
        place = max(height, place + _GAP)
        axes.annotate(
            text,
            xy=(1, place),
            xycoords="axes fraction",
            xytext=(8, 0),
            textcoords="offset points",
            color=colour,
            va="center",
            fontsize=10,
        )


def _title(result: Result) -> str:
    """Say what is seen."""
    small, big = result.growth[0], result.growth[-1]
    told = []
    for name, subject in (("fork_exit", "fork() costs"), ("check", "check()")):
        before, after = median(small.series.get(name)), median(big.series.get(name))
        if before and after and big.held > small.held:
            digits = 1 if after < 10 * before else 0
            told.append(f"{subject} {after / before:.{digits}f} times as much")
    if not told:
        return "What it costs to find out whether a library loads"
    return f"With {size(big.held)} resident, {', '.join(told)}"
