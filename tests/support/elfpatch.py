"""Damage to a copy of a library. ``src`` and ``dst`` may be the same file."""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

# Offsets into the ELF header, and values that are wrong on this machine.
CLASS, DATA, MACHINE = 4, 5, 18
CLASS_32, BIG_ENDIAN = 1, 2
FOREIGN_MACHINE = 0x3E if platform.machine() == "aarch64" else 0xB7

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_VERNEED, _DT_VERNEEDNUM = 5, 0x6FFFFFFE, 0x6FFFFFFF


def cut(src: Path, dst: Path, size: int) -> Path:
    """Keep the first ``size`` bytes: a download that broke off, or a full disk."""
    dst.write_bytes(src.read_bytes()[:size])
    return dst


def patch(src: Path, dst: Path, changes: Mapping[int, int]) -> Path:
    """Replace single bytes, given as ``{offset: byte}``."""
    data = bytearray(src.read_bytes())
    for offset, byte in changes.items():
        data[offset] = byte
    dst.write_bytes(data)
    return dst


def bump_version(src: Path, dst: Path, old: str, new: str) -> Path:
    """Make a library need the symbol version ``new`` wherever it needs ``old``.

    The loader compares names and their ELF hashes (gABI, "Hash Table"), so both change.
    """
    assert len(old) == len(new), "the string is replaced in place"
    data = bytearray(src.read_bytes())
    bumped = 0
    for entry, name in _needed_versions(data):
        if data[name : name + len(old) + 1] in (f"{old}\0".encode(), f"{new}\0".encode()):
            # Entries of several libraries share one string: it may be changed already.
            data[name : name + len(new)] = new.encode()
            struct.pack_into("<I", data, entry, _elf_hash(new))
            bumped += 1
    assert bumped, f"{src} needs no version {old}"
    dst.write_bytes(data)
    return dst


def lfs_pointer(dst: Path) -> Path:
    """Write what a checkout without Git LFS leaves in the place of a library."""
    oid = "sha256:" + "5a" * 32
    dst.write_text(f"version https://git-lfs.github.com/spec/v1\noid {oid}\nsize 1437144\n")
    return dst


def _elf_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value


def _needed_versions(data: bytearray) -> Iterator[tuple[int, int]]:
    """Yield the file offsets of each Elf64_Vernaux and of its name (little-endian ELF64 only)."""
    (phoff,) = struct.unpack_from("<Q", data, 32)
    phentsize, phnum = struct.unpack_from("<HH", data, 54)
    headers = [struct.unpack_from("<IIQQQQ", data, phoff + i * phentsize) for i in range(phnum)]

    def offset_of(address: int) -> int:
        for kind, _, offset, vaddr, _, filesz in headers:
            if kind == _PT_LOAD and vaddr <= address < vaddr + filesz:
                return offset + address - vaddr
        raise ValueError(f"address {address:#x} is not in the file")

    start, size = next((h[2], h[5]) for h in headers if h[0] == _PT_DYNAMIC)
    dynamic = dict(struct.iter_unpack("<QQ", data[start : start + size]))
    strings = offset_of(dynamic[_DT_STRTAB])
    need = offset_of(dynamic[_DT_VERNEED])
    for _ in range(dynamic[_DT_VERNEEDNUM]):
        _, count, _, first, following = struct.unpack_from("<HHIII", data, need)
        entry = need + first
        for _ in range(count):
            name, next_entry = struct.unpack_from("<II", data, entry + 8)
            yield entry, strings + name
            entry += next_entry
        need += following
