"""ELF files that no linker would write, for a reader that has to survive them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

SHARED_OBJECT, PT_LOAD, PT_DYNAMIC, PT_INTERP = 3, 1, 2, 3
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME, DT_RPATH = 0, 1, 5, 10, 14, 15
DT_BIND_NOW, DT_RUNPATH, DT_FLAGS = 24, 29, 30
DT_FLAGS_1, DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF

HEADER_SIZE, SEGMENT_SIZE = 64, 56


def segment(kind: int, offset: int, size: int, address: int | None = None) -> bytes:
    """Return a program header; the address is the offset where it is not given."""
    address = offset if address is None else address
    return struct.pack("=IIQQQQQQ", kind, 0, offset, address, address, size, size, 1)


def make_elf(
    ident: bytes,
    machine: int,
    *,
    dynamic: Iterable[tuple[int, int]] | None = ((DT_NULL, 0),),
    strings: bytes | None = None,
    verneed: bytes = b"",
    verdef: bytes = b"",
    segments: Iterable[bytes] = (),
    e_type: int = SHARED_OBJECT,
    **header: int,
) -> bytes:
    """Return an ELF64 file in this machine's byte order, loaded as a whole at address 0.

    The entries that refer to `strings`, `verneed` and `verdef` are put before those of `dynamic`,
    and `segments` behind those for all this. `header` replaces single fields: e_phoff,
    e_phentsize, e_phnum.
    """
    segments = tuple(segments)
    count = len(segments) + 1 + (dynamic is not None)
    tables = bytearray()
    entries = []
    start = HEADER_SIZE + count * SEGMENT_SIZE

    def place(content: bytes, tag: int) -> None:
        entries.append((tag, start + len(tables)))
        tables.extend(content)

    if verneed:
        place(verneed, DT_VERNEED)
    if verdef:
        place(verdef, DT_VERDEF)
    if strings is not None:
        place(strings, DT_STRTAB)
        entries.append((DT_STRSZ, len(strings)))
    where = start + len(tables)
    for tag, value in (*entries, *(dynamic or ())):
        tables += struct.pack("=QQ", tag, value)
    size = start + len(tables)

    load = segment(PT_LOAD, 0, size)
    table = segment(PT_DYNAMIC, where, size - where) if dynamic is not None else b""
    fields = {"e_phoff": HEADER_SIZE, "e_phentsize": SEGMENT_SIZE, "e_phnum": count, **header}
    head = ident.ljust(16, b"\0") + struct.pack(
        "=HHIQQQIHHHHHH",
        *(e_type, machine, 1, 0, fields["e_phoff"], 0, 0),
        *(HEADER_SIZE, fields["e_phentsize"], fields["e_phnum"], 0, 0, 0),
    )
    return head + load + table + b"".join(segments) + bytes(tables)


def need(
    file: int,
    names: Iterable[int],
    *,
    following: bool = False,
    version: int = 1,
    count: int | None = None,
    first: int = 16,
) -> bytes:
    """Return a Verneed for string offsets; `following` says that another one comes behind.

    `count` and `first` replace the number of names and the distance to the first of them.
    """
    names = list(names)
    size = 16 * (1 + len(names))
    count = len(names) if count is None else count
    record = struct.pack("=HHIII", version, count, file, first, size if following else 0)
    for i, name in enumerate(names):
        record += struct.pack("=IHHII", 0, 0, 0, name, 16 if i + 1 < len(names) else 0)
    return record


def definition(name: int, *, following: bool = False, version: int = 1) -> bytes:
    """Return a Verdef for a string offset; `following` as in `need`."""
    head = struct.pack("=HHHHIII", version, 0, 1, 1, 0, 20, 28 if following else 0)
    return head + struct.pack("=II", name, 0)
