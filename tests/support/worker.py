"""A worker: a Python that opens libraries, as an import of torch does.

It prints what it is made of then, as JSON: `mapped`, the files; `version`, that of the CUDA runtime
or 0; `owners`, the files that functions of the runtime come from; `environ`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

WORKER = """
import ctypes, json, os, sys

class Info(ctypes.Structure):
    _fields_ = [("file", ctypes.c_char_p), ("base", ctypes.c_void_p),
                ("name", ctypes.c_char_p), ("address", ctypes.c_void_p)]

def owner(name):
    symbol = getattr(process, name, None)
    if symbol is None:
        return None
    info = Info()
    process.dladdr(ctypes.cast(symbol, ctypes.c_void_p), ctypes.byref(info))
    return os.fsdecode(info.file)

for library in sys.argv[1:]:
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
process = ctypes.CDLL(None)
version = ctypes.c_int()
if hasattr(process, "cudaRuntimeGetVersion"):
    process.cudaRuntimeGetVersion(ctypes.byref(version))
with open("/proc/self/maps") as maps:
    mapped = {line.split(maxsplit=5)[5].rstrip() for line in maps if "/" in line}
owners = {name: owner(name) for name in ("cudaMalloc", "cudaFree", "cudaMemcpy")}
print(json.dumps({"mapped": sorted(mapped), "version": version.value, "owners": owners,
                  "environ": dict(os.environ)}))
"""


def worker_command(*libraries: str | os.PathLike[str]) -> list[str]:
    """Return the command that starts a worker which opens these libraries."""
    return [sys.executable, "-I", "-S", "-c", WORKER, *map(os.fspath, libraries)]


def mapped(done: subprocess.CompletedProcess[str], *parts: str) -> set[str]:
    """Return the files that a worker had mapped whose name has one of these parts."""
    return with_part(json.loads(done.stdout.splitlines()[-1])["mapped"], *parts)


def with_part(paths: Iterable[str], *parts: str) -> set[str]:
    """Return the paths whose file name has one of these parts."""
    return {path for path in paths if any(part in Path(path).name for part in parts)}
