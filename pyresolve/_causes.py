"""From what the loader said and how a child ended to the name of the cause. Pure."""

from __future__ import annotations

import errno
import os
import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ._types import Status

if TYPE_CHECKING:
    from ._probe import Trial

# A path may hold anything, so the file comes first and greedily up to the words of glibc, which
# are not translated in a process that never calls setlocale (elf/dl-load.c, dl-version.c).
_NOT_FOUND = re.compile(r"(?P<file>.+): cannot open shared object file: (?P<reason>.+)")
_VERSION = re.compile(
    r"(?P<file>.+): version `(?P<version>[^']+)' not found(?: \(required by (?P<by>.+)\))?"
)
_LINK_TIME = re.compile(
    r"(?P<by>.+): symbol (?P<symbol>\S+), version (?P<version>\S+) not defined in file"
    r" (?P<file>.+) with link time reference"
)
_UNDEFINED = re.compile(
    r"(?P<by>.+): undefined symbol: (?P<symbol>[^\s,]+)(?:, version (?P<version>\S+))?"
)
_BROKEN_FILE = re.compile(
    r"(?P<file>.+): (?:file too short|invalid ELF header|wrong ELF class.*|ELF file .+"
    r"|ELF load command .+|cannot read file data.*|object file has no .+|only ET_DYN .+"
    r"|cannot dynamically load .+|failed to map segment from shared object.*)"
)
_FATAL = re.compile(
    r"^.+?: (?:error while loading shared libraries|symbol lookup error): (?P<rest>.+)$", re.M
)
_IGNORED = re.compile(
    r"^ERROR: ld\.so: object '(?P<file>.+)' from LD_PRELOAD cannot be preloaded"
    r" \((?P<reason>.+)\): ignored\.$",
    re.M,
)
_TRACE_MISSING = re.compile(r"^\t(?P<name>.+) => not found$", re.M)
_TRACE_FOUND = re.compile(r"^\t(?:.+ => )?(?P<path>/.+) \(0x[0-9a-f]+\)$", re.M)
_LOADER_FAILED = 127
_DRIVER_SYMBOL = re.compile(r"cu[A-Z]\w*(?:@.*)?")  # the driver API; the runtime's are cuda[A-Z]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Why a load failed, as the loader told it.

    `file` is the file it speaks of, `by` the one that asked for it, `name` the library, version or
    symbol that is wanted.
    """

    status: Status
    text: str
    file: str | None = None
    by: str | None = None
    name: str | None = None


def of_words(words: str) -> Cause:
    """Name the cause in dlerror's text, or in the last words of a program that did not start."""
    fatal = _FATAL.search(words)
    text = fatal["rest"] if fatal else words.strip()
    if match := _VERSION.search(text):
        file = match["file"].rsplit("\n", 1)[-1]
        if not fatal and ": " in file:  # PROGRAM: FILE: version …
            file = file.rsplit(": ", 1)[-1]
        return Cause(
            status=Status.VERSION_MISMATCH,
            text=match[0],
            file=file,
            by=match["by"],
            name=match["version"],
        )
    if match := _LINK_TIME.search(text):
        name = f"{match['symbol']}@{match['version']}"
        return Cause(
            status=Status.VERSION_MISMATCH,
            text=text,
            file=match["file"],
            by=match["by"],
            name=name,
        )
    if match := _UNDEFINED.search(text):
        name = match["symbol"] + (f"@{match['version']}" if match["version"] else "")
        return Cause(status=Status.UNDEFINED_SYMBOL, text=text, by=match["by"], name=name)
    if match := _NOT_FOUND.search(text):
        denied = match["reason"] == os.strerror(errno.EACCES)
        status = Status.PERMISSION if denied else Status.MISSING_DEPENDENCY
        return Cause(status=status, text=text, file=match["file"], name=match["file"])
    if match := _BROKEN_FILE.search(text):
        return Cause(status=Status.NOT_LOADABLE, text=text, file=match["file"])
    return Cause(status=Status.NOT_LOADABLE, text=text)


def is_ignored(words: str) -> str | None:
    """Return the loader's reason where it skipped a preload."""
    match = _IGNORED.search(words)
    return match["reason"] if match else None


def missing_in_trace(words: str) -> tuple[str, ...]:
    """Return the libraries that the loader's trace reports as not found."""
    return tuple(dict.fromkeys(match["name"] for match in _TRACE_MISSING.finditer(words)))


def found_in_trace(words: str) -> tuple[str, ...]:
    """Return the files that the loader's trace reports as found."""
    return tuple(dict.fromkeys(match["path"] for match in _TRACE_FOUND.finditer(words)))


def is_driver_symbol(name: str) -> bool:
    """Tell whether the driver library is what defines a symbol of this name."""
    return _DRIVER_SYMBOL.fullmatch(name) is not None


def how_it_ended(trial: Trial) -> tuple[Status, str] | None:
    """Name a way to end that is no answer: late, by a signal, by an exit of the target's own."""
    if trial.timed_out:
        return Status.TIMED_OUT, "did not finish"
    if trial.finished:
        return None
    if trial.wait_status is None:
        return Status.CRASHED, "killed the process that supervises it"
    if os.WIFSIGNALED(trial.wait_status):
        return Status.CRASHED, f"died of {signal_name(os.WTERMSIG(trial.wait_status))}"
    return Status.EXITED, f"ended with exit status {os.WEXITSTATUS(trial.wait_status)}"


def of_end(trial: Trial, words: str) -> Cause | None:
    """Name the loader's reason for ending a program before its main.

    None where it was not the loader: it ends a program with 127, or with 1 over a version. Any
    other end is the doing of a constructor, whatever it printed before.
    """
    status = trial.wait_status
    if trial.started or trial.timed_out or status is None or not os.WIFEXITED(status):
        return None
    cause, code = of_words(words), os.WEXITSTATUS(status)
    if code == 1 and cause.status is Status.VERSION_MISMATCH:
        return cause
    known = cause.status is not Status.NOT_LOADABLE or cause.file
    return cause if code == _LOADER_FAILED and known else None


def signal_name(number: int) -> str:
    """Return `SIGSEGV` for 11."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
