"""An arm64 machine: a Debian that is unpacked and not installed, in which qemu runs the programs.

The kernel hands them to qemu by a binfmt_misc of a user namespace's own (Linux 6.7), so that no
other process of this machine starts to run foreign files.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.command import run
from support.compile import cc, workshop
from support.debian import debian_root, debian_tool
from support.release import zig
from support.tools import require_unshare, unavailable

TARGET = "aarch64-linux-gnu.2.17"

# \x7fELF, 64 bits, little endian; a program or a library; for EM_AARCH64.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"

_ENTER = r"""
set -e
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s "$1" >/proc/sys/fs/binfmt_misc/register
test -z "$2" || exit 0
mount --rbind /dev "$3/dev"
mount -t proc proc "$3/proc"
mount --rbind "$4" "$3/here"
shift 2
root=$1
shift 2
exec chroot "$root" "$@"
"""


class Arm64:
    """The machine; the directory `here` of this one is its /here."""

    def __init__(self, here: Path) -> None:
        self.here = here
        self._root = debian_root("arm64", "python3-cffi-backend", "libstdc++6")
        for name in "dev", "proc", "tmp", "here":
            (self._root / name).mkdir(exist_ok=True)
        if not (self._root / "lib").exists():  # in later Debians a link that base-files has
            (self._root / "lib").symlink_to("usr/lib")
        if error := _error():
            unavailable(f"this kernel has no binfmt_misc of a namespace's own: {error}")

    def run(
        self, *command: str | os.PathLike[str], env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in exactly `env`; its paths are those of the machine."""
        return run([*_entering(), "", self._root, self.here, *command], env=env)


def _entering() -> list[str]:
    qemu = Path(debian_tool("qemu-aarch64-static", "qemu-user-static"))
    interpreter = qemu.parents[1] / "libexec" / "qemu-binfmt" / "aarch64-binfmt-P"
    # F: the interpreter is opened now, and is there in whatever root. P: it is told argv[0].
    entry = f":pyresolve-arm64:M::{_MAGIC}:{_MASK}:{interpreter}:OPF"
    namespaces = ["--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]
    return [require_unshare(), *namespaces, "/bin/sh", "-c", _ENTER, "sh", entry]


@functools.cache
def _error() -> str:
    """Return why programs of arm64 cannot be run here; empty where they can."""
    done = run([*_entering(), "only try"], env={"PATH": os.environ["PATH"]})
    return done.stderr.strip() if done.returncode else ""


def compiled(source: Path, name: str, *flags: str | os.PathLike[str]) -> Path:
    """Compile a C file for arm64, like `compile.built`."""
    directory = Path(tempfile.mkdtemp(dir=workshop()))
    return cc(source, directory / name, *flags, compiler=zig(TARGET))
