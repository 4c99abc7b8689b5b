"""The ways to find out whether a library loads, ours and others: each done once, and timed.

They run in a process of their own, which `_caller` starts.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pyresolve

from .._process.helper import HELPER

if TYPE_CHECKING:
    from pyresolve import Choice

FLOOR = str(Path(HELPER).with_name("pyresolve-floor"))
STEM = "torch_memory_saver_hook_mode_preload"

_TIMEOUT = 120.0  # seconds; a first import of torch from a network file system takes its time
_EVEN_UNKNOWN = (0, 3)  # exit statuses of a `pyresolve pick` that has an answer


class Unmeasurable(Exception):  # noqa: N818  (an answer that goes into the table)
    """This cannot be measured here, and why."""


class Kind(Enum):
    """Whose way it is."""

    FLOOR = "floor"
    OURS = "pyresolve"
    ALTERNATIVE = "alternative"


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way. `run` is given the path of the library and returns nanoseconds.

    `loads` says that it wants the environment in which that library loads, not the user's own;
    `forks` that it makes whatever its process does next slower: every page has to be taken back.
    `base` names what it is compared with from one day to another.
    """

    name: str
    text: str
    kind: Kind
    run: Callable[[str], int]
    loads: bool = True
    forks: bool = False
    base: str = "floor"


def _timed(action: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    action()
    return time.perf_counter_ns() - begin


def _spawn(_library: str) -> int:
    begin = time.perf_counter_ns()
    try:
        pid = os.posix_spawn(FLOOR, [FLOOR], os.environ)
    except OSError as error:
        raise Unmeasurable(f"{FLOOR}: {error.strerror}; reinstall pyresolve-native") from None
    status = os.waitpid(pid, 0)[1]
    taken = time.perf_counter_ns() - begin
    if status:
        raise Unmeasurable(f"an empty program ended with wait status {status}")
    return taken


def _floor(library: str) -> int:
    spawned = _spawn(library)
    _, words = _run([FLOOR, library])
    return spawned + int(words)


def _checked(library: str, mode: str) -> int:
    begin = time.perf_counter_ns()
    report = pyresolve.check(library, mode=mode)
    taken = time.perf_counter_ns() - begin
    if mode == "dlopen" and report.verdict is not pyresolve.Verdict.OK:
        raise Unmeasurable(report.message)
    return taken


def _pick(_library: str) -> int:
    return _timed(pyresolve.pick)


@lru_cache(maxsize=1)
def _choice() -> Choice:
    return pyresolve.pick()


def _env(_library: str) -> int:
    choice = _choice()
    return _timed(choice.env)


def _env_anew(_library: str) -> int:
    choice, another = _choice(), {**os.environ, "PYRESOLVE_BENCH": "1"}
    return _timed(lambda: choice.env(another))


def _first_pick(_library: str) -> int:
    code = "import time, pyresolve; pyresolve.pick; begin = time.perf_counter_ns()"
    code += "; pyresolve.pick().env(); print(time.perf_counter_ns() - begin)"
    return int(_run(_python(code))[1].split()[-1])


def _pyresolve_pick(_library: str) -> int:
    import sysconfig

    script = Path(sysconfig.get_path("scripts"), "pyresolve")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "pyresolve"]
    return _run([*command, "pick"], accepted=_EVEN_UNKNOWN)[0]


def _python_pass(_library: str) -> int:
    return _run([sys.executable, "-c", "pass"])[0]


def _fork(library: str) -> int:
    import ctypes

    return _forked_warm(lambda: ctypes.CDLL(library))


def _fork_exit(_library: str) -> int:
    return _forked_warm(lambda: None)


def _forked_warm(action: Callable[[], object]) -> int:
    """Return the second of two: before the first, another process's turn emptied the caches.

    The copy of 4 GiB of page tables is such a turn, and it would count against the small process.
    """
    _forked(action)
    return _forked(action)


def _forked(action: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    pid = os.fork()
    if pid == 0:
        try:
            action()
        except BaseException:  # noqa: BLE001  (nothing of ours may run twice)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    taken = time.perf_counter_ns() - begin
    if status:
        raise Unmeasurable(f"the forked child ended with wait status {status}")
    return taken


def _python_child(library: str) -> int:
    return _run([sys.executable, "-I", "-S", "-c", f"import ctypes; ctypes.CDLL({library!r})"])[0]


def _ldd(library: str) -> int:
    import shutil

    ldd = shutil.which("ldd")
    if not ldd:
        raise Unmeasurable("ldd is not installed, or not on PATH")
    return _run([ldd, library])[0]


def _resolver(_library: str) -> int:
    code = "from torch_memory_saver.utils import get_binary_path_from_package as resolve"
    return _run(_python(f"{code}; resolve({STEM!r})"))[0]


def _pathfinder(_library: str) -> int:
    code = "from cuda.pathfinder import load_nvidia_dynamic_lib as load; load('cudart')"
    return _run(_python(code))[0]


def _python(code: str) -> list[str]:
    """Return the command that runs this and, unlike `python -c`, does not import from here."""
    return [sys.executable, "-c", f"import sys; sys.path[:1] == [''] and sys.path.pop(0); {code}"]


def _run(argv: list[str], accepted: Sequence[int] = (0,)) -> tuple[int, str]:
    """Run a program to its end; return its nanoseconds and what it printed."""
    reading, writing = os.pipe()
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, writing, 1),
            (os.POSIX_SPAWN_DUP2, writing, 2),
        ]
        begin = time.perf_counter_ns()
        try:
            pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=actions)
        except OSError as error:
            raise Unmeasurable(f"{argv[0]}: {error.strerror}") from None
        finally:
            os.close(writing)
        words, ended = _read_to_the_end(reading)
        if not ended:
            os.kill(pid, 9)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        taken = time.perf_counter_ns() - begin
    finally:
        os.close(reading)
    if not ended:
        raise Unmeasurable(f"{argv[0]} did not end within {_TIMEOUT:g} s")
    if status not in accepted:
        lines = words.strip().splitlines() or [f"it ended with status {status}"]
        raise Unmeasurable(lines[-1])
    return taken, words


def _read_to_the_end(fd: int) -> tuple[str, bool]:
    """Return what comes until nobody holds the other end, and whether that was in time."""
    import select

    poll = select.poll()
    poll.register(fd, select.POLLIN)
    end = time.monotonic() + _TIMEOUT
    parts: list[bytes] = []
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        part = os.read(fd, 65536)
        if not part:
            return os.fsdecode(b"".join(parts)), True
        parts.append(part)
    return os.fsdecode(b"".join(parts)), False


METHODS = {
    method.name: method
    for method in (
        Method(
            name="floor",
            text="the floor: an empty program, and dlopen in a fresh one",
            kind=Kind.FLOOR,
            run=_floor,
        ),
        Method(
            name="spawn",
            text="posix_spawn of an empty program, and wait",
            kind=Kind.FLOOR,
            run=_spawn,
        ),
        Method(
            name="check",
            text="check(), by dlopen",
            kind=Kind.OURS,
            run=lambda library: _checked(library, "dlopen"),
        ),
        Method(
            name="check_preload",
            text="check(mode='preload')",
            kind=Kind.OURS,
            run=lambda library: _checked(library, "preload"),
        ),
        Method(name="pick", text="pick(), verified", kind=Kind.OURS, run=_pick, loads=False),
        Method(name="env", text="env(), as picked", kind=Kind.OURS, run=_env, loads=False),
        Method(
            name="env_anew",
            text="env(another environment), rehearsed",
            kind=Kind.OURS,
            run=_env_anew,
            loads=False,
        ),
        Method(
            name="first_pick",
            text="pick().env(), the first in a process",
            kind=Kind.OURS,
            run=_first_pick,
            loads=False,
            base="python_pass",
        ),
        Method(
            name="pyresolve_pick",
            text="pyresolve pick, the whole process",
            kind=Kind.OURS,
            run=_pyresolve_pick,
            loads=False,
            base="python_pass",
        ),
        Method(
            name="python_pass",
            text="python -c pass",
            kind=Kind.ALTERNATIVE,
            run=_python_pass,
            loads=False,
        ),
        Method(name="fork", text="fork() + dlopen in the child", kind=Kind.ALTERNATIVE, run=_fork),
        Method(
            name="fork_exit", text="fork() alone", kind=Kind.ALTERNATIVE, run=_fork_exit, forks=True
        ),
        Method(name="ldd", text="ldd", kind=Kind.ALTERNATIVE, run=_ldd),
        Method(
            name="python_child",
            text="python -I -S -c ctypes.CDLL(…)",
            kind=Kind.ALTERNATIVE,
            run=_python_child,
        ),
        Method(
            name="pathfinder",
            text="cuda-pathfinder, cold",
            kind=Kind.ALTERNATIVE,
            run=_pathfinder,
            loads=False,
        ),
        Method(
            name="resolver",
            text="the package's own resolver, cold",
            kind=Kind.ALTERNATIVE,
            run=_resolver,
            loads=False,
        ),
    )
}
