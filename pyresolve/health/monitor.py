"""HealthMonitor: health for a long-running program, which may ask often at little cost."""

from __future__ import annotations

import os
import threading
import time
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from .. import _overrides
from .._check.check import mode_of
from .._disk.files import absolute, identity
from .._errors import ProbeError
from .._model import Status, Verdict
from .._process import running
from .checks import ABSENT, PENDING, Health, Library, run, timed_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._model import LoadReport
    from .checks import Check

_T = TypeVar("_T")

_MATTERS = ("LD_", "GLIBC_TUNABLES", "PYRESOLVE_", "PYTHON", "CUDA_", "CONDA_PREFIX")
"""Prefixes of the variables that change what the loader, pick() or Python find."""

_LOADERS = ("/etc/ld.so.cache", "/etc/ld.so.preload")

_KILLING = 3.0  # seconds beyond its deadline that a probe may need to kill what hangs
_TICK_NS = 20_000_000  # nanoseconds: resolution of the kernel's file times


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that could not be killed; `started` tells it from a later one with its pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Leftover | None:
        """Return what is known about a process, None if it has ended."""
        state, started = running.state(pid)
        return None if state in running.ENDED else cls(pid, started)

    def lives(self) -> bool:
        """Tell whether it still runs; if it is a zombie child of this process, reap it."""
        now = Leftover.of(self.pid)
        if now and now.started in (self.started, ""):
            return True
        if running.state(self.pid)[1] == self.started:
            with suppress(ChildProcessError):  # its helper is gone: usually init reaps it
                os.waitpid(self.pid, os.WNOHANG)
        return False


def in_thread(work: Callable[[], _T]) -> futures.Future[_T]:
    """Call `work` in a daemon thread: the end of the program waits for no check that hangs.

    Raises ProbeError.
    """
    result: futures.Future[_T] = futures.Future()
    result.set_running_or_notify_cancel()  # from here on nobody can cancel it

    def run_work() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  (raised in the callers that wait)
            result.set_exception(error)

    try:
        threading.Thread(target=run_work, daemon=True).start()
    except RuntimeError as error:
        raise ProbeError(f"{error}: raise ulimit -u or the pids limit") from error
    return result


@dataclass(slots=True)
class _Record:
    """What is known about one check. It has one run at a time, and only that run writes here."""

    result: futures.Future[Health] | None = None
    began: float = 0.0
    limit: float = 0.0  # seconds that the process of this run has
    health: Health | None = None
    probed: float = 0.0
    lifetime: float = 0.0
    fingerprint: tuple[object, ...] | None = None
    stuck: list[Leftover] = field(default_factory=list)


class HealthMonitor:
    """Tells whether libraries load, as check() does, for a program that asks often.

    An OK is kept for `max_age` seconds, as long as all files that were loaded are the same (by
    device, inode, size and times of change), as well as the loader's cache and the variables that
    matter (LD_*, PYTHON*, CUDA_* and pyresolve's own). This costs a stat() for each file.
    Any other result, and an OK of files that changed during the check, is checked again, at most
    once in `interval` seconds. If the loader would now find another file first, this is noticed
    only after `max_age`.

    Any number of threads may ask. Each target is checked once at a time, in `probe_timeout`
    seconds, and never in the caller's thread. If its process cannot be killed, because it sleeps
    in the kernel, the result has its `pid`, and the target is not checked again while that process
    runs. `environ` is the environment of the workers, default os.environ at each call.
    """

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        max_age: float = 60.0,
        interval: float = 5.0,
        probe_timeout: float = 10.0,
    ) -> None:
        self._environ = environ
        self._max_age = max_age
        self._interval = interval
        self._probe_timeout = probe_timeout
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[Check, _Record] = {}
        self._owner = os.getpid()

    def check(
        self, path: str | os.PathLike[str], *, mode: str = "dlopen", timeout: float = 1.0
    ) -> Health:
        """Return the health of the library at `path`; its `mode` is "dlopen" or "preload".

        Returns within `timeout` seconds. Without a result by then it returns the last one, or
        UNKNOWN `pending` if there is none yet, with `pending` set; ask again later. Raises
        ValueError for an unknown mode, OverrideError for an invalid PYRESOLVE_TIMEOUT, and
        ProbeError if no thread can be started.
        """
        name = os.fspath(path)
        if "/" in name or not isinstance(path, str):
            name = absolute(name)
        library = Library(path=name, mode=mode_of(mode), name=os.path.basename(name))  # noqa: PTH119
        return self.check_all([library], timeout=timeout)[0]

    def check_all(self, checks: Sequence[Check], *, timeout: float) -> tuple[Health, ...]:
        """Return the health of each, side by side, within `timeout` seconds in all."""
        end = time.monotonic() + timeout
        runs = [self._join(check) for check in checks]
        results = [self._wait(check, *run, end) for check, run in zip(checks, runs, strict=True)]
        return tuple(health for health in results if health.status != ABSENT)

    def _join(self, check: Check) -> tuple[_Record, futures.Future[Health]]:
        """Return the run of this check that is under way, or start one."""
        if self._owner != os.getpid():
            self._begin()  # a forked child has the locks and none of the threads that run
        with self._lock:
            record = self._records.setdefault(check, _Record())
            if record.result is None or record.result.done():
                record.began, record.limit = time.monotonic(), self._probe_timeout
                record.result = in_thread(partial(self._look, check, record))
            return record, record.result

    def _wait(
        self, check: Check, record: _Record, result: futures.Future[Health], end: float
    ) -> Health:
        done, _ = futures.wait([result], max(0.0, end - time.monotonic()))
        if done:
            return result.result()
        underway = time.monotonic() - record.began
        if underway > record.limit + _KILLING:
            # The thread itself hangs, not a child: its stat() or open() does not return.
            late = timed_out(check, seconds=round(underway), elapsed=underway)
            return replace(late, pending=True)
        if record.health:
            return replace(record.health, pending=True)
        return Health(
            name=check.name,
            file=check.file,
            verdict=Verdict.UNKNOWN,
            status=PENDING,
            message=f"{check.name} is being checked for the first time: ask again",
            time=time.time(),
            pending=True,
        )

    def _look(self, check: Check, record: _Record) -> Health:
        environ = dict(os.environ if self._environ is None else self._environ)
        health = record.health
        if health is None or not self._holds(record, health, environ):
            health = record.health = self._probe(check, record, environ)
        return health

    def _holds(self, record: _Record, health: Health, environ: Mapping[str, str]) -> bool:
        if record.stuck:
            record.stuck = [process for process in record.stuck if process.lives()]
            return bool(record.stuck)
        if time.monotonic() - record.probed >= record.lifetime:
            return False
        if record.fingerprint is None or health.report is None:
            return True
        return record.fingerprint == _fingerprint(health.report, environ)[0]

    def _probe(self, check: Check, record: _Record, environ: Mapping[str, str]) -> Health:
        began = time.time_ns()
        record.limit = timeout = _overrides.timeout(environ, self._probe_timeout)
        health = run(check, environ=environ, timeout=timeout)
        record.probed = time.monotonic()
        record.lifetime, record.fingerprint = self._interval, None
        if health.report and health.verdict is Verdict.OK:
            record.fingerprint, changed = _fingerprint(health.report, environ)
            if changed < began - _TICK_NS:
                record.lifetime = self._max_age
        if health.report and health.report.pid and (left := Leftover.of(health.report.pid)):
            record.stuck.append(left)
        if record.stuck:
            pid = record.stuck[-1].pid
            health = replace(
                health,
                verdict=Verdict.FAIL,
                status=Status.TIMED_OUT.value,
                detail=f"pid {pid} is stuck",
                pid=pid,
            )
        return health


def _fingerprint(report: LoadReport, environ: Mapping[str, str]) -> tuple[tuple[object, ...], int]:
    """Return what an OK depends on, and when the last of those files changed (nanoseconds)."""
    files = (os.fspath(report.path), *map(os.fspath, report.loaded), *_LOADERS)
    found = [identity(file) for file in files]
    newest = max((time for known in found if known for time in known[-2:]), default=0)
    variables = sorted(item for item in environ.items() if item[0].startswith(_MATTERS))
    return (*found, *variables), newest
