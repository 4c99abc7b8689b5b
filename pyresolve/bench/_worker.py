"""The process that measures: a fresh interpreter that holds as much memory as it is told.

A request is a line of JSON, so is the answer. It ends with its stdin: whatever becomes of the
benchmark, nothing of it stays. It imports little, since all that it holds is what a fork copies.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from .._errors import PyresolveError
from ._methods import METHODS, Unmeasurable

if TYPE_CHECKING:
    from typing import Any

_PAGE = mmap.PAGESIZE


def main() -> None:
    """Do what stdin says until it ends."""
    library, extra = sys.argv[1], int(sys.argv[2])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited as ignored, it hides how children end
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
    import threading

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
