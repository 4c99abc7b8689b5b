"""survey() and `pyresolve ray survey` on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
import time

import pytest
import ray
from support.command import environment, pyresolve, run

from pyresolve import Verdict
from pyresolve.ray import Node, survey
from pyresolve.ray._survey import compared

ROWS = {
    "cu12": (Verdict.OK, 12, "13.0", "2.9.1+cu128"),
    "cu13": (Verdict.OK, 13, "13.0", "2.9.1+cu130"),
    "bare": (Verdict.FAIL, None, None, None),
    "plain": (Verdict.OK, 13, "13.0", "2.9.1+cu130"),
    "lost": (Verdict.FAIL, None, None, None),
}


def by_name(rows):
    """Return the rows by the names of the nodes: all of them have the same host name."""
    names = {
        row["NodeID"]: name for row in ray.nodes() for name in ROWS if name in row["Resources"]
    }
    return {names[row.id]: row for row in rows}


def test_a_row_for_every_node(nodes):
    """Each says what its own workers would do; those that are not like most are marked."""
    calls = []
    result = survey(progress=lambda done, total: calls.append((done, total)))
    rows = by_name(result.nodes)
    seen = {n: (row.verdict, row.cuda_major, row.driver, row.torch) for n, row in rows.items()}
    assert ROWS == seen
    assert str(nodes.cu12.hook("_cu12")) == rows["cu12"].build
    assert rows["bare"].message.startswith("torch_memory_saver is not installed")
    lost = "pyresolve, or this version of it, is not installed for Ray's Python: install it"
    assert (lost, False) == (rows["lost"].message, rows["lost"].answered)
    assert (0, 5) == calls[0]
    assert (5, 5) == calls[-1]


def test_command_prints_a_table(nodes, clean_env):
    """One row a node, a star at what differs, and the exit status of the worst."""
    address = ray.get_runtime_context().gcs_address
    done = pyresolve("ray", "survey", "--address", address, env=clean_env)
    heading, *rows = done.stdout.splitlines()
    assert (1, "", 5) == (done.returncode, done.stderr, len(rows))
    assert ["host", "GPU", "driver", "torch", "runtimes", "build", "verdict"] == heading.split()
    assert 1 == sum("2.9.1+cu128*" in row and "_cu12.abi3.so*" in row for row in rows)


def test_frozen_node_is_a_row(nodes, clean_env):
    """Its raylet is stopped: the survey ends in time, and says of which node it heard nothing."""
    address = ray.get_runtime_context().gcs_address
    options = ["--address", address, "--timeout", "6", "--json"]
    os.kill(nodes.raylets["bare"], signal.SIGSTOP)
    try:
        begin = time.monotonic()
        done = pyresolve("ray", "survey", *options, env=clean_env)
        spent = time.monotonic() - begin
    finally:
        os.kill(nodes.raylets["bare"], signal.SIGCONT)
    document = json.loads(done.stdout)
    assert {"schema", "alike", "nodes"} == document.keys()
    silent = [row for row in document["nodes"] if row["verdict"] == "unknown"]
    message = "it did not answer within 6 s: look at the node and its raylet"
    assert [(message, False, ["verdict"])] == [
        (row["message"], row["answered"], row["differs"]) for row in silent
    ]
    assert 5 == len(document["nodes"])
    assert spent < 30  # the connection to Ray included


@pytest.mark.parametrize("address", ["127.0.0.1:1", "localhost:1"])
def test_no_cluster_there(clean_env, address):
    """Ray itself would try for minutes."""
    done = pyresolve("ray", "survey", "--address", address, env=clean_env)
    assert (1, "") == (done.returncode, done.stdout)
    assert done.stderr.startswith(f"pyresolve: no Ray cluster at {address} (")


def test_another_address_than_that_of_the_connection(nodes):
    """It is refused: a process is connected to one cluster."""
    with pytest.raises(ValueError, match="but this process is connected to"):
        survey("127.0.0.1:1")


def node(name, **values):
    """Return a row of a node that answered."""
    return Node(id=name, host=name, address="", gpu=None, answered=True, **values)


@pytest.mark.parametrize(
    ("torches", "differs"),
    [
        (["2"], [()]),
        (["2", "2"], [(), ()]),
        (["2", "2", "3"], [(), (), ("torch",)]),
        (["2", "3"], [("torch",), ("torch",)]),
        (["2", "3", "4"], [("torch",)] * 3),
    ],
)
def test_what_differs(torches, differs):
    """A node is marked where its value is not that of most nodes."""
    rows = compared([node(str(i), torch=torch) for i, torch in enumerate(torches)])
    assert differs == [row.differs for row in rows]


def test_builds_are_compared_by_name():
    """The same packages may lie in another directory."""
    rows = compared([node("a", build="/a/x_cu12.so"), node("b", build="/b/x_cu12.so")])
    assert [(), ()] == [row.differs for row in rows]


def test_without_ray_it_is_a_sentence():
    """The extra is named; and the library itself never imports Ray."""
    code = """
        import json, sys
        import pyresolve, pyresolve.cli
        pyresolve.pick
        before = "ray" in sys.modules
        sys.modules["ray"] = None
        status = pyresolve.cli.main(["ray", "survey", "--json"])
        try:
            import pyresolve.ray
        except ImportError as error:
            print(json.dumps([before, status, str(error)]), file=sys.stderr)
    """
    done = run([sys.executable, "-c", textwrap.dedent(code)], env=environment())
    told = "pyresolve.ray needs Ray: install pyresolve-native with its extra 'ray'"
    said, answer = done.stderr.splitlines()
    assert f"pyresolve: {told}" == said
    assert [False, 1, told] == json.loads(answer)
    assert ("PyresolveError", told) == tuple(map(json.loads(done.stdout).get, ("error", "message")))
