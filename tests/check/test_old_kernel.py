"""Kernels before 5.3 have neither pidfd_open nor close_range: all is as with them."""

from __future__ import annotations

import subprocess

import pytest
from support import HANG, MODES, rogues
from support.compile import SOURCES, cc_text
from support.lines import ROGUES, check_line_apart
from support.probe_program import PROGRAM, answer, probe
from support.process import cold
from support.tools import require_tool

NAMES = ("good", "close_fds", "garbage_fds", "exit_three", "fork_sleep", "loop", "kill_group")

# Descriptors from 3 on that the caller has left open; the library's exit status tells of one.
SEES_DESCRIPTORS = """
ON_LOAD {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            _exit(1);
}
"""
MANY = 300  # more than one look at /proc/self/fd tells of

LEAVES_OPEN = f"""
import json, os, sys
import pyresolve

for _ in range({MANY}):
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
print(json.dumps([pyresolve.check(sys.argv[1], mode=mode).status.name for mode in {MODES}]))
"""


@pytest.fixture(scope="module")
def old_kernel(tmp_path_factory):
    """Return what to put before a command that is to run on an old kernel."""
    program = tmp_path_factory.mktemp("old") / "old_kernel"
    compiler = require_tool("gcc")
    subprocess.run([compiler, "-o", program, SOURCES / "old_kernel.c"], check=True)
    with pytest.raises(AssertionError, match="Function not implemented"):
        cold("import os; os.pidfd_open(os.getpid())", prefix=[str(program)])
    return [str(program)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_rogues(rogue, clean_env, old_kernel, name, mode):
    """Both programs have the lines that they have on a new one."""
    line = ROGUES[name][MODES.index(mode)]
    limit = {"timeout": HANG} if name == "loop" else {}
    given = probe(rogue(name), env=clean_env, mode=mode, prefix=old_kernel, **limit)
    assert answer(line) == given
    assert line == check_line_apart(old_kernel, rogue(name), mode=mode, environ=clean_env, **limit)


def test_inherited_descriptors(clean_env, old_kernel, tmp_path):
    """A library sees nothing of the many that the caller has left open."""
    library = cc_text(rogues.INCLUDE + SEES_DESCRIPTORS, tmp_path / "fds.so")
    assert ["LOADABLE", "LOADABLE"] == cold(LEAVES_OPEN, library, env=clean_env, prefix=old_kernel)
    files = [library.open() for _ in range(MANY)]
    try:
        for mode in MODES:
            done = subprocess.run(
                [*old_kernel, PROGRAM, "check", "--mode", mode, library],
                capture_output=True,
                text=True,
                check=False,
                env=clean_env,
                pass_fds=[file.fileno() for file in files],
            )
            assert ("OK loadable (fds.so)\n", "") == (done.stdout, done.stderr)
    finally:
        for file in files:
            file.close()
