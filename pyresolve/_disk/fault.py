"""What is wrong with a library's file itself: a sentence for each cause.

The cause is found by native/fault.c, for the caller as for the helper.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from .._model import Diagnosis, ElfStatus, Status
from .elf import HOST, SHARED_OBJECT, printable, read

if TYPE_CHECKING:
    from pathlib import Path

    from .._model import ElfFacts

_TYPES = {1: "an object file", 2: "an executable", 4: "a core dump"}
_MACHINES = {
    3: "i386",
    8: "MIPS",
    20: "ppc",
    21: "ppc64",
    22: "s390",
    40: "arm",
    62: "x86-64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}

_REINSTALL = "reinstall the package it came from"

# How files begin that are often found in place of a library.
_LOOKALIKES = (
    (b"version https://git-lfs", "a Git LFS pointer, not the library: run git lfs pull"),
    (b"!<arch>\n", "a static archive: name the shared library instead"),
    (b"!<thin>\n", "a static archive: name the shared library instead"),
    (b"/* GNU ld script", "a linker script: name the library that it refers to"),
    (b"OUTPUT_FORMAT", "a linker script: name the library that it refers to"),
    (b"INPUT", "a linker script: name the library that it refers to"),
    (b"GROUP", "a linker script: name the library that it refers to"),
)


def diagnose(facts: ElfFacts) -> Diagnosis | None:
    """Name the cause that lies in the file itself; None for a sound library for this machine.

    None does not mean that it loads: what it needs of other files is not looked at.
    """
    if facts.fault is Status.LOADABLE:
        return None
    return Diagnosis(status=facts.fault, message=_message(facts, printable(str(facts.path))))


def find(path: os.PathLike[str] | str) -> Diagnosis | None:
    """Read a file and name the cause that lies in it."""
    return diagnose(read(path))


def _message(facts: ElfFacts, name: str) -> str:
    match facts.status:
        case ElfStatus.CANNOT_OPEN:
            return f"{name} {_unopened(facts)}"
        case ElfStatus.CANNOT_READ:
            reason = os.strerror(facts.errno)
            return f"{name} cannot be read ({reason}): check its file system"
        case ElfStatus.NOT_REGULAR:
            return f"{name} is {_file_kind(facts.path)}, expected a shared library"
        case ElfStatus.EMPTY:
            return f"{name} is empty (0 bytes): {_REINSTALL}"
        case ElfStatus.NOT_ELF:
            return f"{name} is {_lookalike(facts.path)}"
        case ElfStatus.TRUNCATED:
            return (
                f"{name} has {facts.size} bytes but its headers describe {facts.needed_size}: "
                f"the file is incomplete, {_REINSTALL}"
            )
        case ElfStatus.MALFORMED:
            return f"{name} is damaged, its headers contradict themselves: {_REINSTALL}"
        case _:
            return f"{name} {_unfit(facts)}"


def _unopened(facts: ElfFacts) -> str:
    """Say why the system refused to open the file."""
    match facts.errno:
        case errno.ENOENT:
            if target := _link_target(facts.path):
                return f"is a dangling link to {target}: {_REINSTALL}"
            return "does not exist: check the path, or install the package it belongs to"
        case errno.ENOTDIR:
            return "does not exist: a part of its path is not a directory"
        case errno.ELOOP:
            return "cannot be reached: its symbolic links lead in a circle"
        case errno.ENAMETOOLONG:
            return f"cannot exist: its path is too long ({len(os.fsencode(facts.path))} bytes)"
        case errno.EINVAL:
            return "cannot exist: its path holds a character that no file name can have"
        case errno.EACCES | errno.EPERM:
            return (
                f"cannot be opened ({os.strerror(facts.errno)}): "
                "make it readable and its directories searchable for this user"
            )
        case _:
            return f"cannot be opened ({os.strerror(facts.errno)})"


def _unfit(facts: ElfFacts) -> str:
    """Say what keeps a sound file from being a library for this machine and its C library."""
    if facts.fault is Status.WRONG_ARCH:
        built_for = _architecture(facts.elf_class, facts.byte_order, facts.machine)
        return (
            f"is built for {built_for}, this machine is {_architecture(*HOST)}: "
            "install the build for this machine"
        )
    if facts.fault is Status.NOEXEC:
        return (
            "is on a file system that is mounted noexec: install it elsewhere, or remount with exec"
        )
    if facts.type != SHARED_OBJECT:
        what = _TYPES.get(facts.type or 0, f"an ELF file of type {facts.type}")
        return f"is {what}, not a shared library: {_REINSTALL}"
    foreign = next((n for n in facts.needed if n == "libc.so" or n.startswith("libc.musl-")), "")
    other = "musl or Android" if foreign == "libc.so" else "musl"
    return (
        f"needs {foreign} ({other} libc), this system has {_glibc()}: "
        "install the build for glibc (manylinux)"
    )


def _lookalike(path: Path) -> str:
    """Say what a file without the ELF magic is, and what to do."""
    head = head_of(path, 512)
    for beginning, what in _LOOKALIKES:
        if head.lstrip().startswith(beginning):
            return what
    if b"\0" not in head and head.isascii():
        return f"a text file, expected a shared library: {_REINSTALL}"
    return f"not an ELF file, it begins with the bytes {head[:4].hex(' ')}: {_REINSTALL}"


def head_of(path: str | Path, size: int) -> bytes:
    """Return how a file begins; nothing if it cannot be read."""
    try:
        # A FIFO may have taken the place of the file.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(fd, size)
        finally:
            os.close(fd)
    except OSError:
        return b""


def _file_kind(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError:
        return "not a regular file"
    if stat.S_ISDIR(mode):
        return "a directory"
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"


def _link_target(path: Path) -> str | None:
    try:
        return printable(str(path.readlink()))
    except OSError:
        return None


def _glibc() -> str:
    """Return `glibc 2.36`."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "another C library"
    except (ValueError, OSError):
        return "another C library"


def _architecture(elf_class: int | None, byte_order: int | None, machine: int | None) -> str:
    name = _MACHINES.get(machine or 0, f"machine {machine}")
    bits = 64 if elf_class == 2 else 32
    endian = "little" if byte_order == 1 else "big"
    return f"{name} ({bits}-bit {endian}-endian)"
