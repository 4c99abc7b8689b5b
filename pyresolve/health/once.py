"""All checks once, side by side, with one deadline that holds whatever they do."""

from __future__ import annotations

import io
import os
import pickle
import select
import signal
import threading
import time
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from .._errors import ProbeError
from .._model import Status
from .checks import ABSENT, run, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .checks import Check, Health

_RESERVE = 0.2  # seconds, at most a quarter of all: to start, to kill what hangs, to print
_CHUNK = 1 << 16


def share(timeout: float) -> float:
    """Return the seconds for each check if the whole command has `timeout`."""
    return timeout - min(_RESERVE, timeout / 4)


def check_all(
    checks: Sequence[Check], *, environ: Mapping[str, str], timeout: float, began: float
) -> tuple[Health, ...]:
    """Make the checks and return their results in order, without those that do not apply here.

    `timeout` is in seconds since `began`, by time.monotonic(). The checks run in a forked child:
    a thread that waits for a dead file system cannot be ended, nor can its process, which is then
    left running. Only for a program with a single thread. Raises ProbeError.
    """
    end = began + timeout
    left = end - time.monotonic()
    budget = min(share(timeout), left - min(_RESERVE, timeout / 4) / 4)
    budget = max(0.001, round(budget, 2))  # shown to users
    try:
        reading, writing = os.pipe()
        child = os.fork()
    except OSError as error:
        raise ProbeError(
            f"no process can be started to make the checks ({error.strerror}): raise ulimit -n and"
            " ulimit -u, or the pids limit of the container"
        ) from error
    if child == 0:
        try:
            _answer(checks, environ, budget, writing)
        finally:
            os._exit(0)  # runs no exit handlers and flushes no buffers of the parent
    os.close(writing)
    data, ended = bytearray(), False
    pipe = select.poll()
    pipe.register(reading, select.POLLIN)
    try:
        while not ended and (left := end - time.monotonic()) > 0:
            if pipe.poll(left * 1000):
                chunk = os.read(reading, _CHUNK)
                data += chunk
                ended = not chunk
    finally:
        os.close(reading)
        if not ended:
            os.kill(child, signal.SIGKILL)  # its helpers end with it
        with suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    found = dict(_answers(bytes(data)))
    if ended and len(found) < len(checks):
        raise ProbeError("the process that made the checks was killed: is there memory enough?")
    results = [
        _shown(found[index], timeout) if index in found else timed_out(check, seconds=timeout)
        for index, check in enumerate(checks)
    ]
    return tuple(health for health in results if health.status != ABSENT)


def _answers(data: bytes) -> Iterator[tuple[int, Health]]:
    """Yield what the child wrote; the last answer may be cut off."""
    stream = io.BytesIO(data)
    with suppress(EOFError, pickle.UnpicklingError):
        while True:
            index, health = pickle.load(stream)  # noqa: S301  (from our own child)
            if isinstance(health, BaseException):
                raise health
            yield index, health


def _shown(health: Health, timeout: float) -> Health:
    """Replace the check's share of the time by the limit that the user gave."""
    if health.status != Status.TIMED_OUT.value:
        return health
    return replace(health, detail=f"{timeout:g} s")


def _answer(
    checks: Sequence[Check], environ: Mapping[str, str], budget: float, writing: int
) -> None:
    """Make the checks in threads and write each result to the pipe when it comes."""
    _close_inherited(writing)
    with suppress(RuntimeError):
        threading.Thread(target=_end_without_reader, args=(writing,), daemon=True).start()
    queue: SimpleQueue[tuple[int, Health | BaseException]] = SimpleQueue()

    def work(index: int, check: Check) -> None:
        try:
            queue.put((index, run(check, environ=environ, timeout=budget)))
        except BaseException as error:  # noqa: BLE001  (raised in the parent)
            queue.put((index, error))

    for index, check in enumerate(checks):
        _start(work, index, check)
    for _ in checks:
        data = pickle.dumps(queue.get())
        while data:
            data = data[os.write(writing, data) :]


def _close_inherited(kept: int) -> None:
    """Close inherited descriptors, or readers of the parent's pipes never see EOF."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in {0, 1, 2} - {kept}:
        os.dup2(null, fd)
    with suppress(OSError):
        for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            if fd > 2 and fd != kept:
                with suppress(OSError):
                    os.close(fd)


def _end_without_reader(writing: int) -> None:
    """End this process after the command has ended or was killed: nobody wants the results."""
    pipe = select.poll()
    pipe.register(writing, 0)  # poll(2): POLLERR is always reported
    pipe.poll()
    os._exit(1)


def _start(work: Callable[[int, Check], None], index: int, check: Check) -> None:
    try:
        threading.Thread(target=work, args=(index, check), daemon=True).start()
    except RuntimeError:  # no more threads: make the checks one after the other
        work(index, check)
