"""What check() says of damaged libraries and of all that are here, against a plain process."""

from __future__ import annotations

import collections
import itertools
import os
import random
import shutil
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import FULL, MODES
from support.compile import cc_text
from support.driver import full_stub
from support.layout import PRELOAD_STEM, Site
from support.mutants import mutate, regions
from support.oracle import agree, compare, disagreement

from pyresolve import Status

MUTANTS = 20000 if FULL else 400
SEED = 12
AT_ONCE = 3

# Where check() may say FAIL of what a plain process loads, and why. docs/ok.md has the same.
STRICTER = {
    Status.NOT_ELF: "headers that contradict themselves, where glibc never looks",
    Status.TRUNCATED: "headers that describe more than the file has, where glibc never looks",
    Status.CRASHED: "tables at which a process dies when it looks a name up with dlsym()",
    Status.TIMED_OUT: "tables at which a process hangs when it looks a name up with dlsym()",
    Status.WRONG_PYTHON: "a file named for another Python, which this one would never import",
}

TOP = """
int base(int), other(int); extern int shared;
int (*slot)(int) = other;
__attribute__((constructor)) static void begin(void) { shared++; }
int top(int n) { return base(n) + slot(n) + shared; }
"""
BASE = """
#include <stdlib.h>
#include <string.h>
int shared; __thread int own;
int other(int n) { return own + n; }
static int fast(int n) { return abs(n); }
static int (*choose(void))(int) { return fast; }
int base(int) __attribute__((ifunc("choose")));
__attribute__((constructor)) static void begin(void) { own = (int)strlen(getenv("PATH")); }
"""


@dataclass(frozen=True)
class Subject:
    """A library that is damaged, and the one that is tried; both lie in one directory."""

    damaged: Path
    tried: Path
    environ: dict[str, str]


@pytest.fixture(scope="module")
def subjects(tmp_path_factory):
    """Return the real hooks, both CUDA runtimes, libm, and small libraries that need each other."""
    directory = tmp_path_factory.mktemp("subjects")
    site = Site(directory / "site").tms()
    plain = {"PATH": os.defpath}
    found = []
    for major in (12, 13):
        runtime = site.cudart(major)
        path = f"{full_stub()}:{runtime}"
        for stem in (PRELOAD_STEM, "torch_memory_saver_hook_mode_torch"):
            hook = site / f"{stem}_cu{major}.abi3.so"
            found.append(Subject(hook, hook, {**plain, "LD_LIBRARY_PATH": path}))
        cudart = runtime / f"libcudart.so.{major}"
        found.append(Subject(cudart, cudart, plain))
    libm = Path(shutil.copy(next(Path("/").glob("lib/*/libm.so.6")), directory))
    script = directory / "map"
    script.write_text("BASE_1 { global: base; other; shared; local: *; };\n")
    base = cc_text(
        BASE, directory / "libbase.so", "-Wl,-soname,libbase.so", f"-Wl,--version-script={script}"
    )
    top = cc_text(TOP, directory / "libtop.so", base, "-Wl,-rpath,$ORIGIN")
    return [
        *found,
        *(Subject(path, path, plain) for path in (libm, top, base)),
        Subject(base, top, plain),
    ]


def mutants(subjects):
    """Yield the number of a mutant, its subject, and its bytes with what was done to them."""
    originals = {subject.damaged: subject.damaged.read_bytes() for subject in subjects}
    tables = {path: regions(data) for path, data in originals.items()}
    for number in range(MUTANTS):
        subject = subjects[number % len(subjects)]
        chance = random.Random(f"{SEED} {number}")
        yield number, subject, mutate(originals[subject.damaged], tables[subject.damaged], chance)


def try_mutant(directory, subject, mutant, mode):
    """Return the pair of outcomes for one mutant, and the disagreement if there is one."""
    data, _ = mutant
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        tried = Path(shutil.copy(subject.tried, scratch))
        Path(scratch, subject.damaged.name).write_bytes(data)
        pair = compare(tried, mode, subject.environ)
        return pair, disagreement(tried, mode, subject.environ, pair)


def in_flight(function, cases):
    """Call a function for each case, some at once; as many cases are held as are tried."""
    room = threading.Semaphore(4 * AT_ONCE)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = []
        for case in cases:
            room.acquire()
            futures.append(pool.submit(function, *case))
            futures[-1].add_done_callback(lambda _: room.release())
        return [future.result() for future in futures]


def judge(results):
    """Print the pairs of outcomes; return what is said of each false OK and unnamed false FAIL."""
    pairs = collections.Counter()
    wrong = []
    for name, mode, (report, process), found in results:
        kind = "agree" if agree(report, process) else "by chance"
        if found:
            kind = "falsely OK" if found.falsely_ok else f"stricter: {found.status.name}"
            if found.falsely_ok or found.status not in STRICTER:
                wrong.append(f"{name} ({mode}): {found}")
        pairs[mode, report.verdict.name, "works" if process.works else "fails", kind] += 1
    for pair, count in sorted(pairs.items()):
        print(f"{count:6}", *pair)
    return wrong


@pytest.mark.parametrize("mode", MODES)
def test_mutants(tmp_path, subjects, mode):
    """A damaged library is never OK if a plain process does not load it."""

    def one(number, subject, mutant):
        name = f"mutant {number} of {subject.damaged.name}, {mutant[1]}, tried {subject.tried.name}"
        return name, mode, *try_mutant(tmp_path, subject, mutant, mode)

    wrong = judge(in_flight(one, mutants(subjects)))
    assert not wrong, "\n".join(wrong)


def shared_objects():
    """Yield every shared object of this environment and of the system, each file once.

    Every eighth of them, unless all cases are wanted.
    """
    seen = set()
    roots = {"/usr", "/lib", "/lib64", "/opt", sys.prefix, sys.base_prefix, *sys.path}
    for root in sorted(filter(os.path.isabs, roots)):
        for directory, _, names in os.walk(root):
            for name in names:
                path = Path(directory, name)
                if ".so" in name and path.is_file() and not path.is_symlink():
                    status = path.stat()
                    if (status.st_dev, status.st_ino) not in seen:
                        seen.add((status.st_dev, status.st_ino))
                        yield path


@pytest.mark.parametrize("mode", MODES)
def test_all_that_are_here(tmp_path, monkeypatch, mode):
    """What check() says of a library that somebody ships is what a plain process shows."""
    monkeypatch.chdir(tmp_path)  # some write a file when they are loaded
    environ = {"PATH": os.defpath}

    def one(path):
        pair = compare(path, mode, environ)
        return path, mode, pair, disagreement(path, mode, environ, pair)

    some = itertools.islice(shared_objects(), None, None, 1 if FULL else 8)
    wrong = judge(in_flight(one, ((path,) for path in some)))
    assert not wrong, "\n".join(wrong)


OWN = """
int own(void) { return 1; }
int other(void) { return own(); }
"""


@pytest.mark.parametrize("mode", MODES)
def test_defined_but_not_found(tmp_path, mode):
    """A library that defines what it calls, in a hash table that does not lead to it."""
    library = cc_text(OWN, tmp_path / "own.so", "-Wl,--hash-style=gnu")
    data = bytearray(library.read_bytes())
    hashes = next(region for region in regions(data) if region.name == "hashes")
    filters = int.from_bytes(data[hashes.at + 8 : hashes.at + 12], "little")
    data[hashes.at + 16 : hashes.at + 16 + 8 * filters] = bytes(8 * filters)
    library.write_bytes(data)
    report, process = compare(library, mode, {"PATH": os.defpath})
    assert (Status.UNDEFINED_SYMBOL, False) == (report.status, process.works)
    assert f"{library} uses own" in report.message
