"""What an ELF file says about itself, and which causes of failure lie in the file alone."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ._errors import ProbeError
from ._native import ffi, lib
from ._types import Diagnosis, ElfFacts, ElfStatus, Status, VersionNeed

_STATUS = tuple(ElfStatus)  # in the order of enum pyr_elf_status
_SHARED_OBJECT = 3  # e_type
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

# Errors of open that say nothing about the file.
_OURS = {
    errno.EMFILE: "this process has too many files open: raise ulimit -n",
    errno.ENFILE: "the system has too many files open",
    errno.ENOMEM: "the system is out of memory",
}

_REINSTALL = "reinstall the package it came from"

# How the files begin that most often stand where a library should be.
_LOOKALIKES = (
    (b"version https://git-lfs", "a Git LFS pointer, not the library: run git lfs pull"),
    (b"!<arch>\n", "a static archive: name the shared library instead"),
    (b"!<thin>\n", "a static archive: name the shared library instead"),
    (b"/* GNU ld script", "a linker script: name the library that it refers to"),
    (b"OUTPUT_FORMAT", "a linker script: name the library that it refers to"),
    (b"INPUT", "a linker script: name the library that it refers to"),
    (b"GROUP", "a linker script: name the library that it refers to"),
)

# The structure is 64 KiB, most of it never looked at: do not have it zeroed.
_new = ffi.new_allocator(should_clear_after_alloc=False)


def _host() -> tuple[int, int, int]:
    elf_class, byte_order = ffi.new("uint8_t *"), ffi.new("uint8_t *")
    machine = ffi.new("uint16_t *")
    lib.pyr_elf_host(elf_class, byte_order, machine)
    return elf_class[0], byte_order[0], machine[0]


_HOST = _host()


def read(path: os.PathLike[str] | str) -> ElfFacts:
    """Read the headers of the file at `path`; whatever it holds, the answer is a result.

    The file is neither loaded nor mapped, and a FIFO or a device does not block. Facts that were
    read before a failure are kept. Raises ProbeError only where no file at all could be opened.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:  # no file can have this name
        return ElfFacts(path=Path(path), status=ElfStatus.CANNOT_OPEN, errno=errno.EINVAL)

    out = _new("struct pyr_elf *")
    status = _STATUS[lib.pyr_elf_read(encoded, out)]
    if out.sys_errno in _OURS:
        raise ProbeError(f"{_printable(Path(path))} cannot be looked at: {_OURS[out.sys_errno]}")
    opened = out.inode != 0
    names: dict[bytes, list[str]] = {}
    versions: list[VersionNeed] = []
    file = ""
    for entry in ffi.buffer(out.text, out.text_size)[:].split(b"\0")[:-1]:
        kind, name = entry[:1], os.fsdecode(entry[1:])
        if kind == b"F":
            file = name
        elif kind == b"V":
            versions.append(VersionNeed(file=file, version=name))
        else:
            names.setdefault(kind, []).append(name)

    def last(kind: bytes) -> str | None:  # the loader, too, lets the last one count
        return names[kind][-1] if kind in names else None

    return ElfFacts(
        path=Path(path),
        status=status,
        errno=out.sys_errno,
        size=out.size if opened and status is not ElfStatus.NOT_REGULAR else None,
        needed_size=out.needed_size or None,
        device=out.device if opened else None,
        inode=out.inode if opened else None,
        elf_class=out.elf_class or None,
        byte_order=out.data or None,
        machine=out.machine or None,
        type=out.type or None,
        bind_now=bool(out.bind_now),
        host=(out.elf_class, out.data, out.machine) == _HOST,
        soname=last(b"S"),
        needed=tuple(names.get(b"N", ())),
        rpath=_search_path(last(b"R")),
        runpath=_search_path(last(b"U")),
        interpreter=last(b"I"),
        versions_needed=tuple(versions),
        versions_defined=tuple(names.get(b"D", ())),
    )


def sound(path: str) -> bool:
    """Tell whether `diagnose(read(path))` would find nothing, at a quarter of its cost.

    False says only that it is worth looking.
    """
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return False
    out = _new("struct pyr_elf *")
    if b"\0" in encoded or lib.pyr_elf_read(encoded, out) != 0 or out.type != _SHARED_OBJECT:
        return False
    host = (out.elf_class, out.data, out.machine) == _HOST
    needs = ffi.buffer(out.text, out.text_size)[:]
    foreign = b"Nlibc.so\0" in needs or b"Nlibc.musl-" in needs
    return host and not foreign and not _mounted_noexec(path)


def diagnose(facts: ElfFacts) -> Diagnosis | None:
    """Name the cause that lies in the file itself; None for a sound library for this machine.

    None does not mean that it loads: what it needs of other files is not looked at.
    """
    cause = _cause(facts, _printable(facts.path))
    return Diagnosis(status=cause[0], message=cause[1]) if cause else None


def _cause(facts: ElfFacts, name: str) -> tuple[Status, str] | None:
    match facts.status:
        case ElfStatus.CANNOT_OPEN:
            return _unopened(facts, name)
        case ElfStatus.CANNOT_READ:
            reason = os.strerror(facts.errno)
            return Status.NOT_LOADABLE, f"{name} cannot be read ({reason}): check its file system"
        case ElfStatus.NOT_REGULAR:
            return Status.NOT_ELF, f"{name} is {_file_kind(facts.path)}, expected a shared library"
        case ElfStatus.EMPTY:
            return Status.TRUNCATED, f"{name} is empty (0 bytes): {_REINSTALL}"
        case ElfStatus.NOT_ELF:
            return Status.NOT_ELF, f"{name} is {_lookalike(facts.path)}"
        case ElfStatus.TRUNCATED:
            return Status.TRUNCATED, (
                f"{name} has {facts.size} bytes but its headers describe {facts.needed_size}: "
                f"the file is incomplete, {_REINSTALL}"
            )
        case ElfStatus.MALFORMED:
            return Status.NOT_ELF, (
                f"{name} is damaged, its headers contradict themselves: {_REINSTALL}"
            )
        case _:
            return _unfit(facts, name)


def _unopened(facts: ElfFacts, name: str) -> tuple[Status, str]:
    """Name the cause where the system refused to open the file."""
    match facts.errno:
        case errno.ENOENT:
            if target := _link_target(facts.path):
                return Status.NOT_FOUND, f"{name} is a dangling link to {target}: {_REINSTALL}"
            advice = "check the path, or install the package it belongs to"
            return Status.NOT_FOUND, f"{name} does not exist: {advice}"
        case errno.ENOTDIR:
            problem = "does not exist: a part of its path is not a directory"
        case errno.ELOOP:
            problem = "cannot be reached: its symbolic links lead in a circle"
        case errno.ENAMETOOLONG:
            problem = f"cannot exist: its path is too long ({len(os.fsencode(facts.path))} bytes)"
        case errno.EINVAL:
            problem = "cannot exist: its path holds a character that no file name can have"
        case errno.EACCES | errno.EPERM:
            return Status.PERMISSION, (
                f"{name} cannot be opened ({os.strerror(facts.errno)}): "
                "make it readable and its directories searchable for this user"
            )
        case _:
            reason = os.strerror(facts.errno)
            return Status.NOT_LOADABLE, f"{name} cannot be opened ({reason})"
    return Status.NOT_FOUND, f"{name} {problem}"


def _unfit(facts: ElfFacts, name: str) -> tuple[Status, str] | None:
    """Name what keeps a sound file from being a library for this machine and its C library."""
    if not facts.host:
        built_for = _architecture(facts.elf_class, facts.byte_order, facts.machine)
        return Status.WRONG_ARCH, (
            f"{name} is built for {built_for}, this machine is {_architecture(*_HOST)}: "
            "install the build for this machine"
        )
    if facts.type != _SHARED_OBJECT:
        what = _TYPES.get(facts.type or 0, f"an ELF file of type {facts.type}")
        return Status.NOT_LOADABLE, f"{name} is {what}, not a shared library: {_REINSTALL}"
    foreign = next((n for n in facts.needed if n == "libc.so" or n.startswith("libc.musl-")), None)
    if foreign and (glibc := _glibc()):
        other = "musl or Android" if foreign == "libc.so" else "musl"
        return Status.NOT_LOADABLE, (
            f"{name} needs {foreign} ({other} libc), this system has {glibc}: "
            "install the build for glibc (manylinux)"
        )
    if _mounted_noexec(facts.path):
        return Status.NOEXEC, (
            f"{name} is on a file system that is mounted noexec: "
            "install it elsewhere, or remount with exec"
        )
    return None


def _lookalike(path: Path) -> str:
    """Say what a file without the ELF magic is, and what to do."""
    head = _head(path)
    for beginning, what in _LOOKALIKES:
        if head.lstrip().startswith(beginning):
            return what
    if b"\0" not in head and head.isascii():
        return f"a text file, expected a shared library: {_REINSTALL}"
    return f"not an ELF file, it begins with the bytes {head[:4].hex(' ')}: {_REINSTALL}"


def _head(path: Path) -> bytes:
    try:
        # A FIFO may have taken the place of the file.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            return os.read(fd, 512)
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
        return _printable(path.readlink())
    except OSError:
        return None


def _mounted_noexec(path: Path | str) -> bool:
    try:
        return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _glibc() -> str | None:
    """`glibc 2.36`, or None where the C library is another one."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _architecture(elf_class: int | None, byte_order: int | None, machine: int | None) -> str:
    name = _MACHINES.get(machine or 0, f"machine {machine}")
    bits = 64 if elf_class == 2 else 32
    endian = "little" if byte_order == 1 else "big"
    return f"{name} ({bits}-bit {endian}-endian)"


def _search_path(value: str | None) -> tuple[str, ...]:
    return tuple(value.split(":")) if value else ()


def _printable(path: Path) -> str:
    """`path` as text that any stream takes and that shows what is odd about it."""
    text = str(path)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
