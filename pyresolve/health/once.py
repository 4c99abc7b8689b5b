"""All checks once and side by side, under one deadline that holds whatever they do."""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
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
    from collections.abc import Callable, Mapping, Sequence

    from .checks import Check, Health

_RESERVE = 0.2  # seconds, at most a quarter of all: to start, to kill what hangs, to print
_LENGTH = struct.Struct("=I")
_CHUNK = 1 << 16


def share(timeout: float) -> float:
    """Return the seconds that a check has where all of them have `timeout`."""
    return timeout - min(_RESERVE, timeout / 4)


def check_all(
    checks: Sequence[Check], *, environ: Mapping[str, str], timeout: float, began: float
) -> tuple[Health, ...]:
    """Make the checks and return what they came to, in their order, less those left out here.

    `timeout` is in seconds from `began` on, by time.monotonic(). The checks are made in a forked
    child: a thread that waits for a dead file system cannot be ended, nor can its process, which
    is then left behind. For a program that has but one thread. Raises ProbeError.
    """
    end = began + timeout
    left = end - time.monotonic()
    budget = min(share(timeout), left - min(_RESERVE, timeout / 4) / 4)
    budget = max(0.001, round(budget, 2))  # people read it
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
            os._exit(0)  # no handler, buffer or thread of the parent's
    os.close(writing)
    answers = _Answers(reading)
    pipe = select.poll()
    pipe.register(reading, select.POLLIN)
    try:
        while not answers.ended and (left := end - time.monotonic()) > 0:
            if pipe.poll(left * 1000):
                answers.take()
    finally:
        os.close(reading)
        if not answers.ended:
            os.kill(child, signal.SIGKILL)  # to its helpers that is the sign to end
        with suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    missing = [index for index in range(len(checks)) if index not in answers.found]
    if missing and answers.ended:
        raise ProbeError("the process that made the checks was killed: is there memory enough?")
    late = {index: timed_out(checks[index], seconds=timeout) for index in missing}
    found = {index: _shown(health, timeout) for index, health in answers.found.items()}
    results = ((found | late)[index] for index in range(len(checks)))
    return tuple(health for health in results if health.status != ABSENT)


def _shown(health: Health, timeout: float) -> Health:
    """Say what limit was given, not what was left of it for the check."""
    if health.status != Status.TIMED_OUT.value:
        return health
    return replace(health, detail=f"{timeout:g} s")


def _answer(
    checks: Sequence[Check], environ: Mapping[str, str], budget: float, writing: int
) -> None:
    """Make the checks in threads and write down each as it comes in."""
    _let_go(writing)
    with suppress(RuntimeError):
        threading.Thread(target=_end_without_reader, args=(writing,), daemon=True).start()
    queue: SimpleQueue[tuple[int, Health | BaseException]] = SimpleQueue()

    def work(index: int, check: Check) -> None:
        try:
            queue.put((index, run(check, environ=environ, timeout=budget)))
        except BaseException as error:  # noqa: BLE001  (raised where somebody can see it)
            queue.put((index, error))

    for index, check in enumerate(checks):
        _start(work, index, check)
    for _ in checks:
        data = pickle.dumps(queue.get())
        data = _LENGTH.pack(len(data)) + data
        while data:
            data = data[os.write(writing, data) :]


def _let_go(kept: int) -> None:
    """Close what was inherited: who reads from a pipe waits until nobody holds it open."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in {0, 1, 2} - {kept}:
        os.dup2(null, fd)
    with suppress(OSError):
        for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
            if fd > 2 and fd != kept:
                with suppress(OSError):
                    os.close(fd)


def _end_without_reader(writing: int) -> None:
    """End this process when the command is gone, whoever killed it: nobody waits any more."""
    pipe = select.poll()
    pipe.register(writing, 0)  # POLLERR comes unasked
    pipe.poll()
    os._exit(1)


def _start(work: Callable[[int, Check], None], index: int, check: Check) -> None:
    try:
        threading.Thread(target=work, args=(index, check), daemon=True).start()
    except RuntimeError:  # no more threads: one after the other
        work(index, check)


class _Answers:
    """What the child writes, as it comes in; `ended` once it is gone."""

    def __init__(self, reading: int) -> None:
        self._reading = reading
        self._data = bytearray()
        self.ended = False
        self.found: dict[int, Health] = {}

    def take(self) -> None:
        chunk = os.read(self._reading, _CHUNK)
        self.ended = not chunk
        self._data += chunk
        while len(self._data) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            index, health = pickle.loads(self._data[_LENGTH.size : end])  # noqa: S301  (our own)
            del self._data[:end]
            if isinstance(health, BaseException):
                raise health
            self.found[index] = health
