"""What an ELF file says about itself."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import REFUSALS, ProbeError
from .._model import ElfFacts, ElfStatus, Status, VersionNeed
from .._native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_STATUS = tuple(ElfStatus)  # in the order of enum pyr_elf_status
SHARED_OBJECT = 3  # e_type

_FAULTS = tuple(Status)  # in the order of enum pyr_status

# Errors of open that say nothing about the file.
_OURS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

# The structure is 64 KiB, most of which is never read: it need not be zeroed.
_new = ffi.new_allocator(should_clear_after_alloc=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbols:
    """Names in the dynamic symbol table of a library: what it defines, and what others must."""

    defined: frozenset[str]
    undefined: frozenset[str]


def _host() -> tuple[int, int, int]:
    elf_class, byte_order = ffi.new("uint8_t *"), ffi.new("uint8_t *")
    machine = ffi.new("uint16_t *")
    lib.pyr_elf_host(elf_class, byte_order, machine)
    return elf_class[0], byte_order[0], machine[0]


HOST = _host()


def read(path: os.PathLike[str] | str) -> ElfFacts:
    """Read the headers of the file at `path`; whatever it holds, the answer is a result.

    The file is neither loaded nor mapped, and a FIFO or a device does not block. Facts that were
    read before a failure are kept. Raises ProbeError only if no file at all could be opened.
    """
    encoded = _encoded(path)
    if encoded is None:  # no file can have this name
        return ElfFacts(
            path=Path(path),
            status=ElfStatus.CANNOT_OPEN,
            fault=Status.NOT_FOUND,
            errno=errno.EINVAL,
        )

    out = _new("struct pyr_elf *")
    status = _STATUS[lib.pyr_elf_read(encoded, out)]
    _raise_ours(path, out.sys_errno)
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

    def last(kind: bytes) -> str | None:  # the loader also uses the last one
        return names[kind][-1] if kind in names else None

    return ElfFacts(
        path=Path(path),
        status=status,
        fault=_FAULTS[lib.pyr_fault_of(encoded, out)],
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
        host=(out.elf_class, out.data, out.machine) == HOST,
        soname=last(b"S"),
        needed=tuple(names.get(b"N", ())),
        rpath=_search_path(last(b"R")),
        runpath=_search_path(last(b"U")),
        interpreter=last(b"I"),
        versions_needed=tuple(versions),
        versions_defined=tuple(names.get(b"D", ())),
    )


def symbols(path: os.PathLike[str] | str, prefix: str) -> Symbols | None:
    """Return the dynamic symbols of a library whose names begin with `prefix`.

    None if they cannot be read. Raises ProbeError as read() does.
    """
    encoded = _encoded(path)
    if encoded is None:
        return None
    out = _new("struct pyr_elf *")
    status = _STATUS[lib.pyr_elf_symbols(encoded, prefix.encode(), out)]
    _raise_ours(path, out.sys_errno)
    if status is not ElfStatus.SOUND:
        return None
    entries = [os.fsdecode(entry) for entry in ffi.buffer(out.text, out.text_size)[:].split(b"\0")]
    return Symbols(
        defined=frozenset(entry[1:] for entry in entries if entry[:1] == "d"),
        undefined=frozenset(entry[1:] for entry in entries if entry[:1] == "u"),
    )


def expanded(entries: Iterable[str], file: Path) -> Iterator[str]:
    """Yield entries of the RPATH or RUNPATH of a file as the loader expands them."""
    return (entry.replace("$ORIGIN", str(file.parent)) for entry in entries)


def _encoded(path: os.PathLike[str] | str) -> bytes | None:
    """Return a path as the system takes it, None if no file can have that name."""
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        return None
    return None if b"\0" in encoded else encoded


def _raise_ours(path: os.PathLike[str] | str, number: int) -> None:
    if number in _OURS:
        shown = printable(str(path))
        raise ProbeError(f"{shown} cannot be looked at ({os.strerror(number)}): {REFUSALS[number]}")


def _search_path(value: str | None) -> tuple[str, ...]:
    return tuple(value.split(":")) if value else ()


def printable(text: str) -> str:
    """Return a text that any stream takes and that shows what is odd about it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
