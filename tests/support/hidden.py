"""Private mounts: a system toolkit out of sight, directories from which nothing may be mapped."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from support.tools import find_tool, require_tool, require_unshare, unavailable

# The copy reads the covered directory through the working directory, which a mount does not move.
_SCRIPT = """
set -e
start=$PWD
while [ "$1" != -- ]; do
    case $1 in
    hide) mount -t tmpfs tmpfs "$2" ;;
    noexec) cd "$2"; mount -t tmpfs -o noexec tmpfs "$2"; cp -a . "$2"; cd "$start" ;;
    esac
    shift 2
done
shift
exec "$@"
"""


def mounted(
    *, hide: Sequence[os.PathLike[str]] = (), noexec: Sequence[os.PathLike[str]] = ()
) -> list[str]:
    """Return what to put before a command that is to see ``hide`` empty and ``noexec`` noexec."""
    unshare, shell = require_unshare(), require_tool("sh")
    mounts = [word for path in hide for word in ("hide", os.fspath(path))]
    mounts += [word for path in noexec for word in ("noexec", os.fspath(path))]
    return [unshare, "-rm", shell, "-c", _SCRIPT, "mounted", *mounts, "--"]


@functools.cache
def toolkit_directories() -> tuple[Path, ...]:
    """Return the directories in which the loader, or a look around, finds a system libcudart."""
    found = [
        file
        for pattern in ("lib*/libcudart.so*", "targets/*/lib/libcudart.so*")
        for file in Path("/usr/local").glob(f"cuda*/{pattern}")
    ]
    if ldconfig := find_tool("ldconfig"):
        listing = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, check=False)
        for line in listing.stdout.splitlines():
            name, arrow, path = line.strip().partition(" => ")
            if arrow and name.startswith("libcudart.so"):
                found.append(Path(path))
    # Where a link is and where it leads: the loader may look into either.
    directories = {path.parent.resolve() for file in found for path in (file, file.resolve())}
    return tuple(sorted(directories))


def hidden_toolkit() -> list[str]:
    """Return what to put before a command that must not find a system libcudart."""
    directories = toolkit_directories()
    for directory in directories:
        if any(directory.glob("libc.so.*")):
            unavailable(f"the system's libcudart is in {directory}, which cannot be hidden")
    return mounted(hide=directories) if directories else []
