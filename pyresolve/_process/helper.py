"""The isolated process: start the helper, hold the deadline, read its frames.

The helper judges; nothing is concluded here.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _native
from .._environ import PRELOAD
from .._errors import REFUSALS, ProbeError
from .._model import Driver, Status
from .._native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_BIN = Path(_native.__file__).parent / "_bin"
HELPER = str(_BIN / "pyresolve-helper")
STUB_DRIVER = str(_BIN / "pyresolve-stub-driver.so")

_STUBS = (STUB_DRIVER, "/proc/")
"""How the names begin under which a process maps a stub, of the driver or of an interpreter."""

_CUDA_ERROR_STUB_LIBRARY = 34  # cuda.h: the toolkit's link-time libcuda answers every call so

_MAX_ARG_STRLEN = 32 * 4096  # linux/binfmts.h
_PATH_MAX = 4096

_HEAD = struct.Struct("=IHHQIIqq")  # struct pyr_wire_frame
_allocate = ffi.new_allocator(should_clear_after_alloc=False)


class _Kind(IntEnum):
    """enum pyr_wire_kind."""

    HELLO = 1
    OUTCOME = 2
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
    NEXT = 13
    FINISHED = 14


_STATUSES = tuple(Status)  # in the order of enum pyr_status
_WITH_STUB = 1 << 8  # PYR_WIRE_WITH_STUB
_NOT_FOUND, _NO_FUNCTION, _BROKEN = -1, -2, -3  # enum pyr_wire_answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The helper's judgement on one target: struct pyr_outcome in native/classify.h.

    `stub` says that the stub driver took the place of an absent one, `stuck` is the pid of a child
    that outlived SIGKILL.
    """

    status: Status
    stub: bool = False
    stuck: int | None = None
    name: str = ""
    version: str = ""
    file: str = ""
    by: str = ""
    text: str = ""


@dataclass(slots=True, kw_only=True)
class Trial:
    """What is known about one target after the child that tried it has ended.

    `outcome` is None if the helper did not live to judge it. `objects` are the files that were
    mapped for it, `runtimes` those of them that are a libcudart with the version that each
    answered. `undefined` are symbols that nothing defines. `not_run` is the errno of an exec that
    failed.
    """

    outcome: Outcome | None = None
    objects: list[str]
    runtimes: dict[str, int | None]
    driver: Driver | None = None
    undefined: list[str]
    not_run: int | None = None

    @property
    def timed_out(self) -> bool:
        """True if its time was up."""
        return self.outcome is not None and self.outcome.status is Status.TIMED_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one helper reported. `captured` is what was printed on stderr, and stdout of a program.

    `hello` is False if the helper's own main was never reached; then `wait_status` is its own, None
    if another thread of the caller reaped it. `timed_out` says that the helper itself did not
    answer in time. `stuck` is the pid of a helper that outlived SIGKILL. `elapsed` is in seconds.
    """

    hello: bool
    timed_out: bool
    wait_status: int | None
    trials: tuple[Trial, ...]
    captured: str
    elapsed: float
    stuck: int | None = None


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


def attempt(
    targets: Sequence[str],
    *,
    environ: Mapping[str, str],
    deadline: Deadline,
    before: Sequence[str] = (),
    python: str = "",
    hook: str | None = None,
    next_library: str = "",
    change: Mapping[str, str] | None = None,
) -> Answer:
    """Open each target with dlopen, and rehearse a hook, each in its own process, side by side.

    They start in `environ` without its LD_PRELOAD. The libraries of `before` are opened before each
    target, and `python` defines what an interpreter defines. `hook` starts with the variables of
    `change` set, whose LD_PRELOAD names it; then `next_library` is opened. The trials are those of
    the targets and then that of the hook.
    """
    if PRELOAD in environ:
        environ = {name: value for name, value in environ.items() if name != PRELOAD}
    arguments = [STUB_DRIVER, python, str(len(before)), *before, str(len(targets)), *targets]
    if hook is not None:
        variables = (f"{name}={value}" for name, value in (change or {}).items())
        arguments += [hook, next_library, *variables]
    count = len(targets) + (hook is not None)
    answer = _run("try", arguments, _environment(environ), deadline, count=count)
    if not answer.hello and not answer.timed_out and environ:
        # Raises if the helper itself is broken.
        _run("try", [STUB_DRIVER, "", "0", "0"], (), deadline)
    return answer


def run(argv: Sequence[str], *, environ: Mapping[str, str], deadline: Deadline) -> Answer:
    """Run a program in `environ` and capture what it prints on stdout and stderr."""
    return _run("run", [str(len(argv)), *argv], (), deadline, tail=_environment(environ))


def can_try(name: str) -> bool:
    """Tell whether a name can be given to a process at all: no NUL in it, and not too long."""
    try:
        return "\0" not in name and len(os.fsencode(name)) < _PATH_MAX
    except UnicodeEncodeError:
        return False


def _environment(environ: Mapping[str, str]) -> list[bytes]:
    if environ is os.environ:  # to decode and encode its bytes would cost three times as much
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
    helper, *rest = _encoded([HELPER, command, f"{nonce:x}", str(timeout_ns), *arguments])
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
    return _answer(probe, hello, trials, own_environment=bool(environment))


def _strings(items: Sequence[bytes]) -> tuple[object, object]:
    """Return a NULL-terminated array of C strings, and what must live as long as it does."""
    text = ffi.from_buffer(b"\0".join(items) + b"\0")
    array = ffi.new("char *[]", len(items) + 1)
    lib.pyr_strings_point(array, text, len(items))
    return array, text


def _decode(frames: bytes, count: int) -> tuple[bool, tuple[Trial, ...]]:
    trials = tuple(Trial(objects=[], runtimes={}, undefined=[]) for _ in range(count))
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
    return (
        "look for a limit or a security policy that forbids it something (ulimit -a, seccomp), or"
        " reinstall pyresolve-native"
    )


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
    captured = os.fsdecode(ffi.buffer(p.capture, p.capture_used)[:])
    timed_out = p.status == lib.PYR_PROBE_TIMED_OUT
    wait_status = p.wait_status if p.wait_known else None
    if not hello and not timed_out and not own_environment:
        raise ProbeError(
            f"{HELPER} does not start, not even in an empty environment"
            f" ({captured.strip() or f'wait status {wait_status}'}): {_system_preload()}"
        )
    if hello and p.status == lib.PYR_PROBE_DIED and p.wait_known and os.WIFEXITED(p.wait_status):
        raise ProbeError(
            f"{HELPER} gave up ({captured.strip() or 'without a word'}): a limit or a security"
            " policy of this host may forbid it to answer"
        )
    return Answer(
        hello=hello,
        timed_out=timed_out,
        wait_status=wait_status,
        trials=trials,
        captured=captured,
        elapsed=p.elapsed_ns / 1e9,
        stuck=p.pid if p.stuck else None,
    )


def _note(trial: Trial, kind: int, a: int, b: int, text: str) -> None:
    if kind == _Kind.OUTCOME:
        name, version, file, by, said = text.split("\0")[:5]
        trial.outcome = Outcome(
            status=_STATUSES[a & ~_WITH_STUB],
            stub=bool(a & _WITH_STUB),
            stuck=b or None,
            name=name,
            version=version,
            file=file,
            by=by,
            text=said,
        )
    elif kind == _Kind.OBJECT and "/" in text and not text.startswith(_STUBS):  # nor the vDSO
        trial.objects.append(text)
    elif kind == _Kind.RUNTIME:
        trial.runtimes[text] = a if b == 0 else None
    elif kind == _Kind.DRIVER:
        trial.driver = _driver(text, a, b)
    elif kind == _Kind.UNDEFINED and (symbol := text.partition("\0")[0]) not in trial.undefined:
        trial.undefined.append(symbol)
    elif kind == _Kind.NOT_RUN:
        trial.not_run = a


def _driver(text: str, version: int, result: int) -> Driver:
    if result in (_NOT_FOUND, _BROKEN):
        return Driver(problem=text, absent=result == _NOT_FOUND)
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
    if call == "open of the records in /proc" and number == errno.ENOENT:
        return ProbeError(
            "a rehearsal needs /proc, where its process could not reach this one: mount it, or"
            " check with mode='dlopen'"
        )
    remedy = {
        **REFUSALS,
        errno.EACCES: f"{HELPER} may not be executed: chmod +x it, or move the environment off"
        " a noexec mount",
        errno.EBADF: "this process may open too few files: raise ulimit -n",  # dup2 in the child
        errno.E2BIG: "the environment is larger than the kernel takes for a new process",
    }.get(number, f"{HELPER} may be damaged: reinstall pyresolve-native")
    if number == errno.ENOENT:
        missing = HELPER if Path(os.devnull).exists() else os.devnull
        remedy = f"{missing} is missing: " + (
            "reinstall pyresolve-native" if missing == HELPER else "create it (mknod -m 666 c 1 3)"
        )
    if call == "posix_spawn" and number in (errno.EPERM, errno.ENOSYS):
        call = "posix_spawn, which calls clone3 or clone, setpgid, dup2, openat and execve"
    reason = os.strerror(number)
    return ProbeError(f"the probe failed in {call} ({reason}): {remedy}", reason=reason)
