"""The cluster of these tests: CUDA 12, CUDA 13, nothing at all, and nodes that are not set up."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import ray
from support import cluster
from support.layout import Site
from support.process import alive, descendants, poll

_WITHOUT_PYRESOLVE = """
import sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "pyresolve":
            raise ModuleNotFoundError("No module named 'pyresolve'", name=name)
sys.meta_path.insert(0, Finder)
"""


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What the nodes have, and the pids of their raylets."""

    cu12: Site
    cu13: Site
    raylets: dict[str, int]


class Worker:
    """An actor that tells about its own process. Ray takes it by value: nodes lack the tests."""

    def audit(self):
        import pyresolve

        return pyresolve.audit()

    def ask(self, expression):
        import os
        import sys

        return eval(expression, {"os": os, "sys": sys})


ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these tests last: a cluster stands while they run, and Ray stays in the process."""
    items.sort(key=lambda item: item.path.is_relative_to(Path(__file__).parent))


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> None:
    """Take the place of the rule for all tests: the driver's connections come and go with Ray."""


@pytest.fixture(scope="session")
def nodes(tmp_path_factory: pytest.TempPathFactory, full_stub: Path) -> Iterator[Nodes]:
    """Run the cluster; afterwards none of its processes is left.

    `cu12`, `cu13` and `bare`, which has neither packages nor a driver, have the plugin; `plain` is
    like `cu13` without it and has no command on PATH, `lost` has no pyresolve at all.
    """
    root = tmp_path_factory.mktemp("nodes")
    cu12, cu13 = (cluster.cuda_site(root / str(major), major) for major in (12, 13))
    hidden = Site(root / "hidden")
    (hidden / "sitecustomize.py").write_text(_WITHOUT_PYRESOLVE)
    commands = root / "bin"
    commands.mkdir()
    (commands / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (commands / "python").chmod(0o755)
    described = {}
    for name, site, major in (("cu12", cu12, 12), ("cu13", cu13, 13)):
        libraries = (full_stub, site.cudart_directory(major))
        described[name] = {**cluster.environment(site, libraries=libraries), **cluster.PLUGIN}
    described["bare"] = {**cluster.environment(), **cluster.PLUGIN}
    described["plain"] = cluster.environment(cu13, libraries=(full_stub,), path=root / "nothing")
    described["lost"] = cluster.environment(hidden, cu13, libraries=(full_stub,), path=commands)
    with cluster.running(described) as raylets:
        started = descendants()
        yield Nodes(cu12=cu12, cu13=cu13, raylets=raylets)
        started |= descendants()
    assert poll(lambda: not any(map(alive, started)), timeout=20)


@pytest.fixture
def start(nodes):
    """Return the function that starts a worker on a node; it ends with the test."""
    started = []

    def start(node, runtime_env=None):
        options = {"resources": {node: 1}, "num_cpus": 0, "runtime_env": runtime_env}
        started.append(ray.remote(Worker).options(**options).remote())
        return started[-1]

    yield start
    for worker in started:
        ray.kill(worker)
