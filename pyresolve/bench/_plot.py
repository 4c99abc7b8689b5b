"""Cost against the caller's resident memory, as a picture."""

from __future__ import annotations

import io
import logging
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from ._report import size

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from matplotlib.figure import Figure

_LINES = {  # in colours of Okabe and Ito, which can be told apart with any colour vision
    "fork": ("fork() + dlopen", "#D55E00", "-"),
    "fork_exit": ("fork() alone", "#D55E00", ":"),
    "python_child": ("Python child", "#CC79A7", "-"),
    "ldd": ("ldd", "#E69F00", "-"),
    "check": ("pyresolve.check()", "#0072B2", "-"),
    "floor": ("floor: spawn + dlopen", "#555555", "--"),
}


def require(path: Path) -> None:
    """Raise ValueError if no plot can be drawn into a file of this name."""
    if path.suffix not in (".svg", ".png"):
        end = path.suffix or "nothing"
        raise ValueError(f"--plot {path} ends in {end}: give a .svg or .png file")
    # It would warn about a home directory that it cannot write.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"--plot needs matplotlib, which cannot be imported ({error}):"
            " pip install 'pyresolve-native[bench]'"
        ) from None


def draw(document: Mapping[str, Any], suffix: str) -> bytes:
    """Return the picture of a benchmark whose growth was measured."""
    picture = io.BytesIO()
    figure(document).savefig(picture, format=suffix.removeprefix("."), dpi=160)
    return picture.getvalue()


def figure(document: Mapping[str, Any]) -> Figure:
    """Return matplotlib's figure. It does not use pyplot, which looks for a display."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(9, 5.4), layout="constrained")
    axes = drawn.add_subplot(xscale="log", yscale="log")
    lines = []
    for name, (label, colour, style) in _LINES.items():
        points = [
            (one["resident"], row["median"] * 1e3)
            for one in document["growth"]
            for row in one["methods"]
            if row["name"] == name and row["median"]
        ]
        if points:
            x, y = zip(*points, strict=True)
            text = f"{label}  {y[-1]:.3g} ms"
            (line,) = axes.plot(x, y, style, color=colour, marker="o", label=text)
            lines.append((-y[-1], line))
    # The legend has the order of the right ends of the lines.
    handles = [line for _, line in sorted(lines, key=itemgetter(0))]
    drawn.legend(handles=handles, loc="outside right center", frameon=False)
    ticks = {one["resident"]: size(one["held"] or one["resident"]) for one in document["growth"]}
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.minorticks_off()
    axes.yaxis.set_major_formatter("{x:g} ms")
    axes.set_xlabel("resident memory of the caller")
    axes.set_ylabel("median time of one answer")
    axes.grid(axis="y", color="#DDDDDD")
    axes.set_title(_title(document), loc="left", fontsize=10)
    return drawn


def _title(document: Mapping[str, Any]) -> str:
    machine = document["machine"]
    growth = [
        f"{figure['name']}: {figure['value']:.3g} {figure['unit']}"
        for figure in document["figures"]
        if figure["name"].startswith("growth")
    ]
    question = f"does {Path(document['target']['path']).name} load?"
    place = f"{machine['cpu']}, Linux {machine['kernel']}, glibc {machine['glibc']}"
    return "\n".join([*growth, question, place])
