"""What pyresolve adds to the start of a Ray worker (target: 50 ms), printed by `make bench-ray`."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import statistics
import sys
import time
from collections.abc import Callable

import ray
from ray._private.runtime_env.context import RuntimeEnvContext
from ray.runtime_env import RuntimeEnv
from support import cluster
from support.compile import workshop
from support.driver import full_stub

from pyresolve.bench._measure import Series, interleaved
from pyresolve.ray import PreloadPlugin, runtime_env

_NUMBERS = itertools.count()


class _Worker:
    def started(self) -> None:
        return None


def main() -> None:
    """Measure, each time with a new runtime environment and therefore in a new process."""
    os.chdir("/")
    ray.cloudpickle.register_pickle_by_value(sys.modules[_Worker.__module__])
    node = cluster.environment(
        cluster.cuda_site(workshop() / "site-packages", 13), libraries=(full_stub(),)
    )
    wrapped = {"py_executable": runtime_env()["py_executable"]}
    with cluster.running({"node": {**node, **cluster.PLUGIN}}):
        sides = {"with": _starts({"pyresolve": {}}), "without": _starts({}), "by": _starts(wrapped)}
        taken = _measured(sides, runs=12)
    os.environ.update(node)
    base = statistics.median(taken["without"].samples)
    print(f"{'start of a worker, median ms':44}{'':>10}{'over without':>14}{'runs':>6}")
    _print("without", taken["without"])
    _print("with the plugin", taken["with"], base)
    _print("by the wrapper", taken["by"], base)
    _print("of which the plugin itself", _measured({"": _creates}, runs=40)[""])


def _measured(sides: dict[str, Callable[[], float]], *, runs: int) -> dict[str, Series]:
    return interleaved(
        sides,
        runs=runs,
        warmups=2,
        budget=None,
        progress=lambda done, of: print(f"{done} of {of}", end="\r", file=sys.stderr),
    )


def _print(name: str, series: Series, base: float | None = None) -> None:
    median = statistics.median(series.samples)
    over = "" if base is None else f"{(median - base) * 1e3:.1f}"
    print(f"{name:44}{median * 1e3:10.1f}{over:>14}{len(series.samples):6}")


def _starts(runtime_env: dict[str, object]) -> Callable[[], float]:
    """Return a function that measures an actor from its creation to its first answer."""

    def start() -> float:
        new = {**runtime_env, "env_vars": {"NUMBER": str(next(_NUMBERS))}}
        begin = time.perf_counter()
        actor = ray.remote(_Worker).options(num_cpus=0, runtime_env=new).remote()
        ray.get(actor.started.remote(), timeout=60)
        taken = time.perf_counter() - begin
        ray.kill(actor)
        return taken

    return start


def _creates() -> float:
    context = RuntimeEnvContext(env_vars={"NUMBER": str(next(_NUMBERS))})
    create = PreloadPlugin().create(
        None, RuntimeEnv(pyresolve={}), context, logging.getLogger(__name__)
    )
    begin = time.perf_counter()
    asyncio.run(create)
    taken = time.perf_counter() - begin
    assert context.py_executable.startswith("env LD_PRELOAD="), context.py_executable
    return taken


if __name__ == "__main__":
    main()
