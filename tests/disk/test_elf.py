"""What a file says about itself, whatever the file is."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st
from support import elfpatch, process
from support.compile import cc, cc_text, workshop
from support.fuzz import fuzz
from support.tools import require_tool, require_unshare, unavailable

from native import make_elf
from pyresolve._disk.elf import read, symbols
from pyresolve._disk.fault import diagnose
from pyresolve._model import ElfFacts, ElfStatus, Status, VersionNeed

SOURCE = """
#include <stdio.h>
int first(void) { return puts("first"); }
int second(void) { return 2; }
"""
VERSIONS = "ONE_1 { global: first; local: *; };\nTWO_1.1 { global: second; } ONE_1;\n"
GB = 1 << 30
REINSTALL = "reinstall the package it came from"

HOST = read("/proc/self/exe")
TWO_NEEDS = make_elf.need(1, [3], following=True) + make_elf.need(1, [5])
TWO_DEFINITIONS = make_elf.definition(3, following=True) + make_elf.definition(5)
IDENT = bytes([0x7F, *b"ELF", HOST.elf_class, HOST.byte_order, 1])


def elf(**parts):
    """Return the bytes of a file for this machine."""
    return make_elf.make_elf(IDENT, HOST.machine, **parts)


def build(name, *flags):
    """Compile the library of these tests."""
    source = workshop() / "elf.c"
    source.write_text(SOURCE)
    return cc(source, workshop() / name, *flags)


@pytest.fixture(scope="session")
def library():
    """Return a library with nothing out of the ordinary."""
    return build("libplain.so", "-Wl,-soname,libplain.so.1")


@pytest.fixture
def memory():
    """Return a function that reads bytes as if they were a file."""
    fd = os.memfd_create("elf")

    def read_bytes(content):
        os.ftruncate(fd, 0)
        os.pwrite(fd, content, 0)
        return read(f"/proc/self/fd/{fd}")

    yield read_bytes
    os.close(fd)


def message(path):
    """Return the status and the sentence for a file, its path left out."""
    found = diagnose(read(path))
    assert found is not None
    return found.status, found.message.replace(str(path), "FILE")


def as_stranger(action):
    """Run `action` in a thread that has no rights on root's files."""
    if os.geteuid() != 0:
        return action()

    def run():
        # Of the calling thread alone, unlike setuid; it takes the capabilities on files along.
        # It reports no failure: a second call tells what the first one did.
        setfsuid = ctypes.CDLL(None).setfsuid
        setfsuid(65534)
        if setfsuid(-1) != 65534:
            unavailable("this user namespace has no other user")
        return action()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


# --- what a sound file says


def test_plain_library(library):
    """A library built here says what it was built with."""
    facts = read(library)
    info = library.stat()
    assert (facts.status, facts.errno, facts.needed_size) == (ElfStatus.SOUND, 0, None)
    assert (info.st_size, info.st_dev, info.st_ino) == (facts.size, facts.device, facts.inode)
    assert (facts.soname, facts.needed) == ("libplain.so.1", ("libc.so.6",))
    assert (facts.host, facts.type, facts.interpreter) == (True, 3, None)
    assert (
        facts.bind_now,
        facts.rpath,
        facts.runpath,
        facts.versions_defined,
    ) == (False, (), (), ())
    assert {"libc.so.6"} == {need.file for need in facts.versions_needed}
    assert all(need.version.startswith("GLIBC_2.") for need in facts.versions_needed)
    assert diagnose(facts) is None


@pytest.mark.parametrize(
    ("flag", "rpath", "runpath"),
    [
        ("--disable-new-dtags", ("$ORIGIN/../lib", "/opt/a b"), ()),
        ("--enable-new-dtags", (), ("$ORIGIN/../lib", "/opt/a b")),
    ],
)
def test_search_path(flag, rpath, runpath):
    """DT_RPATH, which beats LD_LIBRARY_PATH, is told from DT_RUNPATH, which does not."""
    facts = read(build("librun.so", f"-Wl,{flag}", "-Wl,-rpath,$ORIGIN/../lib:/opt/a b"))
    assert (rpath, runpath) == (facts.rpath, facts.runpath)


def test_versions_defined(tmp_path):
    """A version script's names are listed, the library's own first."""
    script = tmp_path / "versions"
    script.write_text(VERSIONS)
    facts = read(build("libver.so", "-Wl,-soname,libver.so.1", f"-Wl,--version-script={script}"))
    assert facts.versions_defined == ("libver.so.1", "ONE_1", "TWO_1.1")


def test_bind_now():
    """A library that wants its symbols at once says so."""
    assert read(build("libnow.so", "-Wl,-z,now")).bind_now


@pytest.mark.parametrize(
    ("tag", "value", "bind_now"),
    [
        (make_elf.DT_BIND_NOW, 0, True),
        (make_elf.DT_FLAGS, 8, True),
        (make_elf.DT_FLAGS, 4, False),
        (make_elf.DT_FLAGS_1, 1, True),
        (make_elf.DT_FLAGS_1, 8, False),
    ],
)
def test_bind_now_entries(memory, tag, value, bind_now):
    """Each of the three entries that mean BIND_NOW counts."""
    assert bind_now == memory(elf(dynamic=[(tag, value)])).bind_now


def test_stripped(library, tmp_path):
    """A file without section headers tells the same: the loader does not read them either."""
    stripped = bytearray(library.read_bytes())
    stripped[40:48] = bytes(8)  # e_shoff
    stripped[58:64] = bytes(6)  # e_shentsize, e_shnum, e_shstrndx
    (tmp_path / "lib.so").write_bytes(stripped)
    facts, expected = read(tmp_path / "lib.so"), read(library)
    assert (expected.needed, expected.versions_needed) == (facts.needed, facts.versions_needed)


@pytest.mark.parametrize(
    ("tag", "value", "field", "expected"),
    [
        (make_elf.DT_RPATH, b"", "rpath", ()),
        (make_elf.DT_RPATH, b"/a::b:", "rpath", ("/a", "", "b", "")),
        (make_elf.DT_RUNPATH, b"/x" * 10_000, "runpath", ("/x" * 10_000,)),
        (make_elf.DT_NEEDED, b"lib\xff.so", "needed", ("lib\udcff.so",)),
        (make_elf.DT_SONAME, b"", "soname", ""),
    ],
)
def test_odd_strings(memory, tag, value, field, expected):
    """An empty element of a path is kept (it is the current directory); length hardly matters."""
    facts = memory(elf(strings=b"\0" + value + b"\0", dynamic=[(tag, 1), (0, 0)]))
    assert (ElfStatus.SOUND, expected) == (facts.status, getattr(facts, field))


@given(
    needed=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\0", b"")), max_size=20),
    versions=st.lists(st.integers(0, 30), max_size=20),
)
def test_what_is_written_is_read(needed, versions):
    """The names of a file come back as they are and in order, unterminated table or not."""
    offsets, strings = [], b"\0"
    for name in needed:
        offsets.append(len(strings))
        strings += name + b"\0"
    names = [offsets[v % len(offsets)] for v in versions] if offsets else []
    content = elf(
        strings=strings,
        dynamic=[(make_elf.DT_NEEDED, offset) for offset in offsets],
        verneed=make_elf.need(0, [], following=True) + make_elf.need(0, names),
    )
    fd = os.memfd_create("elf")
    try:
        os.write(fd, content)
        facts = read(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    text = {offset: os.fsdecode(name) for offset, name in zip(offsets, needed, strict=True)}
    assert ElfStatus.SOUND is facts.status
    assert tuple(text.values()) == facts.needed
    assert tuple(VersionNeed(file="", version=text[n]) for n in names) == facts.versions_needed


@pytest.mark.parametrize(
    ("parts", "needs", "definitions"),
    [
        ({"verneed": make_elf.need(1, [3, 5]), "verdef": make_elf.definition(3)}, "bc", "b"),
        ({"verneed": TWO_NEEDS, "verdef": TWO_DEFINITIONS}, "bc", "bc"),
        ({"verneed": TWO_NEEDS, "dynamic": [(make_elf.DT_VERNEEDNUM, 1)]}, "b", ""),
        ({"verdef": TWO_DEFINITIONS, "dynamic": [(make_elf.DT_VERDEFNUM, 1)]}, "", "b"),
        ({"verneed": make_elf.need(1, [3], count=9)}, "b", ""),
        ({"verneed": make_elf.need(1, [3, 5], count=1)}, "b", ""),
    ],
)
def test_version_chains(memory, parts, needs, definitions):
    """A chain ends where its count or its last link says so, whichever comes first."""
    facts = memory(elf(strings=b"\0a\0b\0c\0", **parts))
    expected = tuple(VersionNeed(file="a", version=name) for name in needs)
    assert ElfStatus.SOUND is facts.status
    assert expected == facts.versions_needed
    assert tuple(definitions) == facts.versions_defined


def test_agrees_with_readelf():
    """For every file that this process has mapped, binutils says the same."""
    readelf = require_tool("readelf")
    files = sorted(path for path in process.maps() if ".so" in path and os.path.exists(path))
    assert files
    for path in files:
        command = [readelf, "-W", "-d", "-V", path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        names = dict.fromkeys(["NEEDED", "SONAME", "RPATH", "RUNPATH"], ())
        for tag, value in re.findall(
            r"\((NEEDED|SONAME|RPATH|RUNPATH)\)[^[]*\[(.*)\]", done.stdout
        ):
            names[tag] += (value,)
        facts = read(path)
        assert ElfStatus.SOUND is facts.status
        assert names == {
            "NEEDED": facts.needed,
            "SONAME": (facts.soname,) if facts.soname is not None else (),
            "RPATH": (":".join(facts.rpath),) if facts.rpath else (),
            "RUNPATH": (":".join(facts.runpath),) if facts.runpath else (),
        }
        needs, _, _ = done.stdout.partition("Version definition section")
        _, _, needs = done.stdout.partition("Version needs section")
        needed = re.findall(r"Name: (\S+)  Flags: .*  Version: \d+", needs)
        assert needed == [need.version for need in facts.versions_needed]
        defined = re.findall(r"Rev: 1  Flags: .*Cnt: \d+  Name: (\S+)", done.stdout)
        assert defined == list(facts.versions_defined)


# --- files that are damaged, hostile or no files at all


@pytest.mark.parametrize(
    ("parts", "status", "kept"),
    [
        ({"dynamic": None}, ElfStatus.MALFORMED, ()),
        ({"e_phentsize": 55}, ElfStatus.MALFORMED, ()),
        ({"e_phoff": 2**64 - 8}, ElfStatus.MALFORMED, ()),
        ({"e_phoff": 2**63}, ElfStatus.TRUNCATED, ()),
        ({"e_phnum": 129}, ElfStatus.TOO_MUCH, ()),
        ({"e_phnum": 0xFFFF}, ElfStatus.TOO_MUCH, ()),
        ({"dynamic": [(make_elf.DT_NEEDED, 1)]}, ElfStatus.MALFORMED, ()),
        ({"dynamic": [(make_elf.DT_STRTAB, 2**40)]}, ElfStatus.MALFORMED, ()),
        ({"dynamic": [(make_elf.DT_VERNEED, 2**64 - 1)]}, ElfStatus.MALFORMED, ()),
        ({"dynamic": [(make_elf.DT_VERDEF, 2**64 - 1)]}, ElfStatus.MALFORMED, ()),
        ({"dynamic": [(99, 0)] * 2048}, ElfStatus.TOO_MUCH, ()),
        ({"dynamic": [(99, 0)] * 2000}, ElfStatus.SOUND, ()),
        (
            {"strings": b"\0lib\0", "dynamic": [(make_elf.DT_NEEDED, n) for n in (1, 5)]},
            ElfStatus.MALFORMED,
            ("lib",),
        ),
        (
            {"strings": b"\0lib\0lib", "dynamic": [(make_elf.DT_NEEDED, n) for n in (1, 5)]},
            ElfStatus.MALFORMED,
            ("lib",),
        ),
        (
            {"strings": b"n" * 4000 + b"\0", "dynamic": [(make_elf.DT_NEEDED, 0)] * 17},
            ElfStatus.TOO_MUCH,
            ("n" * 4000,) * 16,
        ),
        (
            {"strings": b"n" * 32766 + b"\0", "dynamic": [(make_elf.DT_NEEDED, 0)] * 3},
            ElfStatus.TOO_MUCH,
            ("n" * 32766,) * 2,
        ),
        (
            {"strings": b"\0", "verneed": make_elf.need(0, [], following=True) * 5000},
            ElfStatus.TOO_MUCH,
            (),
        ),
        (
            {"strings": b"\0", "verdef": make_elf.definition(0, following=True) * 5000},
            ElfStatus.TOO_MUCH,
            (),
        ),
        ({"strings": b"\0", "verneed": make_elf.need(0, [0] * 5000)}, ElfStatus.TOO_MUCH, ()),
        ({"strings": b"\0", "verneed": make_elf.need(0, [0, 7])}, ElfStatus.MALFORMED, ()),
        (
            {"strings": b"\0", "verneed": make_elf.need(0, [0], first=2**31)},
            ElfStatus.MALFORMED,
            (),
        ),
        ({"strings": b"\0", "verneed": make_elf.need(0, [], version=2)}, ElfStatus.MALFORMED, ()),
        ({"strings": b"\0", "verdef": make_elf.definition(0, version=2)}, ElfStatus.MALFORMED, ()),
        ({"strings": b"\0", "verdef": make_elf.definition(7)}, ElfStatus.MALFORMED, ()),
    ],
)
def test_hostile_tables(memory, parts, status, kept):
    """Tables that lie end the reading; what came before is kept."""
    facts = memory(elf(**parts))
    assert (status, kept) == (facts.status, facts.needed)


@pytest.mark.parametrize(
    ("segment", "status", "needed_size"),
    [
        ((make_elf.PT_LOAD, 2**64 - 1, 1), ElfStatus.MALFORMED, None),
        ((make_elf.PT_LOAD, 1, 2**64 - 1), ElfStatus.MALFORMED, None),
        ((make_elf.PT_LOAD, 2**63, 5), ElfStatus.TRUNCATED, 2**63 + 5),
        ((make_elf.PT_LOAD, 2**63, 0), ElfStatus.SOUND, None),
        ((make_elf.PT_INTERP, 5000, 8), ElfStatus.TRUNCATED, 5008),
        ((make_elf.PT_INTERP, 0, 0), ElfStatus.MALFORMED, None),
        ((0x70000000, 2**64 - 1, 2**64 - 1), ElfStatus.SOUND, None),
    ],
)
def test_hostile_segments(memory, segment, status, needed_size):
    """Only what the loader would map or read has to be in the file."""
    facts = memory(elf(segments=[make_elf.segment(*segment)]))
    assert (status, needed_size) == (facts.status, facts.needed_size)


def test_interpreter(memory):
    """A program names its interpreter."""
    content = elf(segments=[make_elf.segment(make_elf.PT_INTERP, 0, 0)])
    place = len(content)
    content = elf(segments=[make_elf.segment(make_elf.PT_INTERP, place, 7)]) + b"/ld.so\0"
    assert (memory(content).status, memory(content).interpreter) == (ElfStatus.SOUND, "/ld.so")


def test_largest_extent(memory):
    """A truncated file tells how long it should be, whichever segment comes last."""
    loads = [make_elf.segment(make_elf.PT_LOAD, at, 10) for at in (9000, 70_000, 8000)]
    assert memory(elf(segments=loads)).needed_size == 70_010


def test_cut_library(memory, library):
    """Cut within its segments a library is truncated; what lies behind them it can do without."""
    content = library.read_bytes()
    end = memory(content[:2000]).needed_size
    assert 2000 < end < len(content)
    for size in [*range(2000, end, 97), end - 1]:
        facts = memory(content[:size])
        assert (ElfStatus.TRUNCATED, end, ()) == (facts.status, facts.needed_size, facts.needed)
    for size in [end, *range(end, len(content), 97)]:
        facts = memory(content[:size])
        assert (facts.status, facts.needed) == (ElfStatus.SOUND, ("libc.so.6",))


@pytest.mark.parametrize(
    ("size", "status", "needed_size", "machine"),
    [
        (0, ElfStatus.EMPTY, None, None),
        (1, ElfStatus.NOT_ELF, None, None),
        (3, ElfStatus.NOT_ELF, None, None),
        (4, ElfStatus.TRUNCATED, 16, None),
        (15, ElfStatus.TRUNCATED, 16, None),
        (16, ElfStatus.TRUNCATED, 64, None),
        (20, ElfStatus.TRUNCATED, 64, None),
        (63, ElfStatus.TRUNCATED, 64, None),
        (64, ElfStatus.TRUNCATED, 176, HOST.machine),
        (175, ElfStatus.TRUNCATED, 176, HOST.machine),
        (176, ElfStatus.TRUNCATED, 192, HOST.machine),
        (191, ElfStatus.TRUNCATED, 192, HOST.machine),
        (192, ElfStatus.SOUND, None, HOST.machine),
    ],
)
def test_cut(memory, size, status, needed_size, machine):
    """A cut anywhere is a cut, and tells how much the headers that are left describe."""
    facts = memory(elf()[:size])
    assert (status, size, needed_size) == (facts.status, facts.size, facts.needed_size)
    assert (machine, machine is not None) == (facts.machine, facts.host)


@pytest.mark.parametrize(
    ("changes", "status", "machine"),
    [
        ({elfpatch.CLASS: 1}, ElfStatus.FOREIGN, HOST.machine),
        ({elfpatch.CLASS: 3}, ElfStatus.MALFORMED, None),
        ({elfpatch.DATA: 3 - HOST.byte_order}, ElfStatus.FOREIGN, HOST.machine << 8),
        ({elfpatch.DATA: 0}, ElfStatus.MALFORMED, None),
        ({6: 0}, ElfStatus.MALFORMED, None),
        ({elfpatch.MACHINE: 0xF3}, ElfStatus.SOUND, 0xF3),
    ],
)
def test_another_machine(library, tmp_path, changes, status, machine):
    """Class and byte order are recognised; a file of another machine is read all the same."""
    facts = read(elfpatch.patch(library, tmp_path / "lib.so", changes))
    assert (status, machine, False) == (facts.status, machine and facts.machine, facts.host)
    assert (("libc.so.6",) if status is ElfStatus.SOUND else ()) == facts.needed


def test_fifo(tmp_path):
    """A FIFO without a writer blocks nobody."""
    os.mkfifo(tmp_path / "lib.so")
    started = time.monotonic()
    assert ElfStatus.NOT_REGULAR is read(tmp_path / "lib.so").status
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("content", [b"", elf(), elf(segments=[make_elf.segment(1, 0, 100 * GB)])])
def test_sparse(tmp_path, content):
    """A file of 100 GB costs no more than a small one."""
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    os.truncate(path, 100 * GB)
    started = time.monotonic()
    assert (ElfStatus.SOUND if content else ElfStatus.NOT_ELF) is read(path).status
    assert time.monotonic() - started < 1


def test_shrinking():
    """A file that holds less than its size says, as when it is cut meanwhile, is truncated."""
    path = Path("/sys/class/net/lo/mtu")  # said to be a page long
    if not path.exists():
        unavailable(f"{path} is not there")
    facts = read(path)
    expected = (ElfStatus.TRUNCATED, len(path.read_bytes()), 64)
    assert expected == (facts.status, facts.size, facts.needed_size)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("missing.so", errno.ENOENT),
        ("", errno.ENOENT),
        ("/dev/null/lib.so", errno.ENOTDIR),
        ("/" + "n" * 300, errno.ENAMETOOLONG),
        ("n" * 5000, errno.ENAMETOOLONG),
        ("nul\0.so", errno.EINVAL),
        ("surrogate\ud800.so", errno.EINVAL),
    ],
)
def test_no_such_path(path, number):
    """A path that leads nowhere is a result, not an exception."""
    facts = read(path)
    assert facts == ElfFacts(
        path=Path(path),
        status=ElfStatus.CANNOT_OPEN,
        fault=Status.NOT_FOUND,
        errno=number,
    )


def test_path_that_is_not_text(library, tmp_path):
    """A name that is not UTF-8 is opened, and shown in ASCII."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/lib\xff\n.so"))
    path.write_bytes(library.read_bytes())
    assert ElfStatus.SOUND is read(path).status
    path.write_bytes(b"")
    assert diagnose(read(path)).message.startswith(f"{tmp_path}/lib\\udcff\\n.so is empty")


# --- what to say about it


def arch(facts):
    """Return the name of a machine as diagnose gives it."""
    names = {62: "x86-64", 183: "aarch64", 243: "riscv"}
    bits, order = 32 * facts.elf_class, ("little", "big")[facts.byte_order - 1]
    return f"{names.get(facts.machine, f'machine {facts.machine}')} ({bits}-bit {order}-endian)"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", (Status.TRUNCATED, f"FILE is empty (0 bytes): {REINSTALL}")),
        (
            elf()[:100],
            (
                Status.TRUNCATED,
                "FILE has 100 bytes but its headers describe 176: "
                f"the file is incomplete, {REINSTALL}",
            ),
        ),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
            (Status.NOT_ELF, "FILE is a Git LFS pointer, not the library: run git lfs pull"),
        ),
        (
            b"!<arch>\nfile.o/",
            (Status.NOT_ELF, "FILE is a static archive: name the shared library instead"),
        ),
        (
            b"/* GNU ld script\n*/\nGROUP ( libc.so.6 )",
            (Status.NOT_ELF, "FILE is a linker script: name the library that it refers to"),
        ),
        (
            b"\nINPUT(libz.so.1)\n",
            (Status.NOT_ELF, "FILE is a linker script: name the library that it refers to"),
        ),
        (
            b"<!DOCTYPE html>",
            (Status.NOT_ELF, f"FILE is a text file, expected a shared library: {REINSTALL}"),
        ),
        (
            b"MZ\x90\0\x03",
            (
                Status.NOT_ELF,
                f"FILE is not an ELF file, it begins with the bytes 4d 5a 90 00: {REINSTALL}",
            ),
        ),
        (
            elf(dynamic=None),
            (
                Status.NOT_ELF,
                f"FILE is damaged, its headers contradict themselves: {REINSTALL}",
            ),
        ),
        (
            elf(e_type=1),
            (Status.NOT_LOADABLE, f"FILE is an object file, not a shared library: {REINSTALL}"),
        ),
        (
            elf(e_type=2),
            (Status.NOT_LOADABLE, f"FILE is an executable, not a shared library: {REINSTALL}"),
        ),
        (
            elf(e_type=4),
            (Status.NOT_LOADABLE, f"FILE is a core dump, not a shared library: {REINSTALL}"),
        ),
        (
            elf(e_type=77),
            (
                Status.NOT_LOADABLE,
                f"FILE is an ELF file of type 77, not a shared library: {REINSTALL}",
            ),
        ),
    ],
)
def test_diagnosis_of_content(tmp_path, content, expected):
    """What a file holds in the place of a library is named, with the remedy."""
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    assert expected == message(path)


def test_object_file():
    """What the compiler leaves before linking is told from a library."""
    expected = (Status.NOT_LOADABLE, f"FILE is an object file, not a shared library: {REINSTALL}")
    assert expected == message(build("elf.o", "-c"))


@pytest.mark.parametrize(
    "changes",
    [
        {elfpatch.CLASS: elfpatch.CLASS_32},
        {elfpatch.DATA: 3 - HOST.byte_order},
        {elfpatch.MACHINE: elfpatch.FOREIGN_MACHINE},
    ],
)
def test_diagnosis_of_another_machine(library, tmp_path, changes):
    """The loader says "no such file" here; both machines are named instead."""
    path = elfpatch.patch(library, tmp_path / "lib.so", changes)
    assert message(path) == (
        Status.WRONG_ARCH,
        f"FILE is built for {arch(read(path))}, this machine is {arch(HOST)}: "
        "install the build for this machine",
    )


@pytest.mark.parametrize(
    ("needed", "libc"),
    [("libc.musl-x86_64.so.1", "musl libc"), ("libc.so", "musl or Android libc")],
)
def test_diagnosis_of_another_libc(tmp_path, needed, libc):
    """A build for another C library is told before the loader maps a second one."""
    path = tmp_path / "lib.so"
    strings = f"\0libm.so.6\0{needed}\0".encode()
    path.write_bytes(elf(strings=strings, dynamic=[(1, 1), (1, 11)]))
    glibc = os.confstr("CS_GNU_LIBC_VERSION")
    assert message(path) == (
        Status.NOT_LOADABLE,
        f"FILE needs {needed} ({libc}), this system has {glibc}: "
        "install the build for glibc (manylinux)",
    )


def make_nothing(path):
    """Leave the path as it is."""


def make_dangling(path):
    """Make a link to nowhere."""
    path.symlink_to("gone.so")


def make_circle(path):
    """Make a link to itself."""
    path.symlink_to(path.name)


def make_socket(path):
    """Make a socket that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            make_nothing,
            (
                Status.NOT_FOUND,
                "FILE does not exist: check the path, or install the package it belongs to",
            ),
        ),
        (make_dangling, (Status.NOT_FOUND, f"FILE is a dangling link to gone.so: {REINSTALL}")),
        (
            make_circle,
            (Status.NOT_FOUND, "FILE cannot be reached: its symbolic links lead in a circle"),
        ),
        (Path.mkdir, (Status.NOT_ELF, "FILE is a directory, expected a shared library")),
        (os.mkfifo, (Status.NOT_ELF, "FILE is a FIFO, expected a shared library")),
        (make_socket, (Status.NOT_ELF, "FILE is a socket, expected a shared library")),
    ],
)
def test_diagnosis_of_no_file(tmp_path, make, expected):
    """What is not a file is named for what it is."""
    make(tmp_path / "lib.so")
    assert expected == message(tmp_path / "lib.so")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/dev/null", (Status.NOT_ELF, "FILE is a device, expected a shared library")),
        (
            "/dev/null/lib.so",
            (Status.NOT_FOUND, "FILE does not exist: a part of its path is not a directory"),
        ),
        (
            "/" + "n" * 5000,
            (Status.NOT_FOUND, "FILE cannot exist: its path is too long (5001 bytes)"),
        ),
    ],
)
def test_diagnosis_of_path(path, expected):
    """A path that cannot lead to a library is told why."""
    assert expected == message(path)


def test_diagnosis_of_impossible_path():
    """A path with a NUL is shown as it was given."""
    assert diagnose(read("/lib\0.so")).message == (
        "/lib\\x00.so cannot exist: its path holds a character that no file name can have"
    )


def test_diagnosis_of_permission(library, tmp_path):
    """A file that this user may not read is not taken for a missing one."""
    path = elfpatch.patch(library, tmp_path / "lib.so", {})
    path.chmod(0)
    assert as_stranger(lambda: message(path)) == (
        Status.PERMISSION,
        "FILE cannot be opened (Permission denied): "
        "make it readable and its directories searchable for this user",
    )


def test_diagnosis_of_read_error():
    """A regular file whose contents the system refuses is told from a bad one."""
    path = "/sys/class/net/lo/speed"  # the loopback has none
    if read(path).status is not ElfStatus.CANNOT_READ:
        unavailable(f"{path} can be read, or is not there")
    assert message(path) == (
        Status.NOT_LOADABLE,
        "FILE cannot be read (Invalid argument): check its file system",
    )


def test_diagnosis_of_noexec(library, tmp_path):
    """A sound library on a noexec mount is one that cannot be loaded."""
    script = f'mount -t tmpfs -o noexec tmpfs "{tmp_path}" && cp "$0" "{tmp_path}" && exec "$@"'
    code = """
        import json, sys
        from pyresolve._disk.elf import read, symbols
        from pyresolve._disk.fault import diagnose
        found = diagnose(read(sys.argv[1]))
        print(json.dumps([found.status.name, found.message]))
    """
    path = tmp_path / library.name
    prefix = [require_unshare(), "-rm", "sh", "-c", script, str(library)]
    assert process.cold(code, path, prefix=prefix) == [
        Status.NOEXEC.name,
        f"{path} is on a file system that is mounted noexec: "
        "install it elsewhere, or remount with exec",
    ]


# --- any bytes


def examine(content):
    """Read and diagnose `content`; check what holds for any file."""
    fd = os.memfd_create("elf")
    try:
        os.write(fd, content)
        facts = read(f"/proc/self/fd/{fd}")
        found = diagnose(facts)
    finally:
        os.close(fd)
    assert len(content) == facts.size
    assert (facts.status is ElfStatus.EMPTY) == (content == b"")
    assert (facts.status is ElfStatus.NOT_ELF) == (content != b"" and content[:4] != IDENT[:4])
    assert facts.status is not ElfStatus.TRUNCATED or facts.needed_size > facts.size
    if found is None:
        assert (facts.host, facts.type) == (True, 3)
    else:
        assert found.message.isprintable()
    return facts


@given(st.binary(max_size=300))
@example(IDENT)
def test_arbitrary_bytes(content):
    """Any bytes give an answer."""
    examine(content)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_behind_the_magic(content):
    """Any bytes behind a sound beginning give an answer."""
    examine(IDENT + content)


@given(
    changes=st.lists(
        st.tuples(st.integers(0, 1 << 12), st.integers(0, 255)) | st.integers(0, 1 << 12),
        max_size=9,
    ),
    value=st.sampled_from([0, 1, 255, 2**31, 2**32 - 1, 2**63, 2**64 - 1]),
    size=st.none() | st.integers(0, 1 << 14),
)
def test_mutations(library, changes, value, size):
    """A real library, changed in its headers and tables or cut, gives an answer."""
    content = bytearray(library.read_bytes())
    for change in changes:
        if isinstance(change, tuple):
            content[change[0]] = change[1]
        else:
            content[change & ~7 : (change & ~7) + 8] = value.to_bytes(8, sys.byteorder)
    examine(bytes(content[:size]))


def test_fuzz(tmp_path, library):
    """The fuzzer, under sanitizers, finds nothing in a moment; it is meant to run for longer."""
    (tmp_path / "seed").write_bytes(elf(strings=b"\0n\0", dynamic=[(1, 1)]))
    done = fuzz(tmp_path, "elf", "elf.c", "2", library, tmp_path / "seed")
    assert (done.returncode, done.stderr) == (0, "")


# --- leaks and threads


def test_leaves_nothing_open(library, tmp_path):
    """However the reading ends, no descriptor stays."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "cut").write_bytes(library.read_bytes()[:1000])
    (tmp_path / "text").write_text("text")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("fifo", "cut", "text", "gone", ".", library):
        diagnose(read(tmp_path / name))
    assert before == len(os.listdir("/proc/self/fd"))


def test_leaves_no_memory(library):
    """Reading again and again does not grow the process."""
    for _ in range(200):
        diagnose(read(library))
    before = process.rss_kib()
    for _ in range(2000):
        diagnose(read(library))
    assert process.rss_kib() - before < 1024


def test_threads(library, tmp_path):
    """Sixteen threads at once get the answers that one gets."""
    paths = [library, tmp_path, tmp_path / "gone", Path("/proc/self/exe"), Path("/dev/null")] * 40
    expected = [(read(path), diagnose(read(path))) for path in paths]
    barrier = threading.Barrier(16)

    def work(_):
        barrier.wait()
        return [(read(path), diagnose(read(path))) for path in paths]

    with ThreadPoolExecutor(16) as pool:
        assert [expected] * 16 == list(pool.map(work, range(16)))


# --- dynamic symbols

BOTH = """
int puts(const char *);
static int hidden(void) { return 1; }
int cudaMine(void) { return hidden(); }
int cudaTheirs(void);
__attribute__((weak)) int cudaMaybe(void);
int other(void) { return puts("") + cudaTheirs() + (cudaMaybe ? cudaMaybe() : 0); }
"""


@pytest.mark.parametrize("style", ["gnu", "sysv", "both"])
def test_symbols_by_either_hash_table(tmp_path, style):
    """Defined and undefined ones, weak ones too; no other prefix, and nothing that is local."""
    library = cc_text(BOTH, tmp_path / "libboth.so", f"-Wl,--hash-style={style}")
    found = symbols(library, "cuda")
    assert ({"cudaMine"}, {"cudaTheirs", "cudaMaybe"}) == (found.defined, found.undefined)
    assert {"cudaMine", "other"} <= symbols(library, "").defined


def test_symbols_of_a_library_that_defines_none(tmp_path):
    """Its hash table does not tell how many symbols it uses: unknown, and not "none"."""
    text = "int cudaTheirs(void); __attribute__((constructor)) static void f(void) {cudaTheirs();}"
    assert symbols(cc_text(text, tmp_path / "libuser.so", "-Wl,--hash-style=gnu"), "cuda") is None


@pytest.mark.parametrize("damage", ["gone", "text", "directory", "cut"])
def test_symbols_that_cannot_be_read(tmp_path, library, damage):
    """None, whatever is there."""
    path = tmp_path / "libx.so"
    if damage == "text":
        path.write_text("no library\n")
    elif damage == "directory":
        path.mkdir()
    elif damage == "cut":
        elfpatch.cut(library, path, 4096)
    assert symbols(path, "cuda") is None


def test_symbols_are_those_that_nm_lists():
    """Of every library of the C library's directory."""
    libraries = sorted({path.resolve() for path in libc_directory().glob("*.so*")})[:40]
    compared = 0
    for path in libraries:
        if (found := symbols(path, "")) is None:
            continue  # more names than are kept, which the tests of torch's do not ask for
        listing = subprocess.run(
            [require_tool("nm"), "-D", path], capture_output=True, text=True, check=False
        ).stdout.splitlines()
        names = {"U": set(), "other": set()}
        for line in listing:
            kind, name = line.split()[-2:]
            undefined = kind in "Uvw"
            names["U" if undefined else "other"].add(name.partition("@")[0])
        assert (names["U"], names["other"]) == (set(found.undefined), set(found.defined)), path
        compared += 1
    assert compared >= 5


def libc_directory():
    """Return where the C library lies."""
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libc.so.6" in line)
    return Path(path).parent
