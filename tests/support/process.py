"""What is true of a process, and a fresh one to find out in."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any


def open_fds() -> dict[int, str]:
    """Return this process's open file descriptors and what each refers to."""
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that listed them
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def children() -> set[int]:
    """Return the pids of this process's direct children, zombies included."""
    return {pid for thread in Path("/proc/self/task").iterdir() for pid in _children_of(thread)}


def children_of(pid: int) -> set[int]:
    """Return the pids of another process's children; none where it has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return {child for task in tasks for child in _children_of(task)}
    return set()


def _children_of(thread: Path) -> set[int]:
    try:
        return set(map(int, (thread / "children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        if thread.exists():  # a kernel that does not list children must not pass for "none"
            raise
        return set()


def descendants(pid: int | str = "self") -> set[int]:
    """Return the pids of a process's children, their children, and so on."""
    found = {pid for thread in Path(f"/proc/{pid}/task").glob("*") for pid in _children_of(thread)}
    return found.union(*map(descendants, found))


def alive(pid: int) -> bool:
    """Tell whether a process exists and is no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def maps(pid: int | str = "self") -> set[str]:
    """Return the paths of the files that a process has mapped."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split(maxsplit=5)[5] for line in lines if "/" in line}


def rss_kib(pid: int | str = "self") -> int:
    """Return the resident memory of a process, in KiB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def poll(predicate: Callable[[], object], timeout: float = 5.0) -> bool:
    """Tell whether ``predicate`` becomes true within ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def cold(
    code: str,
    *args: str | os.PathLike[str],
    env: Mapping[str, str] | None = None,
    prefix: Sequence[str] = (),
    cwd: str | os.PathLike[str] = "/",
    timeout: float = 60.0,
) -> Any:
    """Run a snippet in a fresh interpreter and return the JSON it prints.

    The snippet finds ``args`` in ``sys.argv[1:]``. ``prefix`` is put before the interpreter. The
    neutral ``cwd`` keeps a source tree from being imported in place of what is installed.
    """
    done = subprocess.run(
        [*prefix, sys.executable, "-c", textwrap.dedent(code), *args],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        cwd=cwd,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit status {done.returncode}:\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout)
