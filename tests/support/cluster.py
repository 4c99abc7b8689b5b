"""Nodes of a Ray cluster on one machine, as different as machines are."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import ray
from ray._private.utils import get_ray_address_file
from ray.cluster_utils import Cluster

from support.layout import Site

PLUGIN = {"RAY_RUNTIME_ENV_PLUGINS": '[{"class": "pyresolve.ray.PreloadPlugin"}]'}

# No report to Ray's makers, and no FutureWarning about a variable that concerns GPUs.
_QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def cuda_site(root: Path, major: int) -> Site:
    """Return a site-packages with the hook, and a torch and a runtime of this CUDA major."""
    return Site(root).cuda(major)


def environment(
    *sites: Site, libraries: tuple[Path, ...] = (), path: Path = Path(sys.executable).parent
) -> dict[str, str]:
    """Return the variables of a node with these packages, libraries and commands."""
    return {
        "PYTHONPATH": os.pathsep.join(map(os.fspath, sites)),
        "LD_LIBRARY_PATH": os.pathsep.join(map(os.fspath, libraries)),
        "PATH": f"{path}:/usr/local/bin:/usr/bin:/bin",
    }


@contextmanager
def running(
    nodes: Mapping[str, Mapping[str, str]], *, gpus: Collection[str] = ()
) -> Iterator[dict[str, int]]:
    """Run a cluster with these nodes and be connected to it; yield the pids of its raylets.

    A node offers a resource of its name, those in `gpus` what passes for a GPU. Its variables are
    those of its raylet and agents, and so of its workers.
    """
    os.environ.update(_QUIET)
    cluster = Cluster(shutdown_at_exit=False)
    # Ray notes the address of a cluster there, and expects the directory.
    Path(get_ray_address_file(None)).parent.mkdir(exist_ok=True)
    sessions = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
    raylets = {}
    try:
        for name, variables in nodes.items():
            node = cluster.add_node(
                num_cpus=2,  # as many workers may be starting, also where one never does
                num_gpus=int(name in gpus),
                resources={name: 100},
                include_dashboard=False,
                env_vars={**_QUIET, **variables},
                temp_dir=sessions.name,
            )
            raylets[name] = node.all_processes["raylet"][0].process.pid
        # Ray puts this directory on the path of the workers, where a source tree would stand in
        # front of what is installed.
        here = Path.cwd()
        os.chdir("/")
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        finally:
            os.chdir(here)
        yield raylets
    finally:
        ray.shutdown()
        cluster.shutdown()
        sessions.cleanup()
        for name in _QUIET:
            del os.environ[name]
