"""A process that runs already: what /proc says of it, and where its files are for this one."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .._disk.files import is_directory

ENDED = ("", "Z", "X")
"""The states of a process that has ended: none, a zombie, dead (proc_pid_stat(5))."""

_LINKS_MAX = 40  # as the kernel has it, see path_resolution(7)
_NOWHERE = Path("/proc/self/nowhere")  # there is never such a file


def state(pid: int) -> tuple[str, str]:
    """Return the state and the start time of a process (proc(5)), empty if it has ended.

    One that /proc hides (hidepid, a container's own /proc) is `hidden`, with no start time.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ("hidden" if _runs(pid) else ""), ""
    fields = text.rpartition(")")[2].split()
    return fields[0], fields[19]


def _runs(pid: int) -> bool:
    """Tell whether there is such a process, other than a zombie child, without reading /proc."""
    if not 0 < pid < 2**31:  # for kill(2) a group, everything, or nothing
        return False
    with suppress(ChildProcessError):
        if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return False  # for kill(2) a zombie exists
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # kill(2): it exists, of another user
    return True


@dataclass(frozen=True, slots=True)
class View:
    """The files as a process sees them, whose root directory may be another one than ours.

    A container has a mount namespace of its own, and chroot(2) gives a part of ours. `root` is
    where its root directory is for us, empty for our own. `prefix` is what /proc/PID/maps puts
    before its paths: that shows them from the root of the mount namespace. Unless it is `seen`, no
    file is found: this user may not look into that directory.
    """

    root: str = ""
    prefix: str = ""
    seen: bool = True

    @classmethod
    def of(cls, pid: int) -> View:
        """Return the view of a process."""
        if pid == os.getpid():
            return cls()
        root = f"/proc/{pid}/root"
        if not is_directory(f"{root}/."):
            return cls(os.fspath(_NOWHERE), seen=False)
        return cls(root, os.readlink(root).rstrip("/"))  # noqa: PTH115

    def named(self, mapped: str) -> Path:
        """Return a path from /proc/PID/maps as the process itself writes it."""
        inside = self.prefix and mapped.startswith(f"{self.prefix}/")
        return Path(mapped.removeprefix(self.prefix) if inside else mapped)

    def at(self, path: Path) -> Path:
        """Return where a file of the process is for us.

        Links are followed here: the kernel would take an absolute one from our root directory, and
        not from that of the process.
        """
        if not self.root:
            return path
        parts: list[str] = []
        links, pending = 0, os.fspath(path).split("/")[::-1]
        while pending:
            part = pending.pop()
            if part == "..":
                del parts[-1:]
            if part in ("", ".", ".."):
                continue
            parts.append(part)
            try:
                target = os.readlink("/".join([self.root, *parts]))  # noqa: PTH115
            except OSError:
                continue  # no link, or nothing there
            links += 1
            if links > _LINKS_MAX:
                return _NOWHERE
            del parts[0 if target.startswith("/") else -1 :]
            pending += target.split("/")[::-1]
        return Path("/".join([self.root, *parts]))

    def resolve(self, path: Path) -> Path:
        """Return the path without links, as the process writes it."""
        return (
            Path(os.fspath(self.at(path)).removeprefix(self.root)) if self.root else path.resolve()
        )
