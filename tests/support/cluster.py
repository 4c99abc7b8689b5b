"""Three nodes on one machine that differ as machines do: packages, libraries, driver."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from support.layout import Site

PLUGINS = {"RAY_RUNTIME_ENV_PLUGINS": '[{"class": "pyresolve.ray.PreloadPlugin"}]'}
TORCHES = {12: ("12.8", "2.9.1+cu128"), 13: ("13.0", "2.9.1+cu130")}

_BIN = Path(sys.executable).parent
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}


def cuda_site(root: Path, major: int) -> Site:
    """Return a site-packages with the hook, a torch and a runtime of this CUDA major."""
    site = Site(root).tms().torch(*TORCHES[major])
    site.cudart(major)
    return site


def variables(site: Site, *libraries: Path, path: str | None = None) -> dict[str, str]:
    """Return the environment of a node with these packages and library directories."""
    return {
        "PYTHONPATH": os.fspath(site),
        "LD_LIBRARY_PATH": os.pathsep.join(map(os.fspath, libraries)),
        "PATH": os.pathsep.join([os.fspath(_BIN), os.environ["PATH"]] if path is None else [path]),
    }


@contextmanager
def nodes(described: Mapping[str, Mapping[str, str]]) -> Iterator[Cluster]:
    """Run a cluster with these nodes; each offers a resource of its name."""
    cluster = Cluster(shutdown_at_exit=False)
    try:
        for name, environ in described.items():
            cluster.add_node(
                num_cpus=8,
                resources={name: 100},
                include_dashboard=False,
                env_vars={**_QUIET, **environ},
            )
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
