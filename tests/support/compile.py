"""The C compiler, and a place for what is compiled once per run."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

from support.tools import find_tool, require_tool

SOURCES = Path(__file__).with_name("sources")

# A distribution's compiler may default to -z now and --as-needed; the wheels use neither.
_FLAGS = ["-shared", "-fPIC", "-O0", "-pthread", "-Wall", "-Wextra"]
_LINKER_FLAGS = ["-Wl,-z,lazy", "-Wl,--no-as-needed"]


def cc(
    source: Path,
    output: Path,
    *flags: str | os.PathLike[str],
    compiler: Sequence[str | os.PathLike[str]] = (),
) -> Path:
    """Compile one C file into the shared library ``output``; ``flags`` may name libraries."""
    compiler = compiler or [find_tool("gcc") or require_tool("cc")]
    command = [*compiler, *_FLAGS, *_LINKER_FLAGS, "-o", output, source, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{source.name} does not compile:\n{done.stderr}"
    return output


def cc_text(text: str, output: Path, *flags: str | os.PathLike[str]) -> Path:
    """Compile like `cc`, a text that is put beside the library."""
    source = output.with_name(f"{output.name}.c")
    source.write_text(textwrap.dedent(text))
    return cc(source, output, *flags)


@functools.cache
def workshop() -> Path:
    """Return this run's directory for shared build products; it goes when the run ends."""
    path = Path(tempfile.mkdtemp(prefix="pyresolve-tests-"))
    atexit.register(_remove, path, os.getpid())
    return path


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:  # not a forked child that leaves through sys.exit()
        shutil.rmtree(path, ignore_errors=True)


@functools.cache
def built(source: Path, name: str, *flags: str | os.PathLike[str]) -> Path:
    """Compile like `cc`, once per run for the same flags, into a directory of its own."""
    return cc(source, Path(tempfile.mkdtemp(dir=workshop())) / name, *flags)


@functools.cache
def built_text(text: str, name: str, *flags: str | os.PathLike[str]) -> Path:
    """Compile like `cc_text`, once per run for the same text and flags."""
    return cc_text(text, Path(tempfile.mkdtemp(dir=workshop())) / name, *flags)


def hollow(soname: str) -> Path:
    """Return a library that is nothing but a SONAME, for others to be linked against."""
    return built(SOURCES / "hollow.c", soname, f"-Wl,-soname,{soname}")
