"""The process that measures, from both ends: `Caller` starts and asks it, `serve` runs in it.

A request is a line of JSON, and so is the answer. The process ends when its stdin does, so nothing
is left running even if the benchmark is killed.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pyresolve

from ._methods import METHODS, Unmeasurable, python

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_SERVE = "from pyresolve.bench._caller import serve; serve()"
_TIMEOUT = 180.0  # seconds for one request; longer than a method may be silent
_ALLOCATION = 256 << 20  # bytes in a second, on a very slow machine


class Caller:
    """A fresh interpreter that runs methods on request.

    `resident` is its resident memory in bytes, known once it is entered; `extra` of that it only
    holds. It has a session of its own, so that a Ctrl-C on the terminal reaches only the benchmark.
    `check_interrupt` is called while it waits, and may raise.
    """

    resident = 0

    def __init__(
        self,
        library: str,
        *,
        environ: Mapping[str, str],
        check_interrupt: Callable[[], None],
        extra: int = 0,
    ) -> None:
        self._check_interrupt = check_interrupt
        self._extra = extra
        self._received = b""
        self._process = subprocess.Popen(  # noqa: S603
            [*python(_SERVE), library, str(extra)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Caller:
        try:
            self.resident = self._answer(_TIMEOUT + self._extra / _ALLOCATION)["resident"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._requests.close()
        try:
            self._process.wait(5)  # it finishes its request, and waits for what it started
        except BaseException as error:  # it hangs, or this is another Ctrl-C
            # A program that it waits for may hang. The group has those; a helper ends by itself
            # when its parent does.
            self._kill()
            self._process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        self._answers.close()

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Send one request and return its answer.

        Raises Unmeasurable if it failed, and what `check_interrupt` raises.
        """
        try:
            self._requests.write(json.dumps(request).encode() + b"\n")
            self._requests.flush()
        except OSError:
            raise Unmeasurable("the process that measures has ended") from None
        return self._answer(_TIMEOUT)

    def side(self, method: str) -> Callable[[], float]:
        """Return a function that runs this method once and returns its seconds."""
        return lambda: float(self.ask(method=method)["taken"])

    def _answer(self, timeout: float) -> dict[str, Any]:
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        end = time.monotonic() + timeout
        while b"\n" not in self._received:
            self._check_interrupt()
            if time.monotonic() > end:
                self._kill()
                raise Unmeasurable(f"it did not end within {timeout:.0f} s")
            if poll.poll(100):  # milliseconds, so that an interrupt is seen soon
                part = os.read(self._answers.fileno(), 65536)
                if not part:
                    raise Unmeasurable("the process that measures has ended")
                self._received += part
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise Unmeasurable(answer["problem"])
        return answer

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


# --- in the process that measures


def serve() -> None:
    """Answer the requests on stdin until it ends."""
    library, extra = sys.argv[1], int(sys.argv[2])
    # If it was inherited as ignored, waitpid() would not tell how a child ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        memory = _hold(extra)
    except (OSError, MemoryError, OverflowError) as error:
        _send({"problem": f"{extra} bytes cannot be held: {error}"})
        return
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        _send({"resident": int(statm.read().split()[1]) * mmap.PAGESIZE})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "threads" in request:
                _send(_at_once(library, request["threads"], request["each"]))
            else:
                _send({"taken": METHODS[request["method"]].run(library)})
        except (pyresolve.PyresolveError, Unmeasurable, OSError, RuntimeError) as error:
            _send({"problem": str(error)})
    memory.close()


def _send(answer: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        os._exit(1)  # the benchmark has ended


def _hold(extra: int) -> mmap.mmap:
    """Return memory that is resident, in small pages: a fork has to copy an entry for each."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, max(extra, page), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, extra, page):
        memory[at] = 1
    return memory


def _at_once(library: str, threads: int, each: int) -> dict[str, Any]:
    """Let `threads` threads check at the same time; return the seconds of each call and of all."""
    from concurrent.futures import ThreadPoolExecutor, wait

    barrier = threading.Barrier(threads + 1)

    def work() -> list[float]:
        barrier.wait()
        return [METHODS["check"].run(library) for _ in range(each)]

    with ThreadPoolExecutor(threads) as pool:
        try:
            calls = [pool.submit(work) for _ in range(threads)]
        except RuntimeError:
            barrier.abort()  # the threads that did start wait for the others
            raise Unmeasurable(f"{threads} threads cannot be started here") from None
        begin = time.perf_counter()
        barrier.wait()
        wait(calls)
        wall = time.perf_counter() - begin
    return {"taken": [seconds for call in calls for seconds in call.result()], "wall": wall}
