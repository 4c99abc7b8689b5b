"""HealthMonitor: cheap where nothing changed, never blocked, and nothing left behind."""

from __future__ import annotations

import gc
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from health.cases import OWN_SOURCES
from support import hungfs, process
from support.compile import SOURCES, built
from support.process import cold, poll
from support.rogues import rogue
from support.tools import require_unshare, unavailable

from pyresolve import HealthMonitor, Verdict
from pyresolve._process import running
from pyresolve.health import monitor

TESTS = Path(__file__).parent.parent
LONG = 60.0  # seconds, for what has to come at last
SLACK = 1.0  # seconds, generous: what this machine may do besides


class Counted:
    """A library that writes down each of its loads."""

    def __init__(self, directory: Path) -> None:
        self.log = directory / "log"
        self.path = Path(shutil.copy(built(OWN_SOURCES / "counted.c", "counted.so"), directory))
        self.settle()

    def settle(self) -> None:
        """Wait until the file is older than the kernel's clock is coarse."""
        changed = self.path.stat().st_ctime_ns
        assert poll(lambda: time.time_ns() > changed + 100_000_000)

    @property
    def loads(self) -> int:
        """Return how often it was loaded, each time alone."""
        text = self.log.read_text() if self.log.exists() else ""
        assert "++" not in text, "loaded twice at a time"
        return text.count("+")


@pytest.fixture
def counted(tmp_path):
    """Return a library that counts."""
    return Counted(tmp_path)


@pytest.fixture
def environ(counted, clean_env):
    """Return the environment in which it counts."""
    return {**clean_env, "COUNTED_FILE": os.fspath(counted.log)}


def state(health):
    return health.verdict, health.status


OK = (Verdict.OK, "loadable")


# --- what is kept, and for how long


def test_same_file_is_loaded_once(counted, environ):
    """An OK is kept, with the time when it was found out."""
    monitor = HealthMonitor(environ=environ)
    first = monitor.check(counted.path, timeout=LONG)
    second = monitor.check(counted.path, timeout=LONG)
    assert (OK, first, 1) == (state(first), second, counted.loads)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.replace(shutil.copy(path, path.with_name("new")), path),
        lambda path: os.utime(path),
        lambda path: path.chmod(0o700),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    ],
    ids=["replaced", "touched", "permissions", "rewritten"],
)
def test_changed_file_is_loaded_again(counted, environ, change):
    """Whatever about it changed."""
    monitor = HealthMonitor(environ=environ)
    monitor.check(counted.path, timeout=LONG)
    change(counted.path)
    counted.settle()
    assert OK == state(monitor.check(counted.path, timeout=LONG))
    assert 2 == counted.loads


def test_dependency_that_vanishes_is_noticed(tmp_path, clean_env):
    """Not only the file itself is looked at, but all that was loaded with it."""
    needed = built(OWN_SOURCES / "counted.c", "libneeded.so", "-Wl,-soname,libneeded.so")
    library = built(SOURCES / "hollow.c", "needs.so", needed)
    own = Path(shutil.copy(needed, tmp_path / "libneeded.so"))
    monitor = HealthMonitor(environ={**clean_env, "LD_LIBRARY_PATH": os.fspath(tmp_path)})
    assert OK == state(monitor.check(library, timeout=LONG))
    own.unlink()
    health = monitor.check(library, timeout=LONG)
    assert (Verdict.FAIL, "missing_dependency") == state(health)


def test_variable_that_matters(counted, environ):
    """LD_LIBRARY_PATH has it tried again, PATH has not."""
    monitor = HealthMonitor(environ=environ)
    for name in "PATH", "LD_LIBRARY_PATH":
        monitor.check(counted.path, timeout=LONG)
        environ[name] = "/nowhere"
    monitor.check(counted.path, timeout=LONG)
    assert 2 == counted.loads


def test_maximum_age(counted, environ):
    """That another file would be found first shows only when it is tried again."""
    monitor = HealthMonitor(environ=environ, max_age=0)
    for _ in range(3):
        monitor.check(counted.path, timeout=LONG)
    assert 3 == counted.loads


def test_file_that_changes_while_it_is_tried_is_not_kept(counted, environ):
    """One cannot know which of the two was loaded."""
    monitor = HealthMonitor(environ=environ, interval=0)
    os.utime(counted.path, ns=(time.time_ns() + 10**12,) * 2)
    for _ in range(3):
        assert OK == state(monitor.check(counted.path, timeout=LONG))
    assert 3 == counted.loads


@pytest.mark.parametrize(("interval", "expected"), [(0, Verdict.OK), (3600, Verdict.FAIL)])
def test_failure_is_tried_again_after_the_interval(tmp_path, clean_env, interval, expected):
    """And not before, however often somebody asks."""
    monitor = HealthMonitor(environ=clean_env, interval=interval)
    path = tmp_path / "good.so"
    assert (Verdict.FAIL, "not_found") == state(monitor.check(path, timeout=LONG))
    shutil.copy(rogue("good"), path)
    assert expected is monitor.check(path, timeout=LONG).verdict


def test_modes_are_two_targets(counted, environ):
    """What loads may not preload; misuse is an error."""
    monitor = HealthMonitor(environ=environ)
    for mode in "dlopen", "preload", "dlopen", "preload":
        assert OK == state(monitor.check(counted.path, mode=mode, timeout=LONG))
    assert 3 == counted.loads  # a preload is started twice
    with pytest.raises(ValueError, match="mode is 'lazy'"):
        monitor.check(counted.path, mode="lazy")


def test_names_and_relative_paths(counted, environ, monkeypatch):
    """A name is the loader's to search; a relative path is meant as of now."""
    monitor = HealthMonitor(environ=environ)
    assert OK == state(monitor.check("libm.so.6", timeout=LONG))
    monkeypatch.chdir(counted.path.parent)
    assert OK == state(monitor.check(f"./{counted.path.name}", timeout=LONG))
    monkeypatch.chdir("/")
    assert "not_found" == monitor.check(f"./{counted.path.name}", timeout=LONG).status


def test_own_environment(counted, monkeypatch):
    """Where none is given it is that of the process, as it is at each call."""
    monkeypatch.setenv("COUNTED_FILE", os.fspath(counted.log))
    monitor = HealthMonitor()
    monitor.check(counted.path, timeout=LONG)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    monitor.check(counted.path, timeout=LONG)
    assert 2 == counted.loads


def test_health_as_plain_data(tmp_path, clean_env):
    """What docs/json.md says, with the number of its schema."""
    health = HealthMonitor(environ=clean_env).check(tmp_path / "gone.so", timeout=LONG)
    data = json.loads(json.dumps(health.to_dict()))
    assert (1, "gone.so", "fail", "not_found") == (
        data["schema"],
        data["file"],
        data["verdict"],
        data["status"],
    )
    assert data["report"]["message"] == data["message"] == health.message
    text = (TESTS.parent / "docs" / "json.md").read_text()
    (described,) = (part for part in text.split("\n\n") if part.startswith("**health**"))
    assert {key for key in data if f"`{key}`" not in described} == {"schema"}


# --- several at once, and what hangs


def test_callers_share_a_probe(counted, environ):
    """Sixteen threads, one load at a time, one answer."""
    monitor = HealthMonitor(environ=environ)
    together = threading.Barrier(16)

    def ask(_):
        together.wait()
        return monitor.check(counted.path, timeout=LONG)

    with ThreadPoolExecutor(16) as pool:
        assert 1 == len(set(map(id, pool.map(ask, range(16)))))
    assert 1 == counted.loads


def test_hanging_target_delays_no_other(counted, environ):
    """It is pending while the others have their answers, then timed out."""
    hanging = rogue("sleep_ignoring_sigterm")
    monitor = HealthMonitor(environ=environ, probe_timeout=3.0)
    began = time.monotonic()
    first = monitor.check(hanging, timeout=0.01)
    good = monitor.check(counted.path, timeout=LONG)
    assert ((Verdict.UNKNOWN, "pending"), True) == (state(first), first.pending)
    assert (OK, True) == (state(good), time.monotonic() - began < 3.0)
    assert (Verdict.FAIL, "timed_out") == state(monitor.check(hanging, timeout=LONG))


def test_last_answer_while_there_is_no_new_one(tmp_path, clean_env):
    """A call has a deadline of its own, and says that a newer answer is on its way."""
    path = Path(shutil.copy(rogue("good"), tmp_path / "target.so"))
    changed = path.stat().st_ctime_ns
    assert poll(lambda: time.time_ns() > changed + 100_000_000)
    monitor = HealthMonitor(environ=clean_env, probe_timeout=2.0)
    assert (OK, False) == (
        state(monitor.check(path, timeout=LONG)),
        monitor.check(path, timeout=LONG).pending,
    )
    os.replace(shutil.copy(rogue("sleep_ignoring_sigterm"), tmp_path / "new.so"), path)
    last = monitor.check(path, timeout=0.01)
    assert (OK, True) == (state(last), last.pending)
    assert (Verdict.FAIL, "timed_out") == state(monitor.check(path, timeout=LONG))


STUCK = """
    import json, os, sys, time
    from pathlib import Path
    from pyresolve import HealthMonitor
    from support.hungfs import hung
    from support.process import alive, poll

    mount, library = map(Path, sys.argv[1:])
    monitor = HealthMonitor(environ={}, interval=0, probe_timeout=0.3)
    with hung(mount, library, reader=os.getpid()) as path:
        began = time.monotonic()
        waited = monitor.check(path, timeout=0.1)
        blocked = time.monotonic() - began
        first = monitor.check(path, timeout=60)
        state = Path(f"/proc/{first.pid}/stat").read_text().rpartition(")")[2].split()[0]
        again = [monitor.check(path, timeout=60) for _ in range(20)]
    ended = poll(lambda: not alive(first.pid))
    after = monitor.check(path, timeout=60)
    print(json.dumps([waited.status, blocked, first.to_dict(), state,
                      all(health is first for health in again), ended, after.to_dict()]))
"""


@pytest.fixture
def mount(tmp_path):
    """Return a directory for a file system that does not answer."""
    if not hungfs.available():
        unavailable("this user may not open /dev/fuse")
    directory = tmp_path / "mount"
    directory.mkdir()
    return directory


def in_namespace(code, *args):
    """Run a snippet that may mount."""
    env = {**os.environ, "PYTHONPATH": os.fspath(TESTS)}
    return cold(code, *args, prefix=[require_unshare(), "-rm"], env=env)


def test_target_that_cannot_be_killed(mount):
    """Its process sleeps in the kernel: its pid is told, and it is left alone while that lives."""
    waited, blocked, first, state, same, ended, after = in_namespace(STUCK, mount, rogue("good"))
    assert ("pending", True) == (waited, blocked < 0.1 + SLACK)
    assert ("fail", "timed_out", f"pid {first['pid']} is stuck") == (
        first["verdict"],
        first["status"],
        first["detail"],
    )
    assert f"process {first['pid']}, which loads it, cannot be killed" in first["message"]
    assert ("D", True, True) == (state, same, ended)
    assert None is after["pid"]  # tried again once that was over


HIDDEN = """
    import json, os, subprocess
    from pyresolve.health.monitor import Leftover

    with subprocess.Popen(["sleep", "60"]) as child:
        seen = Leftover.of(child.pid)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/proc"], check=True)
        leftover = Leftover.of(child.pid)
        lives = [leftover.lives(), seen.lives()]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        lives += [leftover.lives(), seen.lives()]
    print(json.dumps([*lives, leftover.lives(), seen.lives()]))
"""


def test_process_that_proc_hides():
    """A process that /proc does not show, or no longer, may still run; a zombie does not."""
    assert [True, True, False, False, False, False] == in_namespace(HIDDEN)


def test_process_of_another_user(monkeypatch):
    """kill(2) says EPERM of a process that is not ours, and ESRCH of none."""
    monkeypatch.setattr(running, "Path", lambda path: Path("/nonexistent"))
    for error, lives in (PermissionError(), True), (ProcessLookupError(), False):

        def kill(pid, number, error=error):
            raise error

        monkeypatch.setattr(os, "kill", kill)
        assert lives is (monitor.Leftover.of(1) is not None)


BLOCKED = """
    import json, sys, threading
    from pathlib import Path
    from pyresolve import HealthMonitor
    from support.hungfs import hung
    from support.process import poll

    mount, library = map(Path, sys.argv[1:])
    monitor = HealthMonitor(environ={}, interval=0, probe_timeout=0.1)
    with hung(mount, library, reader=0) as path:
        first = monitor.check(path, timeout=0.1)
        late = poll(lambda: monitor.check(path, timeout=0.01).status == "timed_out", 30)
        threads = threading.active_count()
    print(json.dumps([first.status, late, threads, monitor.check(path, timeout=60).status]))
"""


def test_file_system_that_blocks_the_thread(mount):
    """Not even to look at the file comes back; the caller does, and no more threads are spent."""
    status, late, threads, after = in_namespace(BLOCKED, mount, rogue("good"))
    assert ("pending", True) == (status, late)
    assert threads <= 2
    assert after != "pending"


# --- over and over


def measured():
    gc.collect()
    return process.rss_kib(), threading.active_count(), process.open_fds(), process.children()


def assert_flat(before, after, growth_kib):
    rss, *counts = zip(before, after, strict=True)
    assert all(old == new for old, new in counts)
    assert rss[1] - rss[0] < growth_kib


def test_ten_thousand_calls(counted, environ):
    """One load; descriptors, threads, children and memory stay as they are."""
    monitor = HealthMonitor(environ=environ, max_age=3600)
    for _ in range(500):
        monitor.check(counted.path, timeout=LONG)
    before = measured()
    for _ in range(10_000):
        assert monitor.check(counted.path, timeout=LONG).verdict is Verdict.OK
    poll(lambda: threading.active_count() == before[1])
    assert_flat(before, measured(), 2048)
    assert 1 == counted.loads


def test_hundreds_of_probes(clean_env):
    """As above, where each call is a process, and one that crashes."""
    monitor = HealthMonitor(environ=clean_env, interval=0)
    path = rogue("segfault")
    for _ in range(50):
        monitor.check(path, timeout=LONG)
    before = measured()
    for _ in range(300):
        assert monitor.check(path, timeout=LONG).status == "crashed"
    poll(lambda: threading.active_count() == before[1])
    assert_flat(before, measured(), 4096)
