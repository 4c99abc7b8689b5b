"""Where the files of another process are, and whether it runs at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from support.process import poll
from support.tools import require_tool

from pyresolve._process import running
from pyresolve._process.running import View


@pytest.fixture
def root(tmp_path):
    """Return the root directory of a process, full of links, beside a file that it cannot see."""
    (tmp_path / "secret").write_text("outside")
    root = tmp_path / "root"
    (root / "opt/lib").mkdir(parents=True)
    (root / "opt/lib/real").write_text("inside")
    for link, target in {
        "absolute": "/opt/lib/real",
        "relative": "opt/lib/real",
        "directory": "/opt/lib",
        "opt/lib/up": "../../directory/real",
        "escape": "../../../secret",
        "chain": "/absolute",
        "loop": "/loop",
        "dangling": "/nowhere",
        "outside": str(tmp_path / "secret"),
    }.items():
        (root / link).symlink_to(target)
    return root


@pytest.mark.parametrize(
    ("path", "leads_to"),
    [
        ("/opt/lib/real", "opt/lib/real"),
        ("/opt//lib/./real", "opt/lib/real"),
        ("/absolute", "opt/lib/real"),
        ("/relative", "opt/lib/real"),
        ("/chain", "opt/lib/real"),
        ("/directory/real", "opt/lib/real"),
        ("/directory/../lib/real", "opt/lib/real"),
        ("/opt/lib/up", "opt/lib/real"),
        ("/../opt/lib/real", "opt/lib/real"),
    ],
)
def test_links_are_those_of_the_process(root, path, leads_to):
    """An absolute link begins at its root directory, above which nothing is."""
    view = View(root=str(root))
    assert (root / leads_to, Path("/", leads_to)) == (
        view.at(Path(path)),
        view.resolve(Path(path)),
    )


@pytest.mark.parametrize(
    "path", ["/escape", "/outside", "/loop", "/dangling", "/../secret", "/opt/../../secret"]
)
def test_no_path_leads_out(root, path):
    """What is not there for the process is nowhere, whatever lies beside its root directory."""
    assert not View(root=str(root)).at(Path(path)).exists()


def test_own_files_are_where_they_are(root):
    """Of this process no path is changed."""
    view = View.of(os.getpid())
    assert root / "absolute" == view.at(root / "absolute")
    assert root / "loop" == view.at(root / "loop")
    assert view.seen


def test_paths_below_another_root():
    """The maps show them from the root of the mount namespace, the process from its own."""
    view = View(root="/proc/1/root", prefix="/srv/jail")
    assert [Path("/lib/x.so"), Path("/srv/jailed/x.so"), Path("/x.so")] == [
        view.named(path) for path in ("/srv/jail/lib/x.so", "/srv/jailed/x.so", "/x.so")
    ]


def test_nothing_is_found_where_nobody_may_look():
    """As of a process that has ended."""
    view = View.of(2**22 + 1)
    assert (False, False) == (view.seen, view.at(Path("/bin/sh")).exists())


def test_state_of_a_process():
    """While it runs, as a zombie, and after that; its start time tells it from another."""
    child = subprocess.Popen([require_tool("sleep"), "60"])
    state, started = running.state(child.pid)
    assert (True, True) == (state not in running.ENDED, started.isdigit())
    child.kill()
    assert poll(lambda: running.state(child.pid)[0] == "Z")
    assert running.state(child.pid)[1] == started
    child.wait()
    assert ("", "") == running.state(child.pid)


@pytest.mark.parametrize("pid", [0, -1, -(2**40), 2**22 + 1, 2**40])
def test_no_process_has_such_a_number(pid):
    """For kill(2) some of these are groups, or everything."""
    assert ("", "") == running.state(pid)
