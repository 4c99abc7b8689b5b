"""What is true of every wheel of a release, whatever machine it is for."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest
from support import REPOSITORY
from support.release import MACHINES, release_file, release_wheel
from support.tools import require_tool

READELF_NAMES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}
PAGE_SIZE = {"x86_64": 0x1000, "aarch64": 0x10000}  # the largest that a kernel of it may have
GLIBC = (2, 17)
OF_GLIBC = {"libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LIBRARIES = {"_native.abi3.so", "pyresolve-stub-driver.so"}
PROGRAMS = {"pyresolve-helper", "pyresolve-floor", "pyresolve-probe"}
LARGEST = 300_000  # bytes

each_machine = pytest.mark.parametrize("machine", MACHINES)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Return the function that unpacks a machine's wheel, once."""
    trees = {}

    def unpacked(machine):
        if machine not in trees:
            trees[machine] = tmp_path_factory.mktemp(machine)
            with ZipFile(release_wheel(machine)) as archive:
                for info in archive.infolist():
                    path = Path(archive.extract(info, trees[machine]))
                    path.chmod(info.external_attr >> 16 & 0o777)
        return trees[machine]

    return unpacked


def elf_files(tree):
    return [path for path in tree.rglob("*") if path.is_file() and is_elf(path)]


def is_elf(path):
    return path.read_bytes()[:4] == b"\x7fELF"


def readelf(path, *options):
    command = [require_tool("readelf"), "--wide", *options, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def the_metadata(tree, pattern):
    (path,) = tree.glob(f"*.dist-info/{pattern}")
    return path.read_text()


@each_machine
def test_files(tree, machine):
    """Each program and library is there, for this machine; programs are executable."""
    files = elf_files(tree(machine))
    assert LIBRARIES | PROGRAMS == {path.name for path in files}
    assert {READELF_NAMES[machine]} == {
        re.search(r"Machine: +(.*)", readelf(path, "-h"))[1] for path in files
    }
    programs = [path for path in files if path.name in PROGRAMS]
    assert [path.name for path in programs if path.stat().st_mode & 0o111 != 0o111] == []


@each_machine
def test_size(machine):
    """A wheel stays small."""
    assert release_wheel(machine).stat().st_size <= LARGEST


@each_machine
def test_glibc(tree, machine):
    """Nothing but glibc is needed, and no symbol newer than that of the wheel's name."""
    for path in elf_files(tree(machine)):
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf(path, "-d")))
        assert needed <= OF_GLIBC, path.name
        versions = re.findall(r"Name: GLIBC_([\d.]+)", readelf(path, "-V"))
        newest = max((tuple(map(int, v.split("."))) for v in versions), default=GLIBC)
        assert newest <= GLIBC, path.name


@each_machine
def test_segments(tree, machine):
    """Segments suit the largest page, and none is executable and writable."""
    for path in elf_files(tree(machine)):
        segments = readelf(path, "-l")
        loads = re.findall(r"LOAD .* (...) (0x[0-9a-f]+)\n", segments)
        assert len(loads) > 0
        for flags, align in loads:
            assert int(align, 16) >= PAGE_SIZE[machine], path.name
            assert not {"W", "E"} <= set(flags), path.name
        assert re.search(r"GNU_STACK.* RW +0", segments), f"the stack of {path.name}"


@each_machine
def test_static_probe(tree, machine):
    """pyresolve-probe needs no loader: it can report an environment that breaks the loader."""
    (probe,) = [path for path in elf_files(tree(machine)) if path.name == "pyresolve-probe"]
    assert "INTERP" not in readelf(probe, "-l")
    assert "There is no dynamic section" in readelf(probe, "-d")


@each_machine
def test_same_helper(tree, machine):
    """Both copies of the helper and of the stub driver are the same."""
    for name in "pyresolve-helper", "pyresolve-stub-driver.so":
        beside_python, beside_probe = tree(machine).rglob(name)
        assert beside_python.read_bytes() == beside_probe.read_bytes()


@each_machine
def test_nothing_of_the_build(tree, machine):
    """No file has debug information, or a path of the machine that built it."""
    places = [tempfile.gettempdir(), Path.home(), REPOSITORY]
    for path in elf_files(tree(machine)):
        assert ".symtab" not in readelf(path, "-S"), path.name
        assert ".debug" not in readelf(path, "-S"), path.name
        content = path.read_bytes()
        assert [place for place in places if f"{place}/".encode() in content] == [], path.name


def test_licences_and_bill(tree):
    """What is linked in statically is named, with its version and its licence."""
    for machine in MACHINES:
        bill = json.loads(the_metadata(tree(machine), "sboms/pyresolve-native.cdx.json"))
        assert ("CycloneDX", "1.6") == (bill["bomFormat"], bill["specVersion"])
        names = {part["name"] for part in bill["components"]}
        assert {"musl", "zig", "glibc start files", "cffi"} == names
        (depends,) = bill["dependencies"]
        assert {part["bom-ref"] for part in bill["components"]} == set(depends["dependsOn"])
        assert all(part["version"] and part["licenses"] for part in bill["components"])
        assert "@" not in "".join(part["version"] for part in bill["components"])
        assert "Rich Felker" in the_metadata(tree(machine), "licenses/LICENSE.musl")
        assert "Zig contributors" in the_metadata(tree(machine), "licenses/LICENSE.zig")


def test_metadata(tree):
    """Both wheels say the same, and their description has no link that PyPI cannot follow."""
    texts = [the_metadata(tree(machine), "METADATA") for machine in MACHINES]
    assert texts[0] == texts[1]
    said = Parser().parsestr(texts[0])
    assert ">=3.10" == said["Requires-Python"]
    links = re.findall(r"\]\(([^)]+)\)", said.get_payload())
    assert len(links) > 0
    assert [link for link in links if not link.startswith("https://")] == []


def test_sums():
    """SHA256SUMS names the two wheels and the sdist, with their hashes."""
    sums = release_file("SHA256SUMS")
    listed = {line.split()[1] for line in sums.read_text().splitlines()}
    files = [*map(release_wheel, MACHINES), release_file("pyresolve_native-*.tar.gz")]
    assert {path.name for path in files} == listed
    check = [require_tool("sha256sum"), "--check", "--quiet", sums.name]
    assert 0 == subprocess.run(check, cwd=sums.parent, check=False).returncode
