"""slime's group of train actors, before and after: `python examples/slime_actor_group.py`.

The driver's node has no GPU, the two train nodes have CUDA 12 and CUDA 13. Here all of them are
processes of one machine that needs no GPU, with the real wheels and a stand-in for the driver's
library. Run it from a clone, after `pip install '.[test]'`; it wants a C compiler.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from pyresolve.ray import runtime_env

PATIENCE = 10.0  # seconds

# What slime sets for actors whose memory is to be taken off the GPU between rollouts.
OFFLOAD = {"TMS_INIT_ENABLE": "1", "TMS_INIT_ENABLE_CPU_BACKUP": "1"}


class TrainActor:
    """One rank of the training; here it only says what became of the hook in it."""

    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size

    def describe(self) -> str:
        """Return one line about this process."""
        import pyresolve

        audit = pyresolve.audit()
        offload = os.environ.get("TMS_INIT_ENABLE") == "1"
        found = "; ".join(finding.message for finding in audit.findings) or "takes effect"
        return f"on {os.environ['NODE']}: {audit.hook and audit.hook.name} {found}, {offload=}"


class TrainGroup:
    """As many actors as the placement group has bundles, one runtime environment for all."""

    def __init__(self, group: PlacementGroup, environment: dict[str, object]) -> None:
        actor = ray.remote(num_gpus=1, runtime_env=environment)(TrainActor)
        self.actors = [
            actor.options(
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=rank
                )
            ).remote(rank, group.bundle_count)
            for rank in range(group.bundle_count)
        ]

    def report(self) -> Iterator[str]:
        """Yield a line for each rank, whatever became of it."""
        lines = [actor.describe.remote() for actor in self.actors]
        for rank, line in enumerate(lines):
            yield f"rank {rank} {outcome(line)}"

    def end(self) -> None:
        """Give the GPUs back."""
        for actor in self.actors:
            ray.kill(actor)


def outcome(line: ray.ObjectRef) -> str:
    """Return what an actor says of itself, or what its caller learns instead."""
    try:
        return str(ray.get(line, timeout=PATIENCE))
    except ray.exceptions.GetTimeoutError:
        return f"hangs: no answer and no error within {PATIENCE:g} s"
    except ray.exceptions.RayError as error:
        return f"fails: {error}"


def before(site: Path) -> dict[str, object]:
    """Return the runtime environment as slime made it: the first file that the driver finds."""
    names = ("", "_cu12", "_cu13")
    hooks = [site / f"torch_memory_saver_hook_mode_preload{name}.abi3.so" for name in names]
    found = next(hook for hook in hooks if hook.exists())
    return {"env_vars": {"LD_PRELOAD": str(found), **OFFLOAD}}


def after() -> dict[str, object]:
    """Return it with pyresolve: each node decides for itself."""
    return runtime_env({"env_vars": OFFLOAD})


@contextmanager
def scene(root: Path) -> Iterator[Path]:
    """Run the three nodes; yield what the driver has for its site-packages."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support import cluster
    from support.driver import full_stub

    sites = {name: cluster.cuda_site(root / name, int(name[2:])) for name in ("cu12", "cu13")}
    nodes = {}
    for name, site in sites.items():
        libraries = (full_stub(), site.cudart_directory(int(name[2:])))
        nodes[name] = {**cluster.environment(site, libraries=libraries), "NODE": name}
    head = {**cluster.environment(sites["cu12"]), "NODE": "head"}
    with cluster.running({"head": head, **nodes}, gpus=list(nodes)):
        yield sites["cu12"].root


def main() -> None:
    """Start both groups, one after the other, and print what becomes of their ranks."""
    with tempfile.TemporaryDirectory() as root, scene(Path(root)) as site:
        group = placement_group([{"GPU": 1, "CPU": 1}] * 2, strategy="STRICT_SPREAD")
        ray.get(group.ready(), timeout=60)
        for title, environment in (("before", before(site)), ("after", after())):
            train = TrainGroup(group, environment)
            for line in train.report():
                print(f"{title}: {line}", flush=True)
            train.end()


if __name__ == "__main__":
    main()
