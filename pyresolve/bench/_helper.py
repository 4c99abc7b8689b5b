"""How much memory the helper takes."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import time
from pathlib import Path

import pyresolve

from ._methods import Unmeasurable

_NAME = "libpyresolve-bench.so"
_TIMEOUT = 10.0


def resident() -> list[int]:
    """Return the resident bytes of the processes of one check() just before its target is loaded.

    The target is a FIFO: the loader opens it and waits for its first byte, and so does the helper,
    for as long as somebody could write one. Every page that is mapped counts, shared ones too.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="pyresolve-bench-") as directory:
            fifo = Path(directory, _NAME)
            os.mkfifo(fifo)
            return _beside(fifo)
    except OSError as error:  # nowhere to write, or a /proc that lacks this
        raise Unmeasurable(str(error)) from None


def _beside(fifo: Path) -> list[int]:
    # A bare name is the loader's to find: of a path check() would say itself that it is a FIFO.
    environ = {"LD_LIBRARY_PATH": str(fifo.parent)}
    options = {"environ": environ, "timeout": 2 * _TIMEOUT}
    thread = threading.Thread(target=pyresolve.check, args=(_NAME,), kwargs=options)
    thread.start()
    writer = -1
    try:
        end = time.monotonic() + _TIMEOUT
        while (writer := _writer(fifo)) < 0:
            if time.monotonic() > end:
                raise Unmeasurable("the helper does not come to its target")
            time.sleep(0.001)
        return [_resident(pid) for pid in _below(os.getpid())]
    finally:
        fifo.unlink()  # a second try must not find it
        if writer >= 0:
            os.close(writer)
        thread.join()


def _writer(fifo: Path) -> int:
    """Open it for writing; -1 where nobody has it open for reading yet."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return -1


def _below(root: int) -> list[int]:
    """Return the helper among the children of a process, and all that it has started."""
    parents: dict[int, int] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            words = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(directory.name)] = int(words[1])
    found = [pid for pid, parent in parents.items() if parent == root and _is_helper(pid)]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def _is_helper(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").resolve().name == "pyresolve-helper"


def _resident(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()  # statm lags behind
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Rss:"))
