"""survey(): ask every node of a cluster what it would do, and see which ones differ."""

from __future__ import annotations

import math
import os
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .._errors import PyresolveError
from .._model import Verdict
from . import _node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_COMPARED = ("gpu", "driver", "torch", "runtimes", "build", "cuda_major", "verdict")
_CANNOT_IMPORT = "No module named 'pyresolve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node and what its workers would do.

    `gpu` is what Ray counts there, `driver` the highest CUDA version that the driver supports,
    `torch` its version, `runtimes` the versions of the CUDA runtimes that are installed, `build`
    the path of the hook that pick() chooses. Each is None, or empty, if there is none or the
    node did not say. `message` is the reason for the verdict, which is UNKNOWN for a node that has
    not `answered`. `differs` names the fields whose value is not that of most nodes.
    """

    id: str
    host: str
    address: str
    gpu: str | None
    answered: bool = False
    driver: str | None = None
    torch: str | None = None
    runtimes: tuple[str, ...] = ()
    build: str | None = None
    cuda_major: int | None = None
    verdict: Verdict = Verdict.UNKNOWN
    message: str = ""
    differs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        lists = {name: list(values[name]) for name in ("runtimes", "differs")}
        return {**values, **lists, "verdict": self.verdict.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All nodes that were alive, in the order of their names."""

    nodes: tuple[Node, ...]

    @property
    def alike(self) -> bool:
        """True if no node differs from the others."""
        return not any(node.differs for node in self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable."""
        return {"alike": self.alike, "nodes": [node.to_dict() for node in self.nodes]}


def survey(
    address: str | None = None,
    *,
    stem: str = "torch_memory_saver_hook_mode_preload",
    package: str = "torch_memory_saver",
    timeout: float = 30.0,
    progress: Callable[[int, int], None] | None = None,
) -> Survey:
    """Have a task look at each node of the cluster, and return what each would do.

    `address` is the cluster's, by default the one that this process is connected to or that Ray
    finds. The tasks take no CPU, so that a busy node answers too. `timeout` in seconds holds for
    all of them: a node that has not answered by then is a row with that reason. `progress` is
    called with the number of nodes that are done and of all. Raises PyresolveError if there is
    no cluster, and ValueError for another address than that of the connection.
    """
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout is {timeout!r}: give a positive number of seconds")
    with _connected(address, timeout):
        asked = {_ask(node, stem, package, timeout): node for node in map(_of, ray.nodes()) if node}
        done: list[Node] = []
        deadline = time.monotonic() + timeout
        pending = list(asked)
        while pending:
            if progress:
                progress(len(done), len(asked))
            left = max(0.0, deadline - time.monotonic())
            ready, pending = ray.wait(pending, timeout=left)
            if not ready:
                break
            done += [_answered(asked[ref], ref) for ref in ready]
        for ref in pending:
            ray.cancel(ref, force=True)
            message = f"it did not answer within {timeout:g} s: look at the node and its raylet"
            done.append(replace(asked[ref], message=message))
    if progress:
        progress(len(done), len(asked))
    return Survey(nodes=compared(sorted(done, key=lambda node: (node.host, node.id))))


@contextmanager
def _connected(address: str | None, timeout: float) -> Iterator[None]:
    if ray.is_initialized():
        connected = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", connected):
            raise ValueError(
                f"address is {address!r}, but this process is connected to {connected}"
            )
        yield
        return
    wanted = address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _knock(wanted, timeout)
        ray.init(address=wanted, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise PyresolveError(
            f"no Ray cluster at {wanted} ({reason}): give the address of its head, host:port"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str, timeout: float) -> None:
    """Raise OSError if nothing listens: Ray itself would try for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "://" not in address:
        socket.create_connection((host.strip("[]"), int(port)), timeout=timeout).close()


def _of(row: dict[str, Any]) -> Node | None:
    """Return a node that Ray takes for alive, about which nothing else is known yet."""
    if not row["Alive"]:
        return None
    resources = row["Resources"]
    kinds = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    count = resources.get("GPU", 0)
    return Node(
        id=row["NodeID"],
        host=row["NodeManagerHostname"],
        address=row["NodeManagerAddress"],
        gpu=f"{count:g} {' '.join(kinds) or 'GPU'}" if count else None,
    )


def _ask(node: Node, stem: str, package: str, timeout: float) -> ray.ObjectRef[Any]:
    there = NodeAffinitySchedulingStrategy(node.id, soft=False)
    task = ray.remote(_node.examine).options(
        num_cpus=0, max_retries=0, scheduling_strategy=there, name="pyresolve survey"
    )
    return task.remote(stem, package, timeout)


def _answered(node: Node, ref: ray.ObjectRef[Any]) -> Node:
    try:
        answer = ray.get(ref)
    except ray.exceptions.RayError as error:
        return replace(node, verdict=Verdict.FAIL, message=_reason(error))
    return replace(node, answered=True, **{**answer, "verdict": Verdict(answer["verdict"])})


def _reason(error: Exception) -> str:
    text = str(error).strip()
    if _CANNOT_IMPORT in text:
        return "pyresolve, or this version of it, is not installed for Ray's Python: install it"
    return f"it could not be asked: {text.splitlines()[-1].strip() or type(error).__name__}"


def compared(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes, each with the fields whose value is not that of most nodes.

    Builds are compared by file name: the same packages may lie in another directory. A node that
    did not answer has no values but its verdict.
    """
    answered = [node for node in nodes if node.answered]

    def differs(node: Node, name: str) -> bool:
        same = sum(_value(other, name) == _value(node, name) for other in answered)
        return same * 2 <= len(answered)

    return tuple(
        replace(
            node,
            differs=tuple(
                name
                for name in (_COMPARED if node.answered else ("verdict",))
                if len(nodes) > 1 and differs(node, name)
            ),
        )
        for node in nodes
    )


def _value(node: Node, name: str) -> object:
    value = getattr(node, name)
    return os.path.basename(value) if name == "build" and value else value  # noqa: PTH119
