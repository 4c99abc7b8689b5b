"""What an ELF file for this machine exports: the symbols with all that a copy of them takes.

Whether a file defines certain names is asked of elf.symbols(), which is faster.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import elf

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEADER = struct.Struct("=16sHHIQQQIHHHHHH")  # Elf64_Ehdr
_SEGMENT = struct.Struct("=IIQQQQQQ")  # Elf64_Phdr
_ENTRY = struct.Struct("=qQ")  # Elf64_Dyn
_SYMBOL = struct.Struct("=IBBHQQ")  # Elf64_Sym
_LOAD, _DYNAMIC = 1, 2  # p_type
_STRTAB, _SYMTAB, _STRSZ, _GNU_HASH, _HASH = 5, 6, 10, 0x6FFFFEF5, 4  # d_tag
_LOCAL, _TLS = 0, 6  # binding, type
_FUNCTION, _INDIRECT = 2, 10  # types
_MOST = 1 << 26  # bytes of one table: more than any real library has
_LONGEST = 1 << 16  # likewise entries of one chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """A symbol that a file defines; `size` is in bytes."""

    name: bytes
    function: bool
    size: int


def exported(path: os.PathLike[str] | str) -> tuple[Symbol, ...]:
    """Return the symbols that a file exports, none if it cannot be read."""
    if not elf.read(path).host:
        return ()
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return ()
    try:
        return tuple(_symbols(_Image(fd)))
    except (OSError, struct.error, ValueError, OverflowError):
        return ()  # malformed: the loader will say what is wrong with it
    finally:
        os.close(fd)


class _Image:
    """A file, addressed as the loader would map it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        header = _HEADER.unpack(os.pread(fd, _HEADER.size, 0))
        offset, size, count = header[5], header[9], header[10]
        if size != _SEGMENT.size:
            raise ValueError(size)
        table = os.pread(fd, size * count, offset)
        self._segments = list(_SEGMENT.iter_unpack(table[: len(table) // size * size]))
        self.dynamic: dict[int, int] = {}
        for kind, _, offset, _, _, size, *_ in self._segments:
            if kind == _DYNAMIC:
                data = os.pread(fd, min(size, _MOST) // _ENTRY.size * _ENTRY.size, offset)
                self.dynamic = dict(_ENTRY.iter_unpack(data[: len(data) // 16 * 16]))

    def at(self, address: int, size: int) -> bytes:
        """Return the bytes at an address."""
        if size > _MOST:
            raise ValueError(size)
        for kind, _, offset, start, _, file_size, *_ in self._segments:
            if kind == _LOAD and start <= address < start + file_size:
                return os.pread(self._fd, size, offset + address - start)
        raise ValueError(address)


def _count(image: _Image) -> int:
    """Return how many symbols there are: only a hash table tells."""
    dynamic = image.dynamic
    if _HASH in dynamic:
        return int(struct.unpack("=II", image.at(dynamic[_HASH], 8))[1])
    start = dynamic[_GNU_HASH]
    buckets, offset, bloom, _ = struct.unpack("=IIII", image.at(start, 16))
    start += 16 + 8 * bloom
    last = max(struct.unpack(f"={buckets}I", image.at(start, 4 * buckets)), default=0)
    if last < offset:
        return int(offset)
    start += 4 * buckets - 4 * offset
    for index in range(last, last + _LONGEST):
        if struct.unpack("=I", image.at(start + 4 * index, 4))[0] & 1:  # the end of its chain
            return index + 1
    raise ValueError(last)


def _symbols(image: _Image) -> Iterator[Symbol]:
    dynamic = image.dynamic
    if not {_STRTAB, _SYMTAB, _STRSZ} <= {*dynamic} or not {_HASH, _GNU_HASH} & {*dynamic}:
        return
    count = _count(image)
    table = image.at(dynamic[_SYMTAB], _SYMBOL.size * count)
    strings = image.at(dynamic[_STRTAB], dynamic[_STRSZ])
    for name, info, _, section, _, size in _SYMBOL.iter_unpack(table):
        if section and info >> 4 != _LOCAL and info & 15 != _TLS:
            yield Symbol(
                name=strings[name : strings.find(b"\0", name)],
                function=info & 15 in (_FUNCTION, _INDIRECT),
                size=size,
            )
