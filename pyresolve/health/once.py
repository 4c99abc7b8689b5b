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

from .._types import Status
from .checks import run, timed_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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
    """Make the checks and return what they came to, in their order.

    `timeout` is in seconds from `began` on, by time.monotonic(). The checks are made in a forked
    child: a thread that waits for a dead file system cannot be ended, nor can its process, which
    is then left behind. For a program that has but one thread.
    """
    end = began + timeout
    left = end - time.monotonic()
    budget = min(share(timeout), left - min(_RESERVE, timeout / 4) / 4)
    budget = max(0.001, round(budget, 2))  # people read it
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _answer(checks, environ, budget, writing)
        finally:
            os._exit(0)  # no handler, buffer or thread of the parent's
    os.close(writing)
    found: dict[int, Health] = {}
    try:
        for index, health in _answers(reading, end):
            if isinstance(health, BaseException):
                raise health
            if health.status == Status.TIMED_OUT.value:  # say what limit was given, not our share
                health = replace(health, detail=f"{timeout:g} s")
            found[index] = health
    finally:
        os.close(reading)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # to its helpers that is the sign to end
        with suppress(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    return tuple(
        found.get(index) or timed_out(check, seconds=timeout) for index, check in enumerate(checks)
    )


def _answer(
    checks: Sequence[Check], environ: Mapping[str, str], budget: float, writing: int
) -> None:
    """Make the checks in threads and write down each as it comes in."""
    # Whoever reads our output waits until nobody holds it open any more.
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, writing)
    os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
    queue: SimpleQueue[tuple[int, Health | BaseException]] = SimpleQueue()

    def work(index: int, check: Check) -> None:
        try:
            queue.put((index, run(check, environ=environ, timeout=budget)))
        except BaseException as error:  # noqa: BLE001  (raised where somebody can see it)
            queue.put((index, error))

    for index, check in enumerate(checks):
        threading.Thread(target=work, args=(index, check), daemon=True).start()
    for _ in checks:
        data = pickle.dumps(queue.get())
        data = _LENGTH.pack(len(data)) + data
        while data:
            data = data[os.write(writing, data) :]


def _answers(reading: int, end: float) -> Iterator[tuple[int, Health | BaseException]]:
    """Yield what the child writes until it ends or the time does."""
    data = bytearray()
    while (left := end - time.monotonic()) > 0:
        if not select.select([reading], [], [], left)[0]:
            return
        chunk = os.read(reading, _CHUNK)
        if not chunk:
            return
        data += chunk
        while len(data) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data)
            if len(data) < _LENGTH.size + length:
                break
            yield pickle.loads(data[_LENGTH.size : _LENGTH.size + length])  # noqa: S301  (our own)
            del data[: _LENGTH.size + length]
