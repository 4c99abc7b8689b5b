"""Libraries with a little damage, each of which a seed brings back."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

_LOAD, _DYNAMIC = 1, 2
_HEADER, _SEGMENT, _ENTRY, _SYMBOL, _RELOCATION = 64, 56, 16, 24, 24

# Tags of the dynamic section whose value is an address, and of the size of what lies there; the
# size of the others is not written anywhere.
_TABLES = {
    "strings": (5, 10),
    "symbols": (6, None),
    "relocations": (7, 8),
    "calls": (23, 2),
    "hashes": (0x6FFFFEF5, None),
    "versions of symbols": (0x6FFFFFF0, None),
    "versions needed": (0x6FFFFFFE, None),
    "versions defined": (0x6FFFFFFC, None),
    "constructors": (25, 27),
}
_UNSIZED = 512  # bytes of such a table that are worth damaging
_SIZES = {"symbols": _SYMBOL, "relocations": _RELOCATION, "calls": _RELOCATION}


@dataclass(frozen=True)
class Region:
    """A table of the file, and how long an entry of it is."""

    name: str
    at: int
    length: int
    entry: int


def regions(data: bytes) -> list[Region]:
    """Return the tables that a loader reads."""
    (segments_at,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    found = [
        Region("header", 0, _HEADER, 2),
        Region("segments", segments_at, count * _SEGMENT, _SEGMENT),
    ]
    segments = [
        struct.unpack_from("<IIQQQQQQ", data, segments_at + i * _SEGMENT) for i in range(count)
    ]
    loads = [
        (address, at, size) for kind, _, at, address, _, size, _, _ in segments if kind == _LOAD
    ]
    _, _, at, _, _, size, _, _ = next(segment for segment in segments if segment[0] == _DYNAMIC)
    entries = dict(reversed(list(struct.iter_unpack("<qQ", data[at : at + size]))))
    used = next(i for i in range(0, size, _ENTRY) if data[at + i : at + i + 8] == bytes(8))
    found.append(Region("dynamic section", at, used + _ENTRY, _ENTRY))
    for name, (tag, size_tag) in _TABLES.items():
        address = entries.get(tag, -1)
        for start, at, size in loads:
            if start <= address < start + size:
                length = entries.get(size_tag, _UNSIZED) if size_tag else _UNSIZED
                length = min(length, start + size - address)
                found.append(Region(name, at + address - start, length, _SIZES.get(name, 8)))
    return [region for region in found if region.length > 0]


def mutate(data: bytes, tables: list[Region], chance: random.Random) -> tuple[bytes, str]:
    """Return a damaged copy, and what was done to it."""
    region = chance.choice(tables)
    copy = bytearray(data)
    done = [_damage(copy, region, chance) for _ in range(chance.choice((1, 1, 1, 2, 4)))]
    return bytes(copy), f"{region.name}: {', '.join(done)}"


def _damage(copy: bytearray, region: Region, chance: random.Random) -> str:
    at = region.at + chance.randrange(region.length)
    entry = region.at + (at - region.at) // region.entry * region.entry
    match chance.randrange(6):
        case 0:
            copy[at] ^= 1 << chance.randrange(8)
        case 1:
            copy[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        case 2:  # the same field of a neighbour
            length = min(region.entry, region.at + region.length - entry)
            other = region.at + chance.randrange(region.length) // region.entry * region.entry
            copy[entry : entry + length] = (copy[other : other + length] + bytes(length))[:length]
        case 3:
            copy[entry : entry + region.entry] = bytes(region.entry)
        case 4:  # a number that is a little off
            field = at - (at - region.at) % 4
            (number,) = struct.unpack_from("<I", copy, field)
            struct.pack_into(
                "<I", copy, field, (number + chance.choice((-8, -1, 1, 2, 16))) % 2**32
            )
        case _:
            field = at - (at - region.at) % 4
            struct.pack_into("<I", copy, field, chance.choice((0, 1, 2**16, 2**31, 2**32 - 1)))
    return f"byte {at}"
