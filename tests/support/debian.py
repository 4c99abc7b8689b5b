"""Programs of Debian packages: those that are installed, or else copies that are only unpacked.

Nothing is installed for it and nobody needs to be root: apt fetches the package into the cache of
the tests, with lists of its own where the system has none.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path

from support.tools import find_tool, require_tool, unavailable
from support.wheels import cache_directory, filling_the_cache


def debian_tool(name: str, *packages: str) -> str:
    """Return the path of a program; without it the test does not run.

    `packages` are those that bring it, as far as no system has them anyway.
    """
    if installed := find_tool(name):
        return installed
    require_tool("apt-get")
    directory = cache_directory() / "debian" / packages[0]
    if not directory.exists() and (complaint := _fetch(packages, directory)):
        unavailable(f"the program {name} is not installed, and apt does not bring it: {complaint}")
    return os.fspath(next(directory.glob(f"usr/*bin/{name}")))


def own_libraries(program: str, pattern: str) -> dict[str, str]:
    """Return the variable with which an unpacked program finds the libraries it comes with."""
    found = next(Path(program).parents[1].glob(pattern), None)
    return {"LD_LIBRARY_PATH": os.fspath(found.parent)} if found else {}


def debian_root(architecture: str, *packages: str) -> Path:
    """Return a directory in which packages of an architecture lie, with all that they need.

    They are unpacked and not installed: nothing of them has run.
    """
    require_tool("apt-get")
    directory = cache_directory() / "debian" / f"{packages[0]}-{architecture}"
    if not directory.exists() and (complaint := _fetch(packages, directory, architecture)):
        unavailable(f"apt does not bring {packages[0]} for {architecture}: {complaint}")
    return directory


@functools.cache
def _fetch(packages: tuple[str, ...], directory: Path, architecture: str = "") -> str:
    """Unpack packages; return what went wrong, tried once per run."""
    with filling_the_cache() as cache, tempfile.TemporaryDirectory(dir=cache) as scratch:
        if directory.exists():
            return ""
        for name in "lists/partial", "archives/partial", "tree":
            Path(scratch, name).mkdir(parents=True)
        own = [f"-oDir::State::Lists={scratch}/lists", f"-oDir::Cache={scratch}"]
        if architecture:  # as on a machine where nothing is installed yet
            own += ["-oDir::State::status=/dev/null", f"-oAPT::Architecture={architecture}"]
            own += [f"-oAPT::Architectures={architecture}", "-oDebug::NoLocking=1"]
            fetch = ["install", "--yes", "--no-install-recommends", "--download-only"]
            attempts = [[["apt-get", *own, "update"], ["apt-get", *own, *fetch, *packages]]]
        else:
            attempts = [
                [["apt-get", "download", *packages]],
                [["apt-get", *own, "update"], ["apt-get", *own, "download", *packages]],
            ]
        for steps in attempts:
            failed = next(filter(None, (_run(step, scratch) for step in steps)), "")
            if not failed:
                break
        else:
            return failed
        for archive in Path(scratch).rglob("*.deb"):
            if failed := _run(["dpkg-deb", "-x", os.fspath(archive), f"{scratch}/tree"], scratch):
                return failed
        directory.parent.mkdir(exist_ok=True)
        Path(scratch, "tree").rename(directory)
    return ""


def _run(command: list[str], cwd: str) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""
