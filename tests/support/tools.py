"""What a test needs from the machine: it skips without, or fails where skipping is forbidden."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from typing import NoReturn

import pytest

# Administrators' programs are not on every user's PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def unavailable(reason: str) -> NoReturn:
    """Skip the test, or fail it where PYRESOLVE_MUST_WORK=1."""
    if os.environ.get("PYRESOLVE_MUST_WORK") == "1":
        pytest.fail(f"{reason} (PYRESOLVE_MUST_WORK=1 forbids skipping)", pytrace=False)
    pytest.skip(reason)


def find_tool(name: str) -> str | None:
    """Return the path of a program, if there is one."""
    return shutil.which(name, path=_PATH)


def require_tool(name: str) -> str:
    """Return the path of a program; without it the test does not run."""
    return find_tool(name) or unavailable(f"the program {name} is not installed")


def require_privileges(directory: str | os.PathLike[str]) -> None:
    """Refuse to run where no file can be given away, or such files have no effect."""
    if os.geteuid() != 0:
        unavailable("only root can make programs with privileges")
    if os.statvfs(directory).f_flag & os.ST_NOSUID:
        unavailable(f"{directory} is mounted nosuid")


@functools.cache
def _unshare_error(unshare: str) -> str:
    """Return why mounts of one's own are impossible here; empty where they work."""
    command = [unshare, "-rm", "mount", "-t", "tmpfs", "tmpfs", "/tmp"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return tried.stderr.strip() if tried.returncode else ""


def require_unshare() -> str:
    """Return the path of unshare where it may set up mounts; otherwise the test does not run."""
    unshare = require_tool("unshare")
    if error := _unshare_error(unshare):
        unavailable(f"no private mounts on this machine: {error}")
    return unshare
