"""HealthMonitor: health for a program that runs on, asked again and again at next to no cost."""

from __future__ import annotations

import os
import threading
import time
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _overrides
from .._check.check import mode_of
from .._errors import ProbeError
from .._model import Status, Verdict
from .checks import ABSENT, PENDING, Health, Library, run, timed_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._model import LoadReport
    from .checks import Check

_MATTERS = ("LD_", "GLIBC_TUNABLES", "PYRESOLVE_", "PYTHON", "CUDA_", "CONDA_PREFIX")
"""How the variables begin that change what is found: by the loader, by pick(), by Python."""

_LOADERS = ("/etc/ld.so.cache", "/etc/ld.so.preload")

_KILLING = 3.0  # seconds that a probe may take beyond its deadline, to kill what hangs
_TICK_NS = 20_000_000  # nanoseconds: the kernel's clock for files is as coarse as this


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fingerprint:
    """What an OK rests on, and when the last of those files changed (nanoseconds)."""

    identity: tuple[object, ...]
    changed: int


@dataclass(frozen=True, slots=True)
class Leftover:
    """A process that could not be killed; `started` tells it from a later one of the same pid."""

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int) -> Leftover | None:
        """Return what is known about a process, None if it has ended."""
        state, started = _stat(pid)
        return None if state in ("", "Z", "X") else cls(pid, started)

    def lives(self) -> bool:
        """Tell whether it still runs; if it is a zombie child of this process, reap it."""
        now = Leftover.of(self.pid)
        if now and now.started in (self.started, ""):
            return True
        if _stat(self.pid)[1] == self.started:
            with suppress(ChildProcessError):  # it was the helper's child and is init's now
                os.waitpid(self.pid, os.WNOHANG)
        return False


def _stat(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process (proc(5)), empty if it has ended.

    One that /proc hides (hidepid, a container's own /proc) is `hidden`, with no start time.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ("hidden" if _runs(pid) else ""), ""
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _runs(pid: int) -> bool:
    """Tell whether there is such a process, other than a zombie child, without reading /proc."""
    with suppress(ChildProcessError):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False  # for kill(2) a zombie exists
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # kill(2): it exists, of another user
    return True


@dataclass(slots=True)
class _Record:
    """What is known about one check; only its flight, of which there is one at most, writes it."""

    flight: _Flight | None = None
    health: Health | None = None
    probed: float = 0.0
    lifetime: float = 0.0
    fingerprint: _Fingerprint | None = None
    stuck: list[Leftover] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class _Flight:
    """A look at one check under way, for which any number of callers may wait."""

    result: futures.Future[Health] = field(default_factory=futures.Future)
    began: float = field(default_factory=time.monotonic)
    limit: float  # seconds that its probe has


class HealthMonitor:
    """Answers whether libraries load, as check() does, for a program that asks all the time.

    An OK is kept for `max_age` seconds, as long as all files that were loaded are the same (by
    device, inode, size and times of change), as well as the loader's cache and the variables that
    matter (LD_*, PYTHON*, CUDA_* and pyresolve's own): to see that costs a stat for each file.
    Anything else, and an OK of files that changed while they were tried, is tried again, at most
    once in `interval` seconds. That another file would now be found first is seen after `max_age`.

    Any number of threads may ask; each target is tried once at a time, in `probe_timeout` seconds,
    and never in the caller's thread. One whose process cannot be killed, because it sleeps in the
    kernel, is reported with its `pid` and not tried again while that lives. `environ` is the
    environment of the workers, default os.environ as it is at each call.
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
        self._lock = threading.Lock()
        self._records: dict[Check, _Record] = {}

    def check(
        self, path: str | os.PathLike[str], *, mode: str = "dlopen", timeout: float = 1.0
    ) -> Health:
        """Return the health of the library at `path`; its `mode` is "dlopen" or "preload".

        Comes back within `timeout` seconds. Where there is no answer by then it is the last one,
        or UNKNOWN `pending` if there is none yet, with `pending` set; ask again later. Raises
        ValueError for a mode that means nothing, OverrideError for such a PYRESOLVE_TIMEOUT, and
        ProbeError where no thread can be started.
        """
        name = os.fspath(path)
        if "/" in name or not isinstance(path, str):
            name = os.path.join(os.getcwd(), name)  # noqa: PTH109, PTH118  (links stay)
        library = Library(path=name, mode=mode_of(mode), name=os.path.basename(name))  # noqa: PTH119
        return self.check_all([library], timeout=timeout)[0]

    def check_all(self, checks: Sequence[Check], *, timeout: float) -> tuple[Health, ...]:
        """Return the health of each, side by side, within `timeout` seconds in all."""
        end = time.monotonic() + timeout
        flights = [self._board(check) for check in checks]
        results = [
            self._wait(check, *flight, end) for check, flight in zip(checks, flights, strict=True)
        ]
        return tuple(health for health in results if health.status != ABSENT)

    def _board(self, check: Check) -> tuple[_Record, _Flight]:
        with self._lock:
            record = self._records.setdefault(check, _Record())
            flight = record.flight
            if flight is None:
                flight = record.flight = _Flight(limit=self._probe_timeout)
                thread = threading.Thread(
                    target=self._fly, args=(check, record, flight), daemon=True
                )
                try:
                    thread.start()
                except RuntimeError as error:
                    record.flight = None
                    raise ProbeError(f"{error}: raise ulimit -u or the pids limit") from error
            return record, flight

    def _wait(self, check: Check, record: _Record, flight: _Flight, end: float) -> Health:
        done, _ = futures.wait([flight.result], max(0.0, end - time.monotonic()))
        if done:
            return flight.result.result()
        underway = time.monotonic() - flight.began
        if underway > flight.limit + _KILLING:
            # Not a child but our own thread: a stat or an open that does not come back.
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

    def _fly(self, check: Check, record: _Record, flight: _Flight) -> None:
        try:
            environ = dict(os.environ if self._environ is None else self._environ)
            health = record.health
            if health is None or not self._holds(record, health, environ):
                health = record.health = self._probe(check, record, flight, environ)
        except BaseException as error:  # noqa: BLE001  (raised in whoever waits)
            outcome: Health | BaseException = error
        else:
            outcome = health
        with self._lock:
            record.flight = None
        if isinstance(outcome, BaseException):
            flight.result.set_exception(outcome)
        else:
            flight.result.set_result(outcome)

    def _holds(self, record: _Record, health: Health, environ: Mapping[str, str]) -> bool:
        if record.stuck:
            record.stuck = [process for process in record.stuck if process.lives()]
            return bool(record.stuck)
        if time.monotonic() - record.probed >= record.lifetime:
            return False
        if record.fingerprint is None or health.report is None:
            return True
        return record.fingerprint == _fingerprint(health.report, environ)

    def _probe(
        self, check: Check, record: _Record, flight: _Flight, environ: Mapping[str, str]
    ) -> Health:
        began = time.time_ns()
        flight.limit = timeout = _overrides.timeout(environ, self._probe_timeout)
        health = run(check, environ=environ, timeout=timeout)
        record.probed = time.monotonic()
        record.lifetime, record.fingerprint = self._interval, None
        if health.report and health.verdict is Verdict.OK:
            record.fingerprint = _fingerprint(health.report, environ)
            if record.fingerprint.changed < began - _TICK_NS:
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


def _fingerprint(report: LoadReport, environ: Mapping[str, str]) -> _Fingerprint:
    files = (os.fspath(report.path), *map(os.fspath, report.loaded), *_LOADERS)
    found: list[object] = []
    newest = 0
    for file in files:
        try:
            status = os.stat(file)  # noqa: PTH116  (of many, and a Path costs)
        except OSError:
            found.append(None)
            continue
        times = status.st_mtime_ns, status.st_ctime_ns
        newest = max(newest, *times)
        found += (status.st_dev, status.st_ino, status.st_size, *times)
    variables = sorted(item for item in environ.items() if item[0].startswith(_MATTERS))
    return _Fingerprint(identity=(*found, *variables), changed=newest)
