"""Another system, in a directory: an arm64 machine that qemu runs, or a Debian of another age.

arm64 is a Debian that is unpacked and not installed. The kernel hands its programs to qemu by a
binfmt_misc of a user namespace's own (Linux 6.7), so that no other process of this machine starts
to run foreign files.
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

# \x7fELF, 64 bits, little endian; a program or a library; for EM_AARCH64.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"

_ENTER = r"""
set -e
root=$1 here=$2 entry=$3
shift 3
if [ -n "$entry" ]; then
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    printf %s "$entry" >/proc/sys/fs/binfmt_misc/register
fi
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount --rbind "$here" "$root/here"
exec chroot "$root" "$@"
"""
_NAMESPACES = ["--map-root-user", "--mount", "--pid", "--fork", "--kill-child"]


class System:
    """A root directory, whose /here is the directory `here` of this system."""

    def __init__(self, root: Path, here: Path, machine: str) -> None:
        self.here = here
        self.machine = machine
        self._root = root
        own = root / "opt" / "python" / "bin" / "python3"  # if that of the distribution is too old
        self.python = f"/{own.relative_to(root)}" if own.exists() else "/usr/bin/python3"
        self._entry = _arm64_entry() if machine == "aarch64" else ""
        for name in "dev", "proc", "tmp", "here":
            (root / name).mkdir(exist_ok=True)

    def run(
        self, *command: str | os.PathLike[str], env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in exactly `env`; its paths are those of the system."""
        enter = [require_unshare(), *_NAMESPACES, "/bin/sh", "-c", _ENTER, "sh"]
        return run([*enter, self._root, self.here, self._entry, *command], env=env)

    @functools.cached_property
    def compiler(self) -> tuple[str, ...]:
        """The command of a C compiler for the system."""
        return zig(f"{self.machine}-linux-gnu.2.17")

    def compiled(self, source: Path, name: str, *flags: str | os.PathLike[str]) -> Path:
        """Compile a C file for the system, like `compile.built`."""
        directory = Path(tempfile.mkdtemp(dir=workshop()))
        return cc(source, directory / name, *flags, compiler=self.compiler)


def arm64(here: Path) -> System:
    """Return an arm64 machine; without one the test does not run."""
    if error := _binfmt_error():
        unavailable(f"this kernel has no binfmt_misc of a namespace's own (Linux 6.7): {error}")
    root = debian_root("arm64", "python3-cffi-backend", "libstdc++6")
    if not (root / "lib").exists():  # in later Debians a link that base-files has
        (root / "lib").symlink_to("usr/lib")
    return System(root, here, "aarch64")


def _arm64_entry() -> str:
    qemu = Path(debian_tool("qemu-aarch64-static", "qemu-user-static"))
    interpreter = qemu.parents[1] / "libexec" / "qemu-binfmt" / "aarch64-binfmt-P"
    # F: the interpreter is opened now, and is there in whatever root. P: it is told argv[0].
    return f":pyresolve-arm64:M::{_MAGIC}:{_MASK}:{interpreter}:OPF"


@functools.cache
def _binfmt_error() -> str:
    """Return why programs of arm64 cannot be run here; empty where they can."""
    place = "/proc/sys/fs/binfmt_misc"
    attempt = f'mount -t binfmt_misc binfmt_misc {place} && printf %s "$1" >{place}/register'
    command = [require_unshare(), *_NAMESPACES, "/bin/sh", "-c", attempt, "sh", _arm64_entry()]
    done = run(command, env={"PATH": os.environ["PATH"]})
    return (done.stderr.strip() or f"exit status {done.returncode}") if done.returncode else ""
