"""What each program that checks libraries has to say of them: one line and an exit status."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from support import elfpatch
from support.compile import SOURCES, built, hollow, workshop
from support.layout import fake_cudart
from support.rogues import rogue

OWN_SOURCES = Path(__file__).with_name("sources")
OK, FAIL, USAGE, UNKNOWN = 0, 1, 2, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """Libraries, the environment to try them in, and what is to come of it.

    `seconds` is what the program is given for all of them together.
    """

    name: str
    libraries: tuple[Callable[[], Path], ...]
    mode: str = "dlopen"
    environment: Callable[[], dict[str, str]] = field(default=dict)
    seconds: float = 5.0
    status: int
    line: str


def _rogue(name: str) -> Callable[[], Path]:
    return lambda: rogue(name)


def _named(name: str, content: bytes) -> Callable[[], Path]:
    def write() -> Path:
        path = Path(tempfile.mkdtemp(dir=workshop())) / name
        path.write_bytes(content)
        return path

    return write


def _pointer() -> Path:
    return elfpatch.lfs_pointer(Path(tempfile.mkdtemp(dir=workshop())) / "pointer.so")


def _cut() -> Path:
    path = Path(tempfile.mkdtemp(dir=workshop())) / "cut.so"
    return elfpatch.cut(rogue("good"), path, 5000)


def _hook() -> Path:
    return built(SOURCES / "hook.c", "hook.so", hollow("libcuda.so.1"), fake_cudart(12))


def _cudart() -> dict[str, str]:
    return {"LD_LIBRARY_PATH": os.fspath(fake_cudart(12).parent)}


def _no_program() -> dict[str, str]:
    return {"LD_PRELOAD": os.fspath(built(OWN_SOURCES / "no_program.c", "no_program.so"))}


_LONG = "libtorch_memory_saver_hook_mode_preload_of_a_very_long_name_cu12.abi3.so"

CASES = (
    Case(
        name="ok",
        libraries=(_rogue("good"),),
        status=OK,
        line="OK loadable (good.so)",
    ),
    Case(
        name="ok as a preload",
        libraries=(_rogue("good"),),
        mode="preload",
        status=OK,
        line="OK loadable (good.so)",
    ),
    Case(
        name="several ok",
        libraries=(_rogue("good"), _rogue("good_libm")),
        status=OK,
        line="OK 2 checks",
    ),
    Case(
        name="prints",
        libraries=(_rogue("chatty"),),
        status=OK,
        line="OK loadable (chatty.so)",
    ),
    Case(
        name="missing dependency",
        libraries=(_rogue("missing_needed"),),
        status=FAIL,
        line="FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
    ),
    Case(
        name="missing dependency of a preload",
        libraries=(_rogue("missing_needed"),),
        mode="preload",
        status=FAIL,
        line="FAIL missing_dependency: libpyresolve_vanished.so.1 (missing_needed.so)",
    ),
    Case(
        name="symbol version",
        libraries=(_rogue("unmet_version"),),
        status=FAIL,
        line="FAIL version_mismatch: GLIBC_9.99 (unmet_version.so)",
    ),
    Case(
        name="not found",
        libraries=(lambda: workshop() / "nowhere" / "vanished.so",),
        status=FAIL,
        line="FAIL not_found (vanished.so)",
    ),
    Case(
        name="empty",
        libraries=(_named("empty.so", b""),),
        status=FAIL,
        line="FAIL truncated (empty.so)",
    ),
    Case(
        name="text",
        libraries=(_pointer,),
        status=FAIL,
        line="FAIL not_elf (pointer.so)",
    ),
    Case(
        name="cut off",
        libraries=(_cut,),
        status=FAIL,
        line="FAIL truncated (cut.so)",
    ),
    Case(
        name="long name",
        libraries=(_named(_LONG, b"no library"),),
        status=FAIL,
        line="FAIL not_elf (libtorch_memory_saver_hook_mod..._a_very_long_name_cu12.abi3.so)",
    ),
    Case(
        name="odd name",
        libraries=(_named("caf\xe9\n.so", b"no library"),),
        status=FAIL,
        line="FAIL not_elf (caf???.so)",
    ),
    Case(
        name="unknown",
        libraries=(_hook,),
        environment=_cudart,
        status=UNKNOWN,
        line="UNKNOWN no_driver: libcuda.so.1 (hook.so)",
    ),
    Case(
        name="unknown as a preload",
        libraries=(_hook,),
        mode="preload",
        environment=_cudart,
        status=UNKNOWN,
        line="UNKNOWN no_driver: libcuda.so.1 (hook.so)",
    ),
    Case(
        name="worst first",
        libraries=(_rogue("good"), _hook, _rogue("segfault"), _rogue("exit_three")),
        environment=_cudart,
        status=FAIL,
        line="FAIL crashed: SIGSEGV (segfault.so) and 2 more",
    ),
    Case(
        name="timed out",
        libraries=(_rogue("sleep_ignoring_sigterm"),),
        seconds=0.8,
        status=FAIL,
        line="FAIL timed_out: 0.8 s (sleep_ignoring_sigterm.so)",
    ),
    Case(
        name="timed out as a preload",
        libraries=(_rogue("sleep_ignoring_sigterm"),),
        mode="preload",
        seconds=0.8,
        status=FAIL,
        line="FAIL timed_out: 0.8 s (sleep_ignoring_sigterm.so)",
    ),
    Case(
        name="crashed",
        libraries=(_rogue("segfault"),),
        status=FAIL,
        line="FAIL crashed: SIGSEGV (segfault.so)",
    ),
    Case(
        name="crashed as a preload",
        libraries=(_rogue("abort"),),
        mode="preload",
        status=FAIL,
        line="FAIL crashed: SIGABRT (abort.so)",
    ),
    Case(
        name="exited",
        libraries=(_rogue("exit_three"),),
        status=FAIL,
        line="FAIL exited: exit status 3 (exit_three.so)",
    ),
    Case(
        name="broken environment",
        libraries=(_rogue("good"),),
        mode="preload",
        environment=_no_program,
        status=FAIL,
        line="FAIL broken_environment: exit status 9 (good.so)",
    ),
)
