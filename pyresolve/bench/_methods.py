"""The ways to find out whether a library loads, ours and others. Each runs once and is timed.

They run in the process that `_caller` starts. All times are seconds.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyresolve

if TYPE_CHECKING:
    from pyresolve import Choice

FLOOR = str(Path(pyresolve.__file__).with_name("_bin") / "pyresolve-floor")

_SILENCE = 120.0  # seconds; a first import of torch from a network file system can be slow
_PICKED = (0, 3)  # exit statuses of a `pyresolve pick` that printed a path


class Unmeasurable(Exception):  # noqa: N818  (a result, which the table shows)
    """This cannot be measured here; the text says why."""


class Kind(Enum):
    """Who provides the method."""

    FLOOR = "floor"
    OURS = "pyresolve"
    ALTERNATIVE = "alternative"


@dataclass(frozen=True, slots=True)
class Method:
    """One way. `run` takes the path of the library and returns seconds.

    `loads`: run it in the environment in which that library loads, not in the user's own.
    `forks`: give it a process of its own, because a fork makes its parent slower afterwards: each
    page that the parent writes to faults once more.
    `base`: the method that `--compare` divides its time by.
    """

    text: str
    kind: Kind
    run: Callable[[str], float]
    loads: bool = True
    forks: bool = False
    base: str = "floor"


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def _spawn(_library: str) -> float:
    begin = time.perf_counter()
    try:
        pid = os.posix_spawn(FLOOR, [FLOOR], os.environ)
    except OSError as error:
        raise Unmeasurable(f"{FLOOR}: {error.strerror}; reinstall pyresolve-native") from None
    status = os.waitpid(pid, 0)[1]
    taken = time.perf_counter() - begin
    if status:
        raise Unmeasurable(f"an empty program ended with wait status {status}")
    return taken


def _floor(library: str) -> float:
    return _spawn(library) + int(_run([FLOOR, library])[1]) / 1e9


def _check(library: str) -> float:
    begin = time.perf_counter()
    report = pyresolve.check(library)
    taken = time.perf_counter() - begin
    if report.verdict is not pyresolve.Verdict.OK:
        raise Unmeasurable(report.message)
    return taken


def _check_preload(library: str) -> float:
    return _timed(partial(pyresolve.check, library, mode="preload"))


def _probe(library: str) -> float:
    return _run([str(_script("pyresolve-probe")), "check", library])[0]


def _pick(_library: str) -> float:
    return _timed(pyresolve.pick)


@lru_cache(maxsize=1)
def _choice() -> Choice:
    return pyresolve.pick()


def _env(_library: str) -> float:
    return _timed(_choice().env)


def _env_anew(_library: str) -> float:
    return _timed(partial(_choice().env, {**os.environ, "PYRESOLVE_BENCH": "1"}))


def _first_pick(_library: str) -> float:
    code = "import time, pyresolve; pyresolve.pick; begin = time.perf_counter()"
    code += "; pyresolve.pick().env(); print(time.perf_counter() - begin)"
    return float(_run(python(code))[1].split()[-1])


def _pyresolve_pick(_library: str) -> float:
    script = _script("pyresolve")
    command = [str(script)] if script.exists() else [sys.executable, "-m", "pyresolve"]
    return _run([*command, "pick"], accepted=_PICKED)[0]


def _python_pass(_library: str) -> float:
    return _run([sys.executable, "-c", "pass"])[0]


def _fork(library: str) -> float:
    return _forked(lambda: ctypes.CDLL(library))


def _fork_exit(_library: str) -> float:
    return _forked(lambda: None)


def _forked(action: Callable[[], object]) -> float:
    """Return the time of the second of two forks.

    Callers take turns. If another one has just copied the page tables of 4 GiB, the CPU's caches
    are cold, and the first fork would be charged for it.
    """
    for _ in range(2):
        begin = time.perf_counter()
        pid = os.fork()
        if pid == 0:
            try:
                action()
            except BaseException:  # noqa: BLE001  (the child must not run the parent's handlers)
                os._exit(1)
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        taken = time.perf_counter() - begin
        if status:
            raise Unmeasurable(f"the forked child ended with wait status {status}")
    return taken


def _python_child(library: str) -> float:
    return _run([sys.executable, "-I", "-S", "-c", f"import ctypes; ctypes.CDLL({library!r})"])[0]


def _ldd(library: str) -> float:
    return _run(["ldd", library])[0]


def _resolver(_library: str) -> float:
    code = "from torch_memory_saver.utils import get_binary_path_from_package as resolve"
    return _run(python(f"{code}; resolve('torch_memory_saver_hook_mode_preload')"))[0]


def _pathfinder(_library: str) -> float:
    code = "from cuda.pathfinder import load_nvidia_dynamic_lib as load; load('cudart')"
    return _run(python(code))[0]


def _script(name: str) -> Path:
    return Path(sysconfig.get_path("scripts"), name)


def python(code: str) -> list[str]:
    """Return a command that runs this code and, unlike `python -c`, does not import from `.`."""
    return [sys.executable, "-c", f"import sys; sys.path[:1] == [''] and sys.path.pop(0); {code}"]


def _run(argv: list[str], accepted: Sequence[int] = (0,)) -> tuple[float, str]:
    """Run a program to its end; return how long it took and what it printed."""
    reading, writing = os.pipe()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, writing, 1),
        (os.POSIX_SPAWN_DUP2, writing, 2),
    ]
    with os.fdopen(reading, "rb", buffering=0) as output:
        begin = time.perf_counter()
        try:
            pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions)
        except OSError as error:
            raise Unmeasurable(f"{argv[0]} cannot be started: {error.strerror}") from None
        finally:
            os.close(writing)
        poll = select.poll()
        poll.register(output, select.POLLIN)
        printed = b""
        while (ready := poll.poll(_SILENCE * 1000)) and (part := output.read(65536)):
            printed += part
        if not ready:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        taken = time.perf_counter() - begin
    text = os.fsdecode(printed)
    if not ready:
        raise Unmeasurable(f"{argv[0]} printed nothing for {_SILENCE:g} s and did not end")
    if status not in accepted:
        lines = text.strip().splitlines() or [f"it ended with status {status}"]
        raise Unmeasurable(lines[-1])
    return taken, text


# A text has at most 21 characters: the table is 80 wide.
METHODS = {
    "floor": Method("floor: spawn + dlopen", Kind.FLOOR, _floor),
    "spawn": Method("spawn alone", Kind.FLOOR, _spawn),
    "check": Method("check()", Kind.OURS, _check),
    "check_preload": Method("check(mode='preload')", Kind.OURS, _check_preload),
    "probe": Method("pyresolve-probe check", Kind.OURS, _probe),
    "pick": Method("pick(), verified", Kind.OURS, _pick, loads=False),
    "env": Method("env(), as picked", Kind.OURS, _env, loads=False),
    "env_anew": Method("env(other), rehearsed", Kind.OURS, _env_anew, loads=False),
    "first_pick": Method(
        "first pick().env()", Kind.OURS, _first_pick, loads=False, base="python_pass"
    ),
    "pyresolve_pick": Method(
        "pyresolve pick", Kind.OURS, _pyresolve_pick, loads=False, base="python_pass"
    ),
    "python_pass": Method("python -c pass", Kind.ALTERNATIVE, _python_pass, loads=False),
    "fork": Method("fork() + dlopen", Kind.ALTERNATIVE, _fork),
    "fork_exit": Method("fork() alone", Kind.ALTERNATIVE, _fork_exit, forks=True),
    "ldd": Method("ldd", Kind.ALTERNATIVE, _ldd),
    "python_child": Method("python -I -S child", Kind.ALTERNATIVE, _python_child),
    "pathfinder": Method("cuda-pathfinder", Kind.ALTERNATIVE, _pathfinder, loads=False),
    "resolver": Method("package's resolver", Kind.ALTERNATIVE, _resolver, loads=False),
}
