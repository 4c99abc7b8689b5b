"""Programs that take no library from LD_PRELOAD, as far as their files tell."""

from __future__ import annotations

import os
import re
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from .._imports import importing
from . import elf, fault
from .elf import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .._model import ElfFacts

_SCRIPTS = 5  # fs/exec.c: so many interpreters of scripts may follow one another
_LINE = 256  # linux/binfmts.h: so much of the first line of a script is read

# The names of glibc's loader (sysdeps/**/shlib-versions), that of a version included.
_GLIBC = re.compile(r"ld-linux[\w-]*\.so\.\d+|ld(64)?\.so\.\d+|ld-\d[\d.]*\.so")

_EFFECTIVE = 1  # linux/capability.h: VFS_CAP_FLAGS_EFFECTIVE


def refusal(path: str, search: str | None = None) -> str | None:
    """Say why a process that is started from the file at `path` takes nothing from LD_PRELOAD.

    None if nothing speaks against it: a file that cannot be read tells nothing. `search` is the
    PATH with which the interpreter of a script is found.
    """
    for file in _run_by(path, search):
        if reason := _ignores(file):
            through = "" if file == path else f"{path} is run by {file}: "
            return printable(f"{through}{file} {reason}")
    return None


def _run_by(path: str, search: str | None) -> Iterator[str]:
    """Yield the file, and if it is a script its interpreter, and so on."""
    file: str | None = path
    for _ in range(_SCRIPTS):
        if file is None:
            return
        yield file
        file = _interpreter(fault.head_of(file, _LINE), search)


def _interpreter(head: bytes, search: str | None) -> str | None:
    line = os.fsdecode(head.partition(b"\n")[0])
    words = line[2:].split() if line.startswith("#!") else []
    if words[1:] and os.path.basename(words[0]) == "env":  # noqa: PTH119
        name = next((word for word in words[1:] if word != "-S" and "=" not in word), "-")
        if name.startswith("-"):
            return None
        with importing:
            from shutil import which
        return which(name, path=search)
    return words[0] if words else None


def _ignores(file: str) -> str | None:
    try:
        status = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    facts = elf.read(file)
    if facts.machine is None:
        return None  # a script, or unreadable
    return _is_privileged(file, status) or _is_foreign(facts)


def _is_privileged(file: str, status: os.stat_result) -> str | None:
    """Say why the kernel has the loader run in secure-execution mode (ld.so(8))."""
    try:
        if os.statvfs(file).f_flag & os.ST_NOSUID:
            return None
    except OSError:
        return None
    mode = status.st_mode
    ignored = "so that the loader ignores LD_PRELOAD: "
    if mode & stat.S_ISUID and status.st_uid != os.getuid() and not _no_new_privileges():
        return f"is set-user-ID, {ignored}use a copy without (chmod u-s)"
    both = stat.S_ISGID | stat.S_IXGRP
    if mode & both == both and status.st_gid != os.getgid() and not _no_new_privileges():
        return f"is set-group-ID, {ignored}use a copy without (chmod g-s)"
    if os.getuid() != 0 and _has_capabilities(file):  # they add nothing to what root has
        return f"has file capabilities, {ignored}remove them (setcap -r), or use a copy"
    return None


def _no_new_privileges() -> bool:
    try:
        return "\nNoNewPrivs:\t1" in Path("/proc/self/status").read_text()
    except OSError:
        return False


def _has_capabilities(file: str) -> bool:
    try:
        value = os.getxattr(file, "security.capability")
    except OSError:
        return False
    words = struct.unpack(f"<{len(value) // 4}I", value[: len(value) // 4 * 4])
    # The first word has the flag, then come pairs: what is permitted, what may be inherited.
    return bool(words and (words[0] & _EFFECTIVE or any(words[1:5:2])))


def _is_foreign(facts: ElfFacts) -> str | None:
    """Say why the program's loader cannot take a library that is built for this machine's glibc."""
    loader = facts.interpreter or facts.soname  # the loader itself may be given as the command
    if not facts.host:
        return f"is built for another machine than the hook: {_OTHER}"
    if loader is None:
        return f"is linked statically, so that no loader reads LD_PRELOAD: {_OTHER}"
    if not _GLIBC.fullmatch(os.path.basename(loader)):  # noqa: PTH119
        musl = "musl libc" if "musl" in loader else "another C library"
        return (
            f"runs on {musl} ({loader}), where no hook that is built for glibc can be loaded:"
            f" {_OTHER}"
        )
    return None


_OTHER = "use one that is linked dynamically with this machine's glibc"
