"""The isolated process: start the helper, hold the deadline, read its frames.

Nothing is concluded here; `_check` does that.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from . import _native
from ._errors import ProbeError
from ._native import ffi, lib
from ._types import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BIN = Path(_native.__file__).parent / "_bin"
HELPER = str(_BIN / "pyresolve-helper")
STUB_DRIVER = str(_BIN / "pyresolve-stub-driver.so")

STUB_PRELOAD = f"/proc/self/fd/{lib.PYR_WIRE_STUB_FD}"
"""What names the stub driver in the LD_PRELOAD of a rehearsal: a path may hold a separator."""

_NO_BOARD = "pyresolve-helper cannot open"  # PYR_WIRE_NO_BOARD

_CUDA_ERROR_STUB_LIBRARY = 34  # cuda.h: the toolkit's link-time libcuda answers every call so

_MAX_ARG_STRLEN = 32 * 4096  # linux/binfmts.h

_HEAD = struct.Struct("=IHHQIIqq")  # struct pyr_wire_frame
_allocate = ffi.new_allocator(should_clear_after_alloc=False)


class _Kind(IntEnum):
    """enum pyr_wire_kind."""

    HELLO = 1
    ENDED = 2
    DONE = 3
    FAILED = 4
    STARTED = 5
    LOAD = 6
    OBJECT = 7
    RUNTIME = 8
    DRIVER = 9
    SYMBOL = 10
    UNDEFINED = 11
    NOT_RUN = 12
    FINISHED = 13


_KILLED, _STUCK = 1, 2  # enum pyr_wire_end
_LAZY, _STUB, _PRESENT = 1, 2, 4  # enum pyr_wire_load
_NOT_FOUND, _NO_FUNCTION = -1, -2  # enum pyr_wire_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One dlopen; `error` is dlerror's text, None where it succeeded."""

    lazy: bool
    stub: bool
    error: str | None


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is known about one target once the child that tried it has ended.

    `wait_status` is as waitpid gives it, None where the supervisor did not live to see it; `stuck`
    is the pid of a child that outlived SIGKILL; `not_run` is the errno of an exec that failed.
    `symbols` maps a name to the objects that the process and the target alone get it from.
    """

    started: bool = False
    finished: bool = False
    timed_out: bool = False
    wait_status: int | None = None
    stuck: int | None = None
    not_run: int | None = None
    attempts: list[Attempt]
    present: bool = False
    objects: list[str]
    runtimes: dict[str, int | None]
    driver: Driver | None = None
    symbols: dict[str, tuple[str, str]]
    undefined: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one helper had to say. `words` is what was printed on stderr, and stdout of a trace.

    `hello` is False where the helper's own main was never reached; then `wait_status` is its own,
    None where somebody else reaped it. `elapsed` is in seconds. `stuck` is the pid of a process
    that outlived SIGKILL: it sleeps in the kernel, uninterruptibly.
    """

    hello: bool
    timed_out: bool
    wait_status: int | None
    trials: tuple[Trial, ...]
    words: str
    elapsed: float
    stuck: int | None = None


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that could not be killed; `started` tells it from a later one of the same pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Leftover | None:
        """Return what is known about a process, None where it has ended."""
        state, started = _stat(pid)
        return None if state in ("", "Z", "X") else cls(pid, started)

    def lives(self) -> bool:
        """Tell whether it still exists; one that has ended at last is reaped."""
        if Leftover.of(self.pid) == self:
            return True
        if _stat(self.pid)[1] == self.started:
            with suppress(ChildProcessError):  # it was the helper's child and is init's now
                os.waitpid(self.pid, os.WNOHANG)
        return False


leftovers: ContextVar[list[Leftover] | None] = ContextVar("leftovers", default=None)
"""Where set, the list that takes the processes which the probes of this context left behind."""


class Deadline:
    """One budget of seconds for several probes."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._end = time.monotonic() + timeout

    def spent(self) -> float:
        """Return the seconds since it began."""
        return self.timeout - (self._end - time.monotonic())

    def half(self) -> Deadline:
        """Return a budget of half of what is left: one probe leaves something to the next."""
        return Deadline(self.left_ns() / 2e9)

    def left_ns(self) -> int:
        """Nanoseconds that are left, never less than one."""
        return max(1, int((self._end - time.monotonic()) * 1e9))


def load(targets: Sequence[str], *, environ: Mapping[str, str], deadline: Deadline) -> Answer:
    """Dlopen each target in a child of its own, all at once, in `environ` less its LD_PRELOAD."""
    if "LD_PRELOAD" in environ:
        environ = {name: value for name, value in environ.items() if name != "LD_PRELOAD"}
    arguments = [STUB_DRIVER, *targets]
    return _run("load", arguments, _environment(environ), deadline, count=len(targets))


def preload(target: str, *, environ: Mapping[str, str], deadline: Deadline) -> Answer:
    """Start a process in exactly `environ` and ask it what became of `target`.

    The stub driver lies at STUB_PRELOAD for an LD_PRELOAD that names it.
    """
    arguments = [STUB_DRIVER, target]
    answer = _run("preload", arguments, (), deadline, tail=_environment(environ))
    trial = answer.trials[0]
    if trial.not_run is not None:
        raise _failed("execve", trial.not_run)
    # Without a supervisor its board is gone as well, and that is the target's doing.
    if not trial.started and trial.wait_status is not None and _NO_BOARD in answer.words:
        raise ProbeError(
            "a rehearsal needs /proc, where its process could not reach this one: mount it, or"
            " check with mode='dlopen'"
        )
    return answer


def trace(program: str, *, environ: Mapping[str, str], loader: str, deadline: Deadline) -> Answer:
    """Let the loader list what `program` needs in `environ`. No constructor runs."""
    listing = {**environ, "LD_TRACE_LOADED_OBJECTS": "1"}
    return run([loader, program], environ=listing, deadline=deadline)


def run(argv: Sequence[str], *, environ: Mapping[str, str], deadline: Deadline) -> Answer:
    """Run a program in `environ` for what it prints; stdout and stderr both come as `words`."""
    return _run("run", [str(len(argv)), *argv], (), deadline, tail=_environment(environ))


def _environment(environ: Mapping[str, str]) -> list[bytes]:
    if environ is os.environ:  # bytes inside: to decode and encode them would cost thrice as much
        return [name + b"=" + value for name, value in os.environb.items()]
    pairs = _encoded([f"{name}={value}" for name, value in environ.items()])
    if len(pairs) != len(environ) or any(not name or "=" in name for name in environ):
        raise ValueError(
            "environ holds a variable that no process can be given: its name is empty or has a '=',"
            " or it holds a NUL"
        )
    for pair in pairs:
        if len(pair) >= _MAX_ARG_STRLEN:
            name = os.fsdecode(pair.partition(b"=")[0])
            raise ProbeError(
                f"the environment is larger than the kernel takes for a new process: {name} alone"
                f" has {len(pair)} bytes, at most {_MAX_ARG_STRLEN - 1} go; shorten or unset it"
            )
    return pairs


def _encoded(texts: Sequence[str]) -> list[bytes]:
    """Encode as os.fsencode does, all at once; a NUL in a text makes it two."""
    encoding, errors = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
    return "\0".join(texts).encode(encoding, errors).split(b"\0") if texts else []


def _run(
    command: str,
    arguments: Sequence[str],
    environment: Sequence[bytes],
    deadline: Deadline,
    *,
    count: int = 1,
    tail: Sequence[bytes] = (),
) -> Answer:
    nonce = int.from_bytes(os.urandom(8), "little")
    timeout_ns = deadline.left_ns()
    words = [HELPER, command, f"{nonce:x}", str(timeout_ns), *arguments]
    helper, *rest = _encoded(words)
    argv, argv_text = _strings([helper, *rest, *tail])
    envp, envp_text = _strings(environment)
    probe = _allocate("struct pyr_probe *")
    lib.pyr_probe_init(probe)
    try:
        lib.pyr_probe_start(probe, helper, argv, envp, nonce, timeout_ns)
        # Between two waits the interpreter runs its signal handlers: Ctrl-C ends a probe.
        while lib.pyr_probe_wait(probe) == lib.PYR_PROBE_RUNNING:
            pass
        frames = ffi.buffer(probe.frames, probe.frames_used)[:]
        hello, trials = _decode(frames, count)  # while the helper ends
    finally:
        lib.pyr_probe_finish(probe)
    del argv_text, envp_text
    return _answer(probe, hello, trials, own_environment=command == "load")


def _note_stuck(pid: int) -> None:
    noted = leftovers.get()
    if noted is not None and (leftover := Leftover.of(pid)):
        noted.append(leftover)


def _stat(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process (proc(5)), empty where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return "", ""
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _strings(items: Sequence[bytes]) -> tuple[object, object]:
    """Return a NULL-terminated array of C strings, and what must live as long as it does."""
    text = ffi.from_buffer(b"\0".join(items) + b"\0")
    array = ffi.new("char *[]", len(items) + 1)
    lib.pyr_strings_point(array, text, len(items))
    return array, text


def _decode(frames: bytes, count: int) -> tuple[bool, tuple[Trial, ...]]:
    trials = tuple(
        Trial(attempts=[], objects=[], runtimes={}, symbols={}, undefined=[]) for _ in range(count)
    )
    hello = False
    for kind, target, a, b, raw in _frames(frames):
        if kind == _Kind.HELLO:
            hello = True
        elif kind == _Kind.FAILED:
            raise _failed(os.fsdecode(raw), a)
        elif target < count:
            _note(trials[target], kind, a, b, os.fsdecode(raw))
    return hello, trials


def _system_preload() -> str:
    try:
        preload = Path("/etc/ld.so.preload").read_text(errors="replace").split()
    except OSError:
        preload = []
    if preload:
        return f"look at /etc/ld.so.preload, which has {', '.join(preload)} loaded everywhere"
    return "reinstall pyresolve-native"


def _frames(data: bytes) -> Iterator[tuple[int, int, int, int, bytes]]:
    at = 0
    while at < len(data):
        _magic, _version, kind, _nonce, target, length, a, b = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        yield kind, target, a, b, data[at - length : at]


def _answer(
    probe: object,
    hello: bool,
    trials: tuple[Trial, ...],
    *,
    own_environment: bool,
) -> Answer:
    p = ffi.cast("struct pyr_probe *", probe)
    if p.status == lib.PYR_PROBE_FAILED:
        raise _failed(ffi.string(p.failed_call).decode(), p.sys_errno)
    if p.status == lib.PYR_PROBE_GARBLED:
        raise ProbeError(f"{HELPER} answered in another format: reinstall pyresolve-native")
    words = os.fsdecode(ffi.buffer(p.capture, p.capture_used)[:])
    timed_out = p.status == lib.PYR_PROBE_TIMED_OUT
    stuck = p.pid if p.stuck else next((trial.stuck for trial in trials if trial.stuck), None)
    if stuck is not None:
        _note_stuck(stuck)
    wait_status = p.wait_status if p.wait_known else None
    if not hello and not timed_out and not own_environment:
        raise ProbeError(
            f"{HELPER} does not start, not even in an empty environment"
            f" ({words.strip() or f'wait status {wait_status}'}): {_system_preload()}"
        )
    return Answer(
        hello=hello,
        timed_out=timed_out,
        wait_status=wait_status,
        trials=trials,
        words=words,
        elapsed=p.elapsed_ns / 1e9,
        stuck=stuck,
    )


def _note(trial: Trial, kind: int, a: int, b: int, text: str) -> None:
    if kind == _Kind.STARTED:
        trial.started = True
    elif kind == _Kind.FINISHED:
        trial.finished = True
    elif kind == _Kind.ENDED and b == _STUCK:
        trial.stuck, trial.timed_out = a, True
    elif kind == _Kind.ENDED:
        trial.wait_status, trial.timed_out = a, b == _KILLED
    elif kind == _Kind.NOT_RUN:
        trial.not_run = a
    elif kind == _Kind.LOAD and a & _PRESENT:
        trial.present = b == 1
    elif kind == _Kind.LOAD:
        error = None if b == 1 else text
        trial.attempts.append(Attempt(lazy=bool(a & _LAZY), stub=bool(a & _STUB), error=error))
    elif kind == _Kind.OBJECT and "/" in text:  # not the vDSO
        trial.objects.append(text)
    elif kind == _Kind.RUNTIME:
        trial.runtimes[text] = a if b == 0 else None
    elif kind == _Kind.DRIVER:
        trial.driver = _driver(text, a, b)
    elif kind == _Kind.SYMBOL:
        name, *owners = text.split("\0")
        if len(owners) == 2:  # the target may have written to the board
            trial.symbols[name] = (owners[0], owners[1])
    elif kind == _Kind.UNDEFINED and text not in trial.undefined:
        trial.undefined.append(text)


def _driver(text: str, version: int, result: int) -> Driver:
    if result == _NOT_FOUND:
        return Driver(problem=text)
    if result == _NO_FUNCTION:
        return Driver(path=Path(text), problem=f"{text} has no cuDriverGetVersion: no driver")
    if result == _CUDA_ERROR_STUB_LIBRARY:
        return Driver(
            path=Path(text),
            problem=f"{text} is the toolkit's stub, not a driver: take its directory out of"
            " LD_LIBRARY_PATH",
        )
    return Driver(path=Path(text), version=version if result == 0 else None)


def _failed(call: str, number: int) -> ProbeError:
    remedy = {
        errno.ENOENT: f"{HELPER} is missing: reinstall pyresolve-native",
        errno.EACCES: f"{HELPER} may not be executed: chmod +x it, or move the environment off"
        " a noexec mount",
        errno.EAGAIN: "no more processes may be started here: raise the limit (ulimit -u, or the"
        " pids limit of the container)",
        errno.ENOMEM: "the system is out of memory",
        errno.EMFILE: "this process has too many files open: raise ulimit -n",
        errno.EBADF: "this process may open too few files: raise ulimit -n",  # dup2 in the child
        errno.ENFILE: "the system has too many files open",
        errno.E2BIG: "the environment is larger than the kernel takes for a new process",
    }.get(number, f"{HELPER} may be damaged: reinstall pyresolve-native")
    return ProbeError(f"the probe failed in {call} ({os.strerror(number)}): {remedy}")
