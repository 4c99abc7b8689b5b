"""The frames between helper and caller, and what each probe gathers."""

from __future__ import annotations

import ast
import os
import re
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, strategies as st
from support import REPOSITORY, process
from support.compile import SOURCES, built, hollow
from support.fuzz import fuzz
from support.tools import require_tool

from pyresolve import _native
from pyresolve._check import trace as _trace
from pyresolve._disk import elf as _elf
from pyresolve._model import Driver, Status
from pyresolve._native import ffi, lib
from pyresolve._process import helper as _probe

WIRE_H = REPOSITORY / "native" / "wire.h"
STATUS_H = WIRE_H.with_name("status.h")
HEAD = struct.Struct("=IHHQIIqq")
MAGIC = 0x50595231
VERSION = 2
NONCE = 0x0123456789ABCDEF
PIPE_BUF = 4096
TEXT_MAX = PIPE_BUF - HEAD.size
KINDS = tuple(_probe._Kind)
LAST = {_probe._Kind.DONE, _probe._Kind.FAILED}

numbers = st.integers(-(2**63), 2**63 - 1)
texts = st.binary(max_size=60) | st.binary(min_size=TEXT_MAX, max_size=TEXT_MAX)
frames = st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32 - 1), numbers, numbers, texts)


def encode(frame, **changes):
    """Return the bytes of one frame; `changes` replaces fields of its head."""
    kind, target, a, b, text = frame
    fields = {"magic": MAGIC, "version": VERSION, "kind": kind, "nonce": NONCE, "target": target}
    fields = {**fields, "length": len(text), "a": a, "b": b, **changes}
    return HEAD.pack(*fields.values()) + text


def scan(data, nonce=NONCE):
    """Return what pyr_wire_scan says: how many bytes are whole frames, and whether all is said."""
    done = ffi.new("int *", 7)
    # Of exactly this size, so that a sanitizer sees a read behind the end.
    copy = ffi.new("char[]", len(data)) if data else ffi.NULL
    ffi.memmove(copy, data, len(data)) if data else None
    return lib.pyr_wire_scan(copy, len(data), nonce, done), done[0]


# --- frames


@given(st.lists(frames, max_size=12))
def test_whole_frames(sent):
    """Valid frames are taken as a whole, and decoded they are what was sent."""
    data = b"".join(map(encode, sent))
    assert (len(data), int(bool(sent) and sent[-1][0] in LAST)) == scan(data)
    assert sent == list(_probe._frames(data))


@given(st.lists(frames, min_size=1, max_size=6), st.data())
def test_cut_frames(sent, data):
    """Of frames of which a part is still on its way the whole ones are taken."""
    encoded = [encode(frame) for frame in sent]
    whole = b"".join(encoded[:-1])
    cut = data.draw(st.integers(0, len(encoded[-1]) - 1))
    done = len(sent) > 1 and sent[-2][0] in LAST
    assert (len(whole), int(done)) == scan(whole + encoded[-1][:cut])


@given(frames, st.integers(0, 2**64 - 1).filter(lambda nonce: nonce != NONCE))
def test_wrong_nonce(frame, nonce):
    """A frame of another probe is none."""
    assert scan(encode(frame, nonce=nonce))[0] == -1
    assert scan(encode(frame), nonce)[0] == -1


@pytest.mark.parametrize(
    "changes",
    [
        {"magic": MAGIC ^ 1},
        {"magic": 0},
        {"version": VERSION + 1},
        {"version": 0},
        {"kind": 0},
        {"kind": max(KINDS) + 1},
        {"kind": 0xFFFF},
        {"nonce": NONCE ^ 1},
        {"length": TEXT_MAX + 1},
        {"length": 2**31},
        {"length": 2**32 - 1},
    ],
)
@pytest.mark.parametrize("before", [0, 1, 3])
def test_no_frame(changes, before):
    """One bad head makes all of it garbage, whatever came before."""
    good = encode((_probe._Kind.OBJECT, 0, 0, 0, b"text"))
    bad = encode((_probe._Kind.OBJECT, 0, 0, 0, b"text"), **changes)
    assert scan(good * before + bad)[0] == -1
    assert scan(good * before + bad[: HEAD.size])[0] == -1
    assert (len(good) * before, 0) == scan(good * before + bad[: HEAD.size - 1])


@given(st.lists(frames, min_size=1, max_size=4), st.data())
def test_flipped_bits(sent, data):
    """A flipped bit is noticed, or changes a value and not where the frames end."""
    content = bytearray(b"".join(map(encode, sent)))
    position = data.draw(st.integers(0, len(content) * 8 - 1))
    content[position // 8] ^= 1 << (position % 8)
    whole, _ = scan(bytes(content))
    assert -1 <= whole <= len(content)
    if whole >= 0:
        assert whole == sum(HEAD.size + len(frame[4]) for frame in _probe._frames(content[:whole]))


@given(st.binary(max_size=300))
@example(b"")
@example(b"\xa5" * HEAD.size)
def test_any_bytes(content):
    """Any bytes give an answer; fewer than a head are nothing yet."""
    whole, done = scan(content)
    assert (whole, done) == (0, 0) if len(content) < HEAD.size else whole in (-1, 0)


def test_largest_frame():
    """A text may fill a write of PIPE_BUF bytes, and not one byte more."""
    frame = _probe._Kind.OBJECT, 0, 0, 0, b"x" * TEXT_MAX
    assert (PIPE_BUF, 0) == scan(encode(frame))
    assert scan(encode(frame, length=TEXT_MAX + 1) + b"x")[0] == -1


# --- both ends agree


def wire_enum(name):
    """Return the values of an enum in wire.h by name, as a C compiler counts them."""
    text = re.sub(r"/\*.*?\*/", "", WIRE_H.read_text(), flags=re.DOTALL)
    body = re.search(rf"enum {name}{{(.*?)}}", text, flags=re.DOTALL)[1]
    values, following = {}, 0
    for item in filter(None, map(str.strip, body.split(","))):
        key, _, value = (part.strip() for part in item.partition("="))
        if value:
            value = value.replace("PIPE_BUF", str(PIPE_BUF))
            value = re.sub(r"PYR_\w+", lambda match: str(values[match[0]]), value)
            left, _, right = value.partition(" - ")
            following = ast.literal_eval(left) - (ast.literal_eval(right) if right else 0)
        values[key] = following
        following += 1
    return values


def test_kinds_agree():
    """The kinds of frames have the same numbers in C and in Python."""
    expected = {f"PYR_WIRE_{kind.name}": kind.value for kind in _probe._Kind}
    assert expected == wire_enum("pyr_wire_kind ")


def test_answers_agree():
    """So have the answers of a DRIVER frame, and the statuses of an OUTCOME."""
    assert wire_enum("pyr_wire_answer ") == {
        "PYR_WIRE_NOT_FOUND": _probe._NOT_FOUND,
        "PYR_WIRE_NO_FUNCTION": _probe._NO_FUNCTION,
        "PYR_WIRE_BROKEN": _probe._BROKEN,
    }
    assert f"PYR_WIRE_WITH_STUB = 1 << {_probe._WITH_STUB.bit_length() - 1}," in WIRE_H.read_text()
    body = re.search(r"enum pyr_status {(.*?)}", STATUS_H.read_text(), re.DOTALL)[1]
    names = [name for name in re.findall(r"PYR_(\w+),", body) if name != "STATUSES"]
    assert names == [status.name for status in Status][: len(names)]
    assert names[-1] == "BROKEN_ENVIRONMENT"


def test_sizes_agree():
    """So have the head of a frame, its version and its magic."""
    sizes = wire_enum("")
    assert (VERSION, HEAD.size) == (sizes["PYR_WIRE_VERSION"], sizes["PYR_WIRE_HEAD_SIZE"])
    assert TEXT_MAX == sizes["PYR_WIRE_TEXT_MAX"]
    assert (HEAD.size, HEAD.format) == (_probe._HEAD.size, _probe._HEAD.format)
    assert lib.PYR_WIRE_HEAD_SIZE == HEAD.size
    assert sizes["PYR_WIRE_STUB_FD"] == lib.PYR_WIRE_STUB_FD
    assert f"UINT32_C({MAGIC:#010X})".replace("X", "x", 1) in WIRE_H.read_text()


def test_probe_struct():
    """The struct that both sides fill is as the compiler lays it out: every field is reachable."""
    probe = ffi.new("struct pyr_probe *")
    lib.pyr_probe_init(probe)
    assert (probe.pid, probe.status, probe.frames_used) == (-1, lib.PYR_PROBE_RUNNING, 0)
    assert len(ffi.buffer(probe.frames)) == 1 << 19
    assert len(ffi.buffer(probe.capture)) == 1 << 16
    lib.pyr_probe_finish(probe)  # harmless when nothing was started, and twice
    lib.pyr_probe_finish(probe)
    assert probe.pid == -1


# --- the parts that lie beside the extension


def test_stub_driver():
    """The stub has the driver's SONAME and not one function of it."""
    assert _elf.read(_probe.STUB_DRIVER).soname == "libcuda.so.1"
    nm = [require_tool("nm"), "-D", "--defined-only", _probe.STUB_DRIVER]
    listing = subprocess.run(nm, capture_output=True, text=True, check=True).stdout
    defined = [line.split()[-1] for line in listing.splitlines()]
    assert "pyr_stub_driver" in defined
    assert [] == [name for name in defined if name.startswith("cu")]


def test_helper_is_lean():
    """The helper needs libc alone, and has no search path that would count for the target."""
    facts = _elf.read(_probe.HELPER)
    allowed = {"libc.so.6", "libdl.so.2"}
    if any("san.so" in name for name in _elf.read(_native.__file__).needed):
        allowed |= {"libm.so.6", "libgcc_s.so.1"}  # what the sanitizers need
    assert {name for name in facts.needed if not name.startswith("ld-linux")} <= allowed
    assert facts.interpreter is not None
    assert ((), ()) == (facts.rpath, facts.runpath)


@pytest.mark.parametrize("arguments", [[], ["try"], ["try", "1", "1"], ["--help"]])
def test_helper_by_hand(arguments):
    """Started by hand the helper says who starts it, and does nothing."""
    command = [_probe.HELPER, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr == "pyresolve-helper is started by pyresolve, not by hand\n"


# --- what a probe gathers


def load(*targets, environ=None, timeout=30.0):
    """Open the targets, each in a child of its own."""
    deadline = _probe.Deadline(timeout)
    return _probe.attempt([str(t) for t in targets], environ=environ or {}, deadline=deadline)


def rehearse(hook, change, *, environ=None, targets=()):
    """Start a process with the variables of `change`; return the last trial."""
    answer = _probe.attempt(
        targets,
        hook=str(hook),
        change=change,
        environ=environ or {},
        deadline=_probe.Deadline(30),
    )
    return answer.trials[-1]


def test_load():
    """A trial tells the outcome, and what got mapped for it."""
    library = built(SOURCES / "hollow.c", "needing.so", "-lresolv")
    answer = load(library)
    (trial,) = answer.trials
    assert (True, False, "") == (answer.hello, answer.timed_out, answer.captured)
    assert _probe.Outcome(status=Status.LOADABLE) == trial.outcome
    assert str(library) == trial.objects[0]
    assert any("/libresolv.so" in path for path in trial.objects)
    assert not any("libc.so" in path for path in trial.objects)  # it was there before
    assert ({}, None, []) == (trial.runtimes, trial.driver, trial.undefined)


def test_load_of_many(rogue):
    """Each target has a child of its own: none sees what another one did, or did to it."""
    names = ["good", "segfault", "good_libm", "exit_three", "close_fds", "missing_needed", "good"]
    answer = load(*map(rogue, names))
    assert [(trial.outcome.status, trial.outcome.name) for trial in answer.trials] == [
        (Status.LOADABLE, ""),
        (Status.CRASHED, "SIGSEGV"),
        (Status.LOADABLE, ""),
        (Status.EXITED, "exit status 3"),
        (Status.LOADABLE, ""),
        (Status.MISSING_DEPENDENCY, "libpyresolve_vanished.so.1"),
        (Status.LOADABLE, ""),
    ]
    assert answer.trials[0].objects == answer.trials[-1].objects


def test_one_deadline_for_many(rogue):
    """The time is for all of them, and one that hangs delays no other."""
    answer = load(rogue("good"), rogue("stop"), rogue("loop"), rogue("good"), timeout=0.5)
    late = [Status.LOADABLE, Status.TIMED_OUT, Status.TIMED_OUT, Status.LOADABLE]
    assert late == [trial.outcome.status for trial in answer.trials]
    assert [False, True, True, False] == [trial.timed_out for trial in answer.trials]
    assert answer.elapsed < 1.5


def test_more_than_are_tried_at_once(rogue):
    """Any number of targets may be asked about; each answer is that of its own target."""
    names = ("good", "exit_three", "missing_needed")
    expected = {
        "good": (Status.LOADABLE, ""),
        "exit_three": (Status.EXITED, "exit status 3"),
        "missing_needed": (Status.MISSING_DEPENDENCY, "libpyresolve_vanished.so.1"),
    }
    targets = [str(rogue(names[i % 3])) for i in range(40)]
    answer = _probe.attempt(
        targets,
        hook=str(rogue("good")),
        change={"LD_PRELOAD": str(rogue("good"))},
        environ={},
        deadline=_probe.Deadline(30),
    )
    for i, trial in enumerate(answer.trials[:-1]):
        assert expected[names[i % 3]] == (trial.outcome.status, trial.outcome.name)
    assert (41, Status.LOADABLE) == (len(answer.trials), answer.trials[-1].outcome.status)
    assert str(rogue("good")) in answer.trials[-1].objects


def test_files_are_not_tried(tmp_path):
    """A file that is no library is judged by its headers; the others are tried all the same."""
    (tmp_path / "text.so").write_text("no library\n")
    library = built(SOURCES / "hollow.c", "hollow.so")
    path = str(tmp_path / "text.so")
    answer = load(path, library, path)
    expected = [Status.NOT_ELF, Status.LOADABLE, Status.NOT_ELF]
    assert expected == [trial.outcome.status for trial in answer.trials]
    assert [path, "", path] == [trial.outcome.file for trial in answer.trials]
    assert Status.NOT_ELF is rehearse(path, {"LD_PRELOAD": path}).outcome.status


def test_undefined(rogue):
    """What does not load at once is tried lazily, and what then loads tells what is undefined."""
    (trial,) = load(rogue("undefined_function")).trials
    assert (
        Status.UNDEFINED_SYMBOL,
        "rogue_nowhere_function",
        str(rogue("undefined_function")),
    ) == (
        trial.outcome.status,
        trial.outcome.name,
        trial.outcome.by,
    )
    assert trial.undefined == ["rogue_nowhere_function"]


def test_captured(rogue):
    """What is printed is kept as far as it fits, its beginning and its end."""
    answer = load(rogue("chatty"))
    assert set(answer.captured) == {"#", "\n"}
    assert 1 << 15 < len(answer.captured) <= 1 << 16
    sh = [require_tool("sh"), "-c", "echo first; seq 1 20000; echo last >&2"]
    environ = {"PATH": os.environ["PATH"]}
    text = _probe.run(sh, environ=environ, deadline=_probe.Deadline(10)).captured
    assert (True, True) == (text.startswith("first\n1\n2\n"), text.endswith("\n20000\nlast\n"))


def test_runtime(site):
    """A libcudart that got mapped is asked for its version."""
    path = site.fake_cudart(14, 3) / "libcudart.so.14"
    assert {str(path): 14030} == load(path).trials[0].runtimes


def test_broken_runtime():
    """One that has nothing to answer with is listed without a version."""
    path = built(SOURCES / "hollow.c", "libcudart.so.14", "-Wl,-soname,libcudart.so.14")
    assert {str(path): None} == load(path).trials[0].runtimes


def test_driver(full_stub, tmp_path):
    """An absent driver is told from one that is found and broken."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    hook = built(SOURCES / "hollow.c", "wants_driver.so", hollow("libcuda.so.1"))
    for directory, status, absent in [
        (full_stub, Status.LOADABLE, None),
        (tmp_path / "nowhere", Status.NO_DRIVER, True),
        (tmp_path, Status.TRUNCATED, False),
    ]:
        (trial,) = load(hook, environ={"LD_LIBRARY_PATH": str(directory)}).trials
        found = trial.driver or Driver()
        assert status is trial.outcome.status
        assert absent in (None, found.absent)


def test_rehearsal(rogue, clean_env):
    """A rehearsal tells whether the hook was mapped before main, and what else was."""
    hook = str(rogue("good"))
    trial = rehearse(hook, {"LD_PRELOAD": hook}, environ=clean_env)
    assert (Status.LOADABLE, hook) == (trial.outcome.status, trial.objects[0])
    trial = rehearse(hook, {"LD_PRELOAD": ""}, environ=clean_env)
    assert Status.IGNORED is trial.outcome.status
    assert hook not in trial.objects


def test_rehearsal_beside_loads(rogue, clean_env):
    """A rehearsal runs in the same start as loads, and neither is changed by the other."""
    hook = str(rogue("segfault"))
    targets = [str(rogue("good")), str(rogue("exit_three"))]
    answer = _probe.attempt(
        targets,
        hook=hook,
        change={"LD_PRELOAD": hook},
        environ=clean_env,
        deadline=_probe.Deadline(30),
    )
    assert [trial.outcome.status for trial in answer.trials] == [
        Status.LOADABLE,
        Status.EXITED,
        Status.CRASHED,
    ]


# Ends with the number of shared mappings, and ten times that of descriptors above stderr.
LISTING = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void count(void) {
    char line[4096];
    int found = 0;
    for (int fd = 3; fd < 32; fd++)
        found += 10 * (fcntl(fd, F_GETFD) >= 0);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found += strstr(line, " rw-s ") != NULL;
    _exit(found);
}
"""


def test_load_has_no_access_to_the_rehearsal(rogue, clean_env, tmp_path):
    """A target that is loaded beside a rehearsal shares its own records and no others."""
    source = tmp_path / "listing.c"
    source.write_text("#include <fcntl.h>" + LISTING)
    listing = str(built(source, "listing.so"))
    hook = str(rogue("good"))
    answer = _probe.attempt(
        [listing, str(rogue("garbage_fds")), listing],
        hook=hook,
        change={"LD_PRELOAD": hook},
        environ=clean_env,
        deadline=_probe.Deadline(30),
    )
    assert [(trial.outcome.status, trial.outcome.name) for trial in answer.trials] == [
        (Status.EXITED, "exit status 1"),
        (Status.LOADABLE, ""),
        (Status.EXITED, "exit status 1"),
        (Status.LOADABLE, ""),
    ]


def test_rehearsal_symbols(site, full_stub):
    """A rehearsal tells from where the process gets the functions that a hook replaces."""
    hook, directory = str(site.fake_hook(14)), site.fake_cudart(14)
    cudart = f"{directory}/libcudart.so.14"
    environ = {"LD_LIBRARY_PATH": f"{directory}:{full_stub}"}
    outcome = rehearse(hook, {"LD_PRELOAD": hook}, environ=environ).outcome
    assert Status.LOADABLE is outcome.status
    outcome = rehearse(hook, {"LD_PRELOAD": f"{cudart}:{hook}"}, environ=environ).outcome
    assert (Status.BYPASSED, "cudaMalloc", cudart) == (outcome.status, outcome.text, outcome.file)


def test_rehearsal_with_stub(site):
    """Without a driver the rehearsal is made with the stub, which is no object of the process."""
    hook, directory = str(site.fake_hook(14)), site.fake_cudart(14)
    trial = rehearse(hook, {"LD_PRELOAD": hook}, environ={"LD_LIBRARY_PATH": str(directory)})
    assert (Status.NO_DRIVER, True) == (trial.outcome.status, trial.outcome.stub)
    assert hook in trial.objects
    assert not [path for path in trial.objects if path.startswith(_probe._STUBS)]


def trace(program, **environ):
    """Let the loader list what a file needs: what is missing, and the files that it finds."""
    loader = _elf.read(_probe.HELPER).interpreter
    return _trace.trace(str(program), loader, environ=environ, deadline=_probe.Deadline(30))


def test_trace():
    """The loader's trace lists all that is missing, and what it found with its path."""
    needed = [hollow(f"lib{name}.so.1") for name in ("one", "two", "three")]
    library = built(SOURCES / "hollow.c", "three.so", *needed, "-lm")
    missing, found = trace(library)
    assert missing == ("libone.so.1", "libtwo.so.1", "libthree.so.1")
    assert any("/libm.so" in path for path in found)
    missing, found = trace(library, LD_LIBRARY_PATH=str(needed[1].parent))
    assert missing == ("libone.so.1", "libthree.so.1")
    assert str(needed[1]) in found


def test_trace_runs_nothing(rogue):
    """No constructor runs: a library that would hang or die is listed like any other."""
    for name in ("loop", "segfault", "kill_group"):
        assert any("libc.so.6" in path for path in trace(rogue(name))[1])
        assert str(rogue(name)) in trace(_probe.HELPER, LD_PRELOAD=str(rogue(name)))[1]


def test_bound_of_the_deadline():
    """What is left of a deadline is never nothing, since that would mean for ever."""
    deadline = _probe.Deadline(1e-9)
    assert deadline.left_ns() >= 1
    assert 0 < _probe.Deadline(10).left_ns() <= 10_000_000_000


def test_threads(rogue):
    """Sixteen threads at once get the answers that one gets."""
    targets = [rogue("good"), rogue("segfault"), rogue("missing_needed")]
    expected = [(t.outcome, t.objects) for t in load(*targets).trials]

    def work(_):
        return [(t.outcome, t.objects) for t in load(*targets).trials]

    with ThreadPoolExecutor(16) as pool:
        assert [expected] * 64 == list(pool.map(work, range(64)))


def test_leaves_nothing(rogue):
    """Probes of every kind leave no descriptor, no child and no memory behind."""

    def every():
        load(rogue("good"), rogue("segfault"))
        trace(rogue("good"))
        rehearse(rogue("good"), {"LD_PRELOAD": str(rogue("good"))})

    for _ in range(20):
        every()
    before = process.open_fds(), process.children(), process.rss_kib()
    for _ in range(100):
        every()
    after = process.open_fds(), process.children()
    assert before[:2] == after
    assert process.rss_kib() - before[2] < 1024


def test_fuzz(tmp_path):
    """The fuzzer, under sanitizers, finds nothing in a moment; it is meant to run for longer."""
    done = fuzz(tmp_path, "wire", "probe.c", "2")
    assert (done.returncode, done.stderr) == (0, "")


def test_import_is_cheap():
    """Importing the package loads none of this."""
    code = """
        import json, sys
        import pyresolve
        print(json.dumps([name for name in sys.modules if name.startswith("pyresolve")]))
    """
    loaded = process.cold(code)
    assert "pyresolve._native" not in loaded
    assert "pyresolve._process.helper" not in loaded
