"""What a plain process does with a library, to compare with what `check()` says of it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyresolve
from pyresolve import LoadReport, Status, Verdict
from support.compile import SOURCES, workshop
from support.tools import require_tool

LOADED = 42  # the exit status of sources/plain.c
_TIMEOUT = 3.0
_REPEATS = 8
_OPEN = f"import ctypes, os, sys; ctypes.CDLL(sys.argv[1]); os._exit({LOADED})"
_OTHERS = (
    "libm.so.6",
    "librt.so.1",
    "libdl.so.2",
    "libutil.so.1",
    "libanl.so.1",
    "libpthread.so.0",
)


@dataclass(frozen=True)
class Plain:
    """How the plain process ended, None if it had to be killed, and what it printed."""

    status: int | None
    said: str

    @property
    def works(self) -> bool:
        """True if the library was loaded and every function that it calls was found."""
        return self.status == LOADED


@dataclass(frozen=True)
class Disagreement:
    """What `check()` said and a plain process did, each time that both were tried."""

    reports: tuple[LoadReport, ...]
    plains: tuple[Plain, ...]

    @property
    def falsely_ok(self) -> bool:
        """True if check() said OK, each time."""
        return self.reports[0].verdict is Verdict.OK

    @property
    def status(self) -> Status:
        """The status that check() gave."""
        return self.reports[0].status

    def __str__(self) -> str:
        plain = self.plains[0]
        return (
            f"{self.reports[0].message!r}, but a plain process ended {plain.status}: {plain.said}"
        )


@functools.cache
def _program() -> str:
    program = Path(tempfile.mkdtemp(dir=workshop())) / "plain"
    command = [require_tool("gcc"), "-O1", SOURCES / "plain.c", "-o", program]
    subprocess.run(command, check=True)
    return os.fspath(program)


def is_extension(path: Path) -> bool:
    """Tell whether a file is an extension of Python, which finds symbols in the interpreter."""
    return b"\0PyInit_" in path.read_bytes()


def plain(path: Path, mode: str, environ: Mapping[str, str], crowd: int = 0) -> Plain:
    """Load a library as any program does.

    A preload is tried as programs start, and with every function that it calls looked up at once.
    `crowd` is how much lies in the memory of a process that opens it. An extension of Python is
    opened by the interpreter.
    """
    command = [_program(), mode, os.fspath(path), str(crowd)]
    if mode == "dlopen" and is_extension(path):
        return _run([sys.executable, "-I", "-S", "-c", _OPEN, os.fspath(path)], environ)
    if mode == "dlopen":
        return _run(command, environ)
    items = filter(None, (os.fspath(path), environ.get("LD_PRELOAD")))
    preloaded = {**environ, "LD_PRELOAD": ":".join(items)}
    lazy = _run(command, preloaded)
    return _run(command, {**preloaded, "LD_BIND_NOW": "1"}) if lazy.works else lazy


def _run(command: Sequence[str], environ: Mapping[str, str]) -> Plain:
    try:
        done = subprocess.run(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT,
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return Plain(None, "")
    return Plain(done.returncode, done.stderr.decode(errors="replace").strip())


def compare(
    path: Path, mode: str, environ: Mapping[str, str], crowd: int = 0
) -> tuple[LoadReport, Plain]:
    """Try a library both ways."""
    report = pyresolve.check(path, mode=mode, environ=environ, timeout=_TIMEOUT)
    return report, plain(path, mode, environ, crowd)


def agree(report: LoadReport, process: Plain) -> bool:
    """Tell whether a verdict is what a plain process showed. UNKNOWN claims nothing."""
    return report.verdict is Verdict.UNKNOWN or (report.verdict is Verdict.OK) == process.works


def disagreement(
    path: Path, mode: str, environ: Mapping[str, str], first: tuple[LoadReport, Plain]
) -> Disagreement | None:
    """Return how they disagree, None if it is by chance.

    A damaged library may have the loader read or write beyond it, and what that does depends on
    where things lie. So both are tried several times, with more and more in the memory of the
    plain process, more and more directories for the loader to remember, and more and more other
    preloads. It is by chance if any verdict is what any process showed.
    """
    pairs = [first]
    while not any(agree(report, process) for report, _ in pairs for _, process in pairs):
        count = len(pairs)
        if count == _REPEATS:
            return Disagreement(*map(tuple, zip(*pairs, strict=True)))
        nowhere = ":".join(f"/nowhere/{number}" for number in range(count))
        library_path = ":".join(filter(None, (environ.get("LD_LIBRARY_PATH"), nowhere)))
        varied = {**environ, "LD_LIBRARY_PATH": library_path}
        if mode == "preload":
            varied["LD_PRELOAD"] = ":".join(_OTHERS[:count])
        pairs.append(compare(path, mode, varied, crowd=4 * count))
    return None
