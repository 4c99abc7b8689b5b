"""What pyresolve costs: `make bench`, or `cd tests && python -m bench`.

It measures and does not judge: a figure beyond its target is printed with "no", and only an error
fails. The two sides of a ratio are taken in turns, in one run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest
from bench.interpreter import Interpreter
from bench.sampling import (
    Figure,
    Side,
    absolute,
    difference,
    interleaved,
    machine,
    ratio,
    table,
    timed,
)
from support.compile import workshop
from support.driver import full_stub
from support.hidden import hidden_toolkit, toolkit_directories
from support.layout import Site
from support.tools import find_tool, require_tool

import pyresolve

_HERE = Path(__file__).parent
_RESIDENT = 4 << 30


def main() -> None:
    """Measure all figures and print the table."""
    print("measuring, which takes less than a minute", file=sys.stderr)
    began, load = time.monotonic(), os.getloadavg()[0]
    os.chdir("/")  # where no source tree lies that `python -c` would import from
    site = Site(workshop() / "site-packages").tms().torch("13.0", "2.9.1+cu130")
    cudart = os.fspath(site.cudart(13) / "libcudart.so.13")
    figures = [
        *_checking(cudart),
        *_checking_from_afar(cudart),
        *_picking(site),
        *_launching(site),
        *_importing(),
        *_whole_processes(site, cudart),
    ]
    print(table(figures))
    print(f"\n{machine()}\nmeasured in {time.monotonic() - began:.0f} s")
    if load > (os.cpu_count() or 1) / 2:
        print(f"the machine was busy before (load {load:.1f}): measure again when it is quiet")
    if not Path(pyresolve.__file__).with_name("_bin").exists():
        print("pyresolve is installed editable, which makes its import slower")


def _checking(cudart: str) -> Iterator[Figure]:
    empty, opener = _program("empty"), _program("open")

    def check() -> int:
        begin = time.perf_counter_ns()
        report = pyresolve.check(cudart)
        taken = time.perf_counter_ns() - begin
        assert report.status is pyresolve.Status.LOADABLE, report.message
        return taken

    sides = {
        "check": check,
        "spawn": timed(lambda: _spawn(empty)),
        "dlopen": _opens(opener, cudart),
    }
    taken = interleaved(sides, runs=400, warmup=20)
    floor = [spawn + dlopen for spawn, dlopen in zip(taken["spawn"], taken["dlopen"], strict=True)]
    yield ratio("check(libcudart) / floor", taken["check"], floor, target=1.6)
    yield Figure(name="  floor: spawn + dlopen", samples=floor)
    yield Figure(name="  posix_spawn of an empty program and wait", samples=taken["spawn"])
    yield Figure(name="  dlopen(libcudart) in a fresh process", samples=taken["dlopen"])


def _checking_from_afar(cudart: str) -> Iterator[Figure]:
    free = _free_memory()
    if free < _RESIDENT * 5 // 4:
        print(f"check() from 4 GiB resident: not measured, {free / (1 << 30):.1f} GiB are free\n")
        return
    with Interpreter("--resident", str(_RESIDENT)) as big, Interpreter() as small:
        loadable = pyresolve.Status.LOADABLE.value
        sides = {
            "big": big.side("check", cudart, outcome=loadable),
            "small": small.side("check", cudart, outcome=loadable),
        }
        checks = interleaved(sides, runs=300, warmup=20)
        forks = interleaved(
            {"big": big.side("fork", outcome=0), "small": small.side("fork", outcome=0)}, runs=10
        )
    yield ratio("check() from 4 GiB resident / small", checks["big"], checks["small"], target=1.2)
    yield Figure(name="  from a small process", samples=checks["small"])
    yield ratio("  fork + exit from 4 GiB resident / small", forks["big"], forks["small"])


def _picking(site: Site) -> Iterator[Figure]:
    places = [("", ())]
    if toolkit_directories():
        try:
            places = [("toolkit visible, ", ()), ("toolkit hidden, ", hidden_toolkit())]
        except pytest.skip.Exception as reason:
            print(f"pick() with the toolkit hidden: not measured, {reason}\n")
    drivers = [("no driver", {}, "unknown"), ("driver", _with_driver(), "ok")]
    root = os.fspath(site)
    with ExitStack() as stack:
        picks: dict[str, Side] = {}
        envs: dict[str, Side] = {}
        interpreters = []
        for place, prefix in places:
            for driver, env, verdict in drivers:
                picker = Interpreter("--site", root, env=env, prefix=prefix)
                interpreters.append(stack.enter_context(picker))
                picks[f"pick(), {place}{driver}"] = picker.side("pick", outcome=verdict)
        changes = {"preload": ["LD_PRELOAD"], "library_path": ["LD_LIBRARY_PATH", "LD_PRELOAD"]}
        for pin, change in changes.items():
            envs[f'env(pin="{pin}")'] = interpreters[0].side("env", pin, outcome=change)
        taken = interleaved(picks, runs=200)
        informing = interleaved(envs, runs=200)
        for interpreter in interpreters:
            assert interpreter.ask("foreign")[1] == [], "pick() imported or mapped something"
    for name, samples in taken.items():
        yield absolute(name, samples, target=10)
    for name, samples in informing.items():
        yield Figure(name=f"  {name}", samples=samples)


def _launching(site: Site) -> Iterator[Figure]:
    """Measure the first call in a process: nothing of the decision or the rehearsals is kept."""
    code = """
import time, pyresolve
pyresolve.pick  # its import is another figure
begin = time.perf_counter_ns()
change = pyresolve.pick().env()
print(time.perf_counter_ns() - begin)
assert "LD_PRELOAD" in change
"""
    env = {**os.environ, "PYTHONPATH": os.fspath(site)}

    def first() -> int:
        command = [sys.executable, "-c", code]
        return int(subprocess.run(command, env=env, check=True, capture_output=True).stdout)

    name = "pick().env(), first in a process"
    yield absolute(name, interleaved({name: first}, runs=60)[name], target=25)


def _importing() -> Iterator[Figure]:
    sides = {
        "import": timed(lambda: _spawn(sys.executable, "-c", "import pyresolve")),
        "pass": timed(lambda: _spawn(sys.executable, "-c", "pass")),
    }
    taken = interleaved(sides, runs=200)
    yield difference(
        "python -c 'import pyresolve' over pass", taken["import"], taken["pass"], target=5
    )
    yield Figure(name="  python -c pass", samples=taken["pass"])


def _whole_processes(site: Site, cudart: str) -> Iterator[Figure]:
    code = f"import ctypes; ctypes.CDLL({cudart!r})"
    sides = {
        "python -I -S -c 'import ctypes; ctypes.CDLL(…)'": timed(
            lambda: _spawn(sys.executable, "-I", "-S", "-c", code)
        )
    }
    if ldd := find_tool("ldd"):
        sides["ldd libcudart"] = timed(lambda: _quiet(0, ldd, cudart))
    if find_spec("pyresolve.__main__"):
        env = {**os.environ, "PYTHONPATH": os.fspath(site)}
        sides["python -m pyresolve pick"] = timed(
            lambda: _quiet(3, sys.executable, "-m", "pyresolve", "pick", env=env)
        )
    for name, samples in interleaved(sides, runs=60, warmup=2).items():
        yield Figure(name=f"  {name}", samples=samples)


def _program(name: str) -> str:
    program = workshop() / name
    compiler = find_tool("gcc") or require_tool("cc")
    subprocess.run([compiler, "-O2", "-o", program, _HERE / f"{name}.c", "-ldl"], check=True)
    return os.fspath(program)


def _spawn(*command: str, actions: Sequence[tuple[int, int, int]] = (), status: int = 0) -> None:
    pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended == status, f"{command} ended with {ended}"


def _opens(program: str, library: str) -> Side:
    """Return the side that a fresh process measures with its own clock."""

    def side() -> int:
        reading, writing = os.pipe()
        try:
            _spawn(program, library, actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
            return int(os.read(reading, 64))
        finally:
            os.close(reading)
            os.close(writing)

    return side


def _quiet(status: int, *command: str, env: dict[str, str] | None = None) -> None:
    nowhere = subprocess.DEVNULL
    done = subprocess.run(command, stdout=nowhere, stderr=nowhere, env=env, check=False)
    assert done.returncode == status, f"{command} ended with {done.returncode}"


def _with_driver() -> dict[str, str]:
    inherited = os.environ.get("LD_LIBRARY_PATH")
    places = [os.fspath(full_stub()), *([inherited] if inherited else [])]
    return {"LD_LIBRARY_PATH": ":".join(places)}


def _free_memory() -> int:
    """Return the bytes that may be taken without swapping, in this container if it is one."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip() != "max":
        free = min(free, int(limit.read_text()) - int(used.read_text()))
    return free


if __name__ == "__main__":
    main()
