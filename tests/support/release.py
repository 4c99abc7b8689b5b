"""What `make wheels` has built, and the compiler that it was built with."""

from __future__ import annotations

import os
from pathlib import Path

from support import REPOSITORY
from support.tools import unavailable

MACHINES = ("x86_64", "aarch64")


def release_file(pattern: str) -> Path:
    """Return the file of dist/ that matches; without it the test does not run."""
    dist = Path(os.environ.get("PYRESOLVE_TEST_DIST") or REPOSITORY / "dist")
    found = list(dist.glob(pattern))
    if not found:
        unavailable(f"there is no {pattern} in {dist}: run make wheels")
    assert len(found) == 1, f"{dist} holds several releases: {found}"
    return found[0]


def release_wheel(machine: str) -> Path:
    """Return the wheel for a machine."""
    return release_file(f"pyresolve_native-*_2_17_{machine}.whl")


def tools() -> Path:
    """Return the directory of the programs that `make wheels` builds with."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    directory = cache / "pyresolve-wheels" / "bin"
    if not directory.exists():
        unavailable(f"there is no {directory}: run make wheels")
    return directory


def zig(target: str) -> tuple[str, ...]:
    """Return the command of zig's C compiler for a target."""
    # Without -fno-sanitize zig makes undefined behaviour a SIGILL in what is not optimized.
    python = str(tools() / "python")
    return (python, "-m", "ziglang", "cc", "-target", target, "-fno-sanitize=undefined")
