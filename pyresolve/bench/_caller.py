"""A fresh interpreter that holds as much memory as it is told, and measures what it is told.

A request is a line of JSON, so is the answer. It ends with its stdin, and with that of whoever
started it: whatever happens to the benchmark, nothing of it stays.
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
from typing import TYPE_CHECKING, Any

from .._errors import PyresolveError
from ._methods import METHODS
from ._sampling import Interrupt, Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._sampling import Side

_START = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0);"
    " from pyresolve.bench._caller import main; main()"
)
_TIMEOUT = 180.0  # seconds for one request, more than the longest that a method grants
_ALLOCATION = 256 << 20  # bytes in a second, on a very slow machine
_PAGE = mmap.PAGESIZE


class Caller:
    """The other end of such an interpreter.

    `resident` is how much memory it holds in all, in bytes, as soon as it is entered. It gets a
    session of its own: a Ctrl-C on the terminal is for the benchmark to act upon.
    """

    resident = 0

    def __init__(
        self, library: str, *, environ: Mapping[str, str], interrupt: Interrupt, extra: int = 0
    ) -> None:
        self._interrupt = interrupt
        self._extra = extra
        self._lines = b""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START, library, str(extra)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )

    def __enter__(self) -> Caller:
        try:
            answer = self._answer(_TIMEOUT + self._extra / _ALLOCATION)
            self.resident = answer["resident"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(5)  # it ends what it is at, and waits for what it has started
        except subprocess.TimeoutExpired:
            # What it waits for may hang, and is in its session; a helper ends with who started it.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()  # type: ignore[union-attr]

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Have it do one thing; return what it says.

        Raises Unmeasurable where it could not, Interrupted where the user wants an end.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Unmeasurable("the process that measures has ended") from None
        return self._answer(_TIMEOUT)

    def side(self, method: str) -> Side:
        """Return the side that is this method."""
        return lambda: int(self.ask(method=method)["taken"])

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        end = time.monotonic() + timeout
        while b"\n" not in self._lines:
            self._interrupt.heed()
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                raise Unmeasurable(f"it did not end within {timeout:.0f} s")
            if poll.poll(100):  # milliseconds; it answers at once, this is for the interrupt
                part = os.read(fd, 65536)
                if not part:
                    raise Unmeasurable("the process that measures has ended")
                self._lines += part
        line, _, self._lines = self._lines.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise Unmeasurable(answer["problem"])
        return answer


def main() -> None:
    """Do what stdin says until it ends."""
    library, extra = sys.argv[1], int(sys.argv[2])
    try:
        memory = _hold(extra)
    except (OSError, MemoryError, OverflowError) as error:
        _say({"problem": f"{extra} bytes cannot be held: {error}"})
        return
    _say({"resident": _resident()})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "threads" in request:
                _say(_together(library, request["threads"], request["each"]))
            else:
                _say({"taken": METHODS[request["method"]].run(library)})
        except (PyresolveError, Unmeasurable, OSError, RuntimeError) as error:
            _say({"problem": str(error)})
    memory.close()


def _say(answer: dict[str, Any]) -> None:
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        os._exit(1)  # nobody listens any more


def _hold(extra: int) -> mmap.mmap:
    """Return memory that is really there, in small pages: what a fork would have to copy."""
    memory = mmap.mmap(-1, max(extra, _PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    pages, step = extra // _PAGE, 1 << 16
    for at in range(0, pages, step):
        count = min(step, pages - at)
        memory[at * _PAGE : (at + count) * _PAGE : _PAGE] = b"\1" * count
    return memory


def _resident() -> int:
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123
        return int(statm.read().split()[1]) * _PAGE


def _together(library: str, threads: int, each: int) -> dict[str, Any]:
    """Let `threads` threads check at the same time; return what each call took, and all of them."""
    taken: list[int] = []
    problems: list[str] = []
    barrier = threading.Barrier(threads + 1)

    def work() -> None:
        try:
            barrier.wait()
            taken.extend(METHODS["check"].run(library) for _ in range(each))
        except threading.BrokenBarrierError:
            pass  # another thread could not be started
        except (PyresolveError, Unmeasurable, OSError) as error:
            problems.append(str(error))

    workers = [threading.Thread(target=work) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()
    except RuntimeError:
        barrier.abort()
        for worker in workers:
            if worker.ident is not None:
                worker.join()
        raise Unmeasurable(f"{threads} threads cannot be started here") from None
    begin = time.perf_counter_ns()
    barrier.wait()
    for worker in workers:
        worker.join()
    wall = time.perf_counter_ns() - begin
    if problems:
        raise Unmeasurable(problems[0])
    return {"taken": taken, "wall": wall}
