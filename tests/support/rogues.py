"""Libraries that misbehave while they are loaded: one C file each, compiled once per run."""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable
from pathlib import Path

from support.compile import built, hollow
from support.elfpatch import bump_version

PIDFILE = "ROGUE_PIDFILE"  # names a file; rogues that leave a process behind put its pid there

VANISHED = "libpyresolve_vanished.so.1"  # what `missing_needed` needs and nobody has

_SOURCES = Path(__file__).with_name("rogues")
INCLUDE = f'#include "{_SOURCES / "rogue.h"}"\n'  # for a text that is compiled like them
_FLAGS = {
    "bind_now": ["-Wl,-z,now"],
    "good_libm": ["-lm"],
    "musl": ["-nostdlib"],
}
# What is linked against, and lies in no directory that the loader looks into.
_OUT_OF_REACH = {
    "missing_needed": VANISHED,
    "musl": "libc.musl-{machine}.so.1",
}

NAMES = tuple(sorted(path.stem for path in _SOURCES.glob("*.c")))


@functools.cache
def rogue(name: str) -> Path:
    """Return the library built from ``rogues/<name>.c``.

    Those that `lines.LETHAL` names hit the test run itself unless a process from `cold` stands
    between.
    """
    return made(name, built, hollow, platform.machine())


def made(
    name: str,
    build: Callable[..., Path],
    hollow: Callable[[str], Path],
    machine: str,
) -> Path:
    """Return a rogue of any machine; `build` and `hollow` are as in `compile`."""
    needed = [hollow(_OUT_OF_REACH[name].format(machine=machine))] if name in _OUT_OF_REACH else []
    library = build(_SOURCES / f"{name}.c", f"{name}.so", *needed, *_FLAGS.get(name, []))
    if name == "unmet_version":
        bump_version(library, library, "GLIBC_2.17", "GLIBC_9.99")
    return library
