"""Limits and policies that refuse what a probe or the loader needs: named, and no file blamed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import MODES, process
from support.command import environment, pyresolve
from support.compile import cc_text
from support.hidden import mounted
from support.probe_program import probe
from support.rogues import rogue
from support.tools import require_tool, unavailable

from pyresolve import Status, check

BLAMES = re.compile(r"do not use|reinstall|damaged")

# linux/prctl.h: no memory of the process can be both written and executed, as with systemd's
# MemoryDenyWriteExecute.
DENY = """
import ctypes, os, sys
if ctypes.CDLL(None, use_errno=True).prctl(65, 1, 0, 0, 0):
    sys.exit("no PR_SET_MDWE: " + os.strerror(ctypes.get_errno()))
os.execv(sys.argv[1], sys.argv[1:])
"""


def limited(option, value):
    """Return what to put before a command that is to run under a limit."""
    return [require_tool("sh"), "-c", f'ulimit -{option} {value}; exec "$@"', "limited"]


@pytest.fixture(scope="module")
def denied():
    """Return what to put before a command that may have no memory to write and execute."""
    prefix = [sys.executable, "-I", "-S", "-c", DENY]
    if subprocess.run([*prefix, "/bin/true"], capture_output=True, check=False).returncode:
        unavailable("this kernel has no PR_SET_MDWE")
    return prefix


@pytest.mark.parametrize("mode", MODES)
def test_file_size_limit(clean_env, not_sanitized, mode):
    """A limit below the size of the records is named by both programs; nothing dies of a signal."""
    prefix = limited("f", 8)
    library = rogue("good")
    status, line, said = probe(library, env=clean_env, mode=mode, prefix=prefix)
    assert (1, "") == (status, line)
    assert "pyresolve-probe: no check is possible: ftruncate: File too large\n" == said
    done = pyresolve("check", "--mode", mode, library, env=clean_env, prefix=prefix)
    if mode == "dlopen":  # which needs no file
        assert 0 == done.returncode
    else:
        assert "in ftruncate (File too large): no file may be so large here: raise ulimit -f" in (
            done.stderr
        )


def test_line_of_health(site, not_sanitized):
    """The line says why there is no answer."""
    site.tms().torch("13.0").cudart(13)
    done = pyresolve("health", env=environment(site), prefix=limited("f", 8))
    assert "FAIL probe: File too large (torch_memory_saver)" in done.stdout


def test_no_dev_null(clean_env, not_sanitized):
    """Not the helper is missing."""
    prefix = mounted(hide=[Path("/dev")])
    done = pyresolve("check", rogue("good"), env=clean_env, prefix=prefix)
    assert "/dev/null is missing: create it" in done.stderr
    assert not BLAMES.search(done.stderr)


@pytest.mark.parametrize("mode", MODES)
def test_address_space(tmp_path, clean_env, not_sanitized, mode):
    """The limit is named with its value."""
    library = cc_text("char room[1u << 31];", tmp_path / "large.so")
    limit = 1 << 20
    args = ["check", "--mode", mode, "--json", library]
    done = pyresolve(*args, env=clean_env, prefix=limited("v", limit))
    assert f"raise ulimit -v, which is {limit} here, and" in done.stdout
    assert not BLAMES.search(done.stdout)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "flag", "words"),
    [
        ("int nothing;", "execstack", "it wants an executable stack"),
        ('int own; __asm__(".text\\n.quad own\\n");', "notext", "it has text relocations"),
    ],
)
def test_policy(tmp_path, clean_env, not_sanitized, denied, text, flag, words, mode):
    """What the loader asks for is named, the policy, and the remedy."""
    library = cc_text(text, tmp_path / "wants.so", f"-Wl,-z,{flag}")
    done = pyresolve("check", "--mode", mode, "--json", library, env=clean_env, prefix=denied)
    assert words in done.stdout
    assert "MemoryDenyWriteExecute" in done.stdout
    assert not BLAMES.search(done.stdout)


def test_token_in_a_file_name(tmp_path):
    """The loader replaces it, and looks for another file."""
    library = cc_text("int nothing;", tmp_path / "a$ORIGIN.so")
    report = check(library)
    assert Status.NOT_FOUND is report.status
    assert f"the loader does not find {library}, which is there: it replaces $ORIGIN" in (
        report.message
    )


def test_killed_helper():
    """Who killed it cannot be told: an administrator may have."""
    library = rogue("loop")

    def kill():
        process.poll(lambda: len(process.descendants()) == 2)
        for pid in process.children():
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    report = check(library, timeout=20)
    killer.join()
    assert Status.CRASHED is report.status
    assert "somebody else (an administrator, the out-of-memory killer)" in report.message
    assert "try again, and do not use this file if that does not help" in report.message
