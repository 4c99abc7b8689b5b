"""A file system that stops answering: who reads from it sleeps in the kernel, and no signal helps.

`python -m support.hungfs DIRECTORY FILE PID` mounts it, for a process that may mount; in it is a
copy of FILE, from which process PID alone can read (0: nobody can). It is gone, and whoever waits
for it is free to die, when this process ends. The protocol is that of linux/fuse.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support import TESTS

_DEVICE = "/dev/fuse"
_FORGET, _INTERRUPT = 2, 36
_LOOKUP, _GETATTR, _OPEN, _READ, _INIT, _OPENDIR = 1, 3, 14, 15, 26, 27
_RELEASE, _FLUSH, _RELEASEDIR = 18, 25, 29
_ROOT, _FILE = 1, 2
_FOR_EVER = 3600
_PR_SET_PDEATHSIG = 1


def available() -> bool:
    """Tell whether this user may talk to the kernel as a file system."""
    return os.access(_DEVICE, os.R_OK | os.W_OK)


@contextlib.contextmanager
def hung(directory: Path, file: Path, *, reader: int) -> Iterator[Path]:
    """Mount it over a directory, in a namespace where that is allowed; yield the file in it."""
    command = [sys.executable, "-m", "support.hungfs", directory, file, str(reader)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=TESTS) as daemon:
        assert daemon.stdout
        assert daemon.stdout.readline() == "mounted\n"
        try:
            yield directory / file.name
        finally:
            daemon.kill()


def _main(directory: str, file: str, reader: int) -> None:
    device = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a test may be killed, and this must go
    options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    if libc.mount(b"hung", os.fsencode(directory), b"fuse", 0, options.encode()) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("mounted", flush=True)
    content = Path(file).read_bytes()
    while True:
        request = os.read(device, 1 << 20)
        _, code, unique, node, _, _, pid, _ = struct.unpack_from("=IIQQIIII", request)
        answer = _answer(code, node, pid, request[40:], content, reader)
        if answer is not None:
            error, data = (-answer, b"") if isinstance(answer, int) else (0, answer)
            os.write(device, struct.pack("=IiQ", 16 + len(data), error, unique) + data)


def _answer(
    code: int, node: int, pid: int, body: bytes, content: bytes, reader: int
) -> bytes | int | None:
    size = len(content)
    if code == _INIT:
        return struct.pack("=IIIIHHIIHH7I4x", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 7)
    if code == _LOOKUP:
        return struct.pack("=QQQQII", _FILE, 0, _FOR_EVER, _FOR_EVER, 0, 0) + _attr(_FILE, size)
    if code == _GETATTR:
        return struct.pack("=QII", _FOR_EVER, 0, 0) + _attr(node, size)
    if code in (_OPEN, _OPENDIR):
        return struct.pack("=QII", 1, 0, 0)
    if code == _READ and _group(pid) == reader:
        offset, length = struct.unpack_from("=QI", body, 8)
        return content[offset : offset + length]
    if code in (_READ, _FORGET, _INTERRUPT):
        return None
    return b"" if code in (_RELEASE, _FLUSH, _RELEASEDIR) else errno.ENOSYS


def _attr(node: int, size: int) -> bytes:
    mode = 0o40755 if node == _ROOT else 0o100755
    blocks = (size + 511) // 512
    return struct.pack("=6Q10I", node, size, blocks, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def _group(thread: int) -> int:
    """Return the process that a thread belongs to."""
    try:
        status = Path(f"/proc/{thread}/status").read_text()
    except OSError:
        return -1
    return int(status.partition("Tgid:")[2].split()[0])


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
