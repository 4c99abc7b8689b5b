"""`make bench`: what pyresolve costs with a CUDA torch and a driver, compared with its targets.

It takes the options of `pyresolve bench`. A missed target is printed with "no" and does not fail:
whether it is met depends on how quiet the machine is.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
from pathlib import Path

from support.command import COMMAND, environment
from support.compile import workshop
from support.driver import full_stub
from support.layout import Site, cudart_soname

from pyresolve.bench._measure import interleaved
from pyresolve.bench._methods import METHODS

MAJOR = 13
TARGETS = {  # ratios of the medians of one run, at most
    "check() / floor": 1.35,
    "pick(), verified / floor": 3.0,
    "whole pyresolve pick / python -c pass": 6.0,
}
PROBE_TARGET = 1.25


def main() -> int:
    """Measure in a site of its own, and print each target and whether it is met."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=workshop() / "bench.json")
    known, options = parser.parse_known_args()
    site = Site(workshop() / "site-packages").tms().torch("13.0", "2.9.1+cu130")
    cudart = site.cudart(MAJOR) / cudart_soname(MAJOR)
    options += [*(["--quick"] if known.quick else []), "--json", str(known.json.absolute())]
    env = environment(site, libraries=[full_stub()])
    status = subprocess.run([COMMAND, "bench", *options], env=env, cwd="/").returncode
    if status not in (0, 1, 3):  # with --compare, 1 and 3 follow a complete run
        return status
    figures = json.loads(known.json.read_text())["figures"]
    values = {figure["name"]: figure["value"] for figure in figures}
    print(f"\n{'target':58}{'at most':>8}{'is':>8}{'met':>6}")
    for name, most in TARGETS.items():
        _print(name, most, values[name])
    ratio = _probe_over_floor(str(cudart), runs=40 if known.quick else 200)
    _print("pyresolve-probe check / floor, for libcudart", PROBE_TARGET, ratio)
    return status


def _print(name: str, most: float, value: float) -> None:
    print(f"{name:58}{most:8.2f}{value:8.2f}{'yes' if value <= most else 'no':>6}")


def _probe_over_floor(library: str, *, runs: int) -> float:
    sides = {name: functools.partial(METHODS[name].run, library) for name in ("probe", "floor")}
    taken = interleaved(sides, runs=runs, warmups=5, budget=None)
    return taken["probe"].median / taken["floor"].median


if __name__ == "__main__":
    sys.exit(main())
