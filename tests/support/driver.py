"""A libcuda.so.1 that defines all that the hooks want of a driver, for a machine without one."""

from __future__ import annotations

import functools
import re
import subprocess
import tempfile
from pathlib import Path

from support.compile import SOURCES, cc, workshop
from support.tools import require_tool
from support.wheels import TMS, TMS_VERSIONS, unpack, wheel

CUINIT_MARKER = "PYRESOLVE_TEST_CUINIT_MARKER"  # names a file; cuInit adds its caller's pid
NO_DEVICE = 100
STUB_LIBRARY = 34  # what the toolkit's own stubs/libcuda.so answers to every call

_SYMBOL = re.compile(r"\bU (cu[A-Z]\w*)$", re.MULTILINE)
_DEFINED_IN_FULL = {"cuInit", "cuDriverGetVersion"}


@functools.cache
def driver_symbols() -> tuple[str, ...]:
    """Return the driver functions that the real hooks leave undefined."""
    hooks = [
        hook
        for version in TMS_VERSIONS
        for hook in unpack(wheel(TMS, version), workshop() / version).glob("*.so")
    ]
    nm = [require_tool("nm"), "-D", "--undefined-only", *hooks]
    listing = subprocess.run(nm, capture_output=True, text=True, check=True)
    return tuple(sorted(set(_SYMBOL.findall(listing.stdout)) - _DEFINED_IN_FULL))


@functools.cache
def full_stub(
    version: int = 13000, result: int = NO_DEVICE, compiler: tuple[str, ...] = ()
) -> Path:
    """Return a directory with a libcuda.so.1 of this version, whose calls answer ``result``."""
    directory = Path(tempfile.mkdtemp(prefix="driver-", dir=workshop()))
    symbols = directory / "symbols.h"
    symbols.write_text("".join(f"FAILS({name})\n" for name in driver_symbols()))
    cc(
        SOURCES / "driver.c",
        directory / "libcuda.so.1",
        f"-I{directory}",
        f"-DVERSION={version}",
        f"-DRESULT={result}",
        "-Wl,-soname,libcuda.so.1",
        compiler=compiler,
    )
    symbols.unlink()
    return directory
