"""A library that defines what a Python executable defines, so that an extension can be loaded.

No function of it can be used: each ends the process. Its data are zero.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from . import elf

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .symbols import Symbol

_CODE = {  # exit_group(1), by e_machine
    62: b"\xbf\x01\x00\x00\x00\xb8\xe7\x00\x00\x00\x0f\x05",  # x86-64
    183: struct.pack("<III", 0xD2800020, 0xD2800BC8, 0xD4000001),  # AArch64
}

_HEADER = struct.Struct("=16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SEGMENT = struct.Struct("=IIQQQQQQ")  # Elf64_Phdr
_SYMBOL = struct.Struct("=IBBHQQ")  # Elf64_Sym
_ENTRY = struct.Struct("=QQ")  # Elf64_Dyn
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551  # p_type
_READ, _WRITE, _EXECUTE = 4, 2, 1
_GLOBAL_OBJECT, _GLOBAL_FUNCTION = 0x11, 0x12  # st_info
_ABSENT, _SECTION = 0, 1  # st_shndx: any section but none
_PAGE = 1 << 16  # bytes: the largest page of both machines
_ALIGNMENT = 16


def build(symbols: Sequence[Symbol]) -> bytes | None:
    """Return the file that defines these symbols; None for a machine whose code is not known."""
    elf_class, byte_order, machine = elf.HOST
    code = _CODE.get(machine)
    if code is None:
        return None
    strings = b"\0" + b"".join(symbol.name + b"\0" for symbol in symbols)
    table = _SYMBOL.size * (1 + len(symbols))
    hashes = _hash_table([symbol.name for symbol in symbols])
    # The first segment is the code, the second begins with the tables and ends with the data.
    entries = 6
    place = {"dynamic": _PAGE}
    place["symbols"] = place["dynamic"] + entries * _ENTRY.size
    place["hash"] = place["symbols"] + table
    place["strings"] = place["hash"] + len(hashes)
    data = end = _aligned(place["strings"] + len(strings))
    begin = _HEADER.size + 4 * _SEGMENT.size
    rows = [_SYMBOL.pack(0, 0, 0, _ABSENT, 0, 0)]
    name = 1
    for symbol in symbols:
        if symbol.function:
            rows.append(_SYMBOL.pack(name, _GLOBAL_FUNCTION, 0, _SECTION, begin, len(code)))
        else:
            rows.append(_SYMBOL.pack(name, _GLOBAL_OBJECT, 0, _SECTION, end, symbol.size))
            end = _aligned(end + symbol.size)
        name += len(symbol.name) + 1
    dynamic = (
        (4, place["hash"]),  # DT_HASH
        (5, place["strings"]),  # DT_STRTAB
        (6, place["symbols"]),  # DT_SYMTAB
        (10, len(strings)),  # DT_STRSZ
        (11, _SYMBOL.size),  # DT_SYMENT
        (0, 0),
    )
    tables = b"".join(_ENTRY.pack(*entry) for entry in dynamic) + b"".join(rows) + hashes + strings
    size = begin + len(code)
    ident = b"\x7fELF" + bytes([elf_class, byte_order, 1])
    header = _HEADER.pack(
        *(ident, elf.SHARED_OBJECT, machine, 1, 0, _HEADER.size, 0, 0),
        *(_HEADER.size, _SEGMENT.size, 4, 0, 0, 0),
    )
    segments = (
        (_LOAD, _READ | _EXECUTE, 0, 0, 0, size, size, _PAGE),
        (_LOAD, _READ | _WRITE, _PAGE, _PAGE, _PAGE, len(tables), end - _PAGE, _PAGE),
        (_DYNAMIC, _READ | _WRITE, *(3 * (_PAGE,)), *(2 * (entries * _ENTRY.size,)), 8),
        (_STACK, _READ | _WRITE, 0, 0, 0, 0, 0, 16),
    )
    first = header + b"".join(_SEGMENT.pack(*segment) for segment in segments) + code
    assert data >= _PAGE + len(tables), "the data follow the tables"
    return first.ljust(_PAGE, b"\0") + tables


def _aligned(address: int) -> int:
    return -(-address // _ALIGNMENT) * _ALIGNMENT


def _hash_table(names: list[bytes]) -> bytes:
    """Return DT_HASH of the symbols 1, 2, … (System V ABI, "Hash Table")."""
    count = max(1, len(names))
    buckets, chains = [0] * count, [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = _hash(name) % count
        chains[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(f"={2 + count + len(chains)}I", count, len(chains), *buckets, *chains)


def _hash(name: bytes) -> int:
    value = 0
    for byte in name:
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value
