"""System calls that fail: in the caller, the helper, the child, and in pyresolve-probe."""

from __future__ import annotations

import collections
import errno
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from support import FULL, MODES, TESTS
from support.compile import SOURCES, workshop
from support.probe_program import PROGRAM
from support.rogues import rogue
from support.tools import require_tool, unavailable

TIMEOUT = 2.0

CALLS = {  # x86-64
    "clone": 56,
    "clone3": 435,
    "vfork": 58,
    "execve": 59,
    "mmap": 9,
    "pipe2": 293,
    "memfd_create": 319,
    "openat": 257,
    "read": 0,
    "pread64": 17,
    "write": 1,
    "poll": 7,
    "ppoll": 271,
    "waitid": 247,
    "wait4": 61,
    "prctl": 157,
    "dup2": 33,
    "dup3": 292,
    "setpgid": 109,
    "ftruncate": 77,
    "fstat": 5,
    "newfstatat": 262,
}
ERRORS = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.EPERM, errno.ENOSYS)
DEPTHS = {"check": {"caller": 0, "helper": 1, "child": 2}, "probe": {"probe": 1, "child": 2}}

BLAMES = re.compile(
    r"do not use|(?<!, or )reinstall|damaged|is missing|does not exist|write \./|a constructor"
)
LIMITS = re.compile(r"a limit .*or a security policy|ulimit -v")  # if no more is known


@pytest.fixture(scope="module")
def inject():
    """Return the program that makes calls fail."""
    if platform.machine() != "x86_64":
        unavailable("sources/inject.c knows only x86-64")
    program = Path(tempfile.mkdtemp(dir=workshop())) / "inject"
    command = [require_tool("gcc"), "-O1", SOURCES / "inject.c", "-o", program]
    subprocess.run(command, check=True)
    return program


def cases(depths):
    """Return depth, call, number and error for each case."""
    found = []
    for depth in depths.values():
        for i, (call, number) in enumerate(CALLS.items()):
            some = ERRORS if FULL else (ERRORS[(i + depth) % len(ERRORS)], errno.EPERM)
            found += [(depth, call, number, error) for error in dict.fromkeys(some)]
    return found


def problem(sound, case, verdict, sentence, spent, left):
    """Say what is wrong with an answer; empty if nothing is."""
    _, call, error, _ = case
    if left:
        return f"{left} processes or descriptors are left"
    if spent > TIMEOUT + 1:
        return f"it took {spent} s"
    if verdict == "OK":
        return "" if sound else "falsely OK"
    if verdict not in ("FAIL", "UNKNOWN", "ProbeError"):
        return "no answer"
    if not sound and verdict == "FAIL" and "undefined_symbol" in sentence.lower():
        return ""
    if call == "mmap" and "SIGSEGV" in sentence:  # the loader does not look at every answer
        return ""
    if BLAMES.search(sentence):
        return "it blames a file"
    # The line of pyresolve-probe has room for the loader's words only, which often lack the error.
    if re.match(r"FAIL (broken_environment|ignored|not_loadable): ", sentence):
        return ""
    named = [os.strerror(error), f"Error {error}", call]
    if call == "mmap" or error == errno.ENOMEM:
        named.append("Out of memory")  # musl's words, and malloc's for any error of mmap
    if not any(name in sentence for name in named) and not LIMITS.search(sentence):
        return "it names neither the call nor the error"
    return "" if verdict != "UNKNOWN" else "UNKNOWN, though no driver is needed"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["good_libm", "undefined_function"])
@pytest.mark.parametrize("what", DEPTHS)
def test_failing_calls(inject, clean_env, not_sanitized, what, name, mode):
    """A right verdict, or an error that names the call; never a sound file blamed for it."""
    depths = DEPTHS[what]
    job = {
        "library": os.fspath(rogue(name)),
        "mode": mode,
        "timeout": TIMEOUT,
        "program": os.fspath(PROGRAM) if what == "probe" else "",
        "cases": cases(depths),
        "most": 60 if FULL else 4,
    }
    command = [inject, sys.executable, TESTS / "support" / "injected.py", json.dumps(job)]
    done = subprocess.run(
        command, env=clean_env, capture_output=True, text=True, check=False, cwd="/"
    )
    assert 0 == done.returncode, done.stderr
    roles = {depth: role for role, depth in depths.items()}
    wrong, verdicts = [], collections.Counter()
    for line in done.stdout.splitlines():
        case, verdict, sentence, spent, left = json.loads(line)
        verdicts[verdict] += 1
        if found := problem(name == "good_libm", case, verdict, sentence, spent, left):
            depth, call, error, n = case
            fails = f"{call} {n} of the {roles[depth]}: {errno.errorcode[error]}"
            wrong.append(f"{fails}: {found}: {verdict} {sentence} ({spent} s)")
    print(sum(verdicts.values()), "cases", dict(verdicts), len(wrong), "wrong")
    assert not wrong, "\n".join(wrong)
