"""First use in a thread while another forks: the child finds no lock that nobody releases."""

from __future__ import annotations

import pytest
from support.layout import TORCHES
from support.process import cold
from support.rogues import rogue

# A finder whose modules call `interrupt` before they run, when their lock is held.
FINDER = """
    import json, os, signal, sys, threading, time
    from importlib.machinery import PathFinder

    class Finder:
        def find_spec(self, name, path=None, target=None):
            spec = PathFinder.find_spec(name, path) if name == slow else None
            if spec and not done:
                done.append(name)
                run = spec.loader.exec_module
                spec.loader.exec_module = lambda module: (interrupt(), run(module))
            return spec

    slow, done = "", []
    sys.meta_path.insert(0, Finder())
"""
# A thread that begins an import, and a fork in the middle of that.
FORKED = (
    FINDER
    + """
    slow, begun = sys.argv[1], threading.Event()
    interrupt = lambda: (begun.set(), time.sleep(0.3))
    for name in sys.argv[2].split():  # what others have imported is not imported again
        sys.modules.pop(name, None)
    import pyresolve

    def work():
        {work}

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(20), f"{{slow}} is not imported here"
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        work()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    thread.join()
    print(json.dumps(status))
"""
)
CHECK = "pyresolve.check({!r}, mode={!r})"
PICK = """try:
            pyresolve.pick("hook", python={!r})
        except pyresolve.PyresolveError:
            pass"""


@pytest.mark.parametrize(
    ("slow", "library", "mode"),
    [
        ("pyresolve._check.check", "good", "dlopen"),
        ("pyresolve._native", "good", "dlopen"),
        ("pyresolve._check.explain", "missing_needed", "dlopen"),
        ("pyresolve._check.explain", "segfault", "preload"),
    ],
)
def test_fork_during_the_first_check(slow, library, mode):
    """The import of what a check needs is not interrupted by a fork."""
    code = FORKED.format(work=CHECK.format(str(rogue(library)), mode))
    assert 0 == cold(code, slow, "")


@pytest.mark.parametrize(
    ("slow", "loaded", "python"),
    [
        ("pyresolve._pick.pick", "", None),
        ("shutil", "shutil", "python3"),
    ],
)
def test_fork_during_the_first_pick(slow, loaded, python):
    """Nor is that of what a pick needs, of the standard library as well."""
    assert 0 == cold(FORKED.format(work=PICK.format(python)), slow, loaded)


def test_fork_during_the_import_of_the_package(site):
    """The package that is asked for its own choice is imported as well."""
    site.tms().torch(*TORCHES[13])
    utils = site.root / "torch_memory_saver" / "utils.py"
    code = f"""
        import logging, types  # torch imports it as well
        sys.path.insert(0, {str(site.root)!r})
        sys.modules["torch"] = types.ModuleType("torch")
        sys.modules["torch"].version = types.SimpleNamespace(cuda="13.0")
    """
    assert utils.exists()
    head, tail = FORKED.split("    import pyresolve\n")
    work = PICK.format(None).replace("hook", "torch_memory_saver_hook_mode_preload")
    whole = head + code.replace("\n    ", "\n") + "    import pyresolve\n" + tail
    assert 0 == cold(whole.format(work=work), "torch_memory_saver.utils", "")


def test_pool_of_forks():
    """Threads that check for the first time, beside a pool that forks."""
    code = """
        import json, multiprocessing, sys, threading
        import pyresolve

        def work(_=None):
            return pyresolve.check(sys.argv[1]).status.name

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        with multiprocessing.get_context("fork").Pool(4) as pool:
            answer = pool.map_async(work, range(8)).get(timeout=30)
        for thread in threads:
            thread.join()
        print(json.dumps(sorted(set(answer))))
    """
    for _ in range(3):
        assert ["LOADABLE"] == cold(code, rogue("good"))


def test_fork_that_holds_what_the_import_waits_for():
    """The two wait for each other no longer than some seconds."""
    code = (
        FINDER
        + """
    import pyresolve
    from pyresolve import _imports

    def interrupt():
        os.register_at_fork(before=held.acquire, after_in_parent=held.release)
        begun.set()
        time.sleep(0.3)
        with held:
            pass

    slow, held, begun = "pyresolve._native", threading.Lock(), threading.Event()
    _imports._PATIENCE = 1.0
    answers = []
    thread = threading.Thread(target=lambda: answers.append(pyresolve.check(sys.argv[1])))
    thread.start()
    begun.wait()
    pid = os.fork()
    if pid == 0:
        with _imports.importing:
            os._exit(0)
    thread.join()
    print(json.dumps([answers[0].status.name, os.waitpid(pid, 0)[1]]))
"""
    )
    assert ["LOADABLE", 0] == cold(code, rogue("good"))


def test_fork_within_an_import():
    """A fork by the thread that imports does not wait for itself."""
    code = (
        FINDER
        + """
    import pyresolve

    interrupt, slow, pids = lambda: pids.append(os.fork()), "pyresolve._native", []
    signal.alarm(20)
    name = pyresolve.check(sys.argv[1]).status.name
    if pids[0] == 0:
        os._exit(0 if name == "LOADABLE" else 1)
    print(json.dumps([name, os.waitpid(pids[0], 0)[1]]))
"""
    )
    assert ["LOADABLE", 0] == cold(code, rogue("good"))


def test_monitor_in_a_child():
    """A monitor whose check runs in the parent answers in the child."""
    code = """
        import json, os, signal, sys, threading
        import pyresolve

        monitor = pyresolve.HealthMonitor(probe_timeout=20)
        first = monitor.check(sys.argv[1], timeout=0.01).status
        monitor._lock.acquire()  # by a thread that is not in the child
        pid = os.fork()
        if pid == 0:
            signal.alarm(20)
            os._exit(0 if monitor.check(sys.argv[2], timeout=15).status == "loadable" else 1)
        print(json.dumps([first, os.waitpid(pid, 0)[1]]))
        os._exit(0 if sys.stdout.flush() is None else 1)
    """
    assert ["pending", 0] == cold(code, rogue("loop"), rogue("good"))
