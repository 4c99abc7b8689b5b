"""What is measured, on which machine, and how much memory may be taken there."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from pathlib import Path

import pyresolve

_PRELOAD = "LD_PRELOAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`driver` is the highest CUDA version that it supports (13000 is 13.0), None without one."""

    cpu: str
    cores: int
    memory: int
    kernel: str
    glibc: str
    python: str
    pyresolve: str
    driver: int | None
    kernel_driver: str | None
    gpus: tuple[str, ...]
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The library that is measured and the environment in which it loads.

    `note` says why it is not the hook.
    """

    path: str
    what: str
    note: str | None
    environ: dict[str, str]


def look() -> Machine:
    """Find out what this machine is."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("pyresolve-native")
    except PackageNotFoundError:
        own = "unknown"
    kernel_driver = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _text(Path("/proc/driver/nvidia/version")))
    driver = pyresolve.driver()
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    return Machine(
        cpu=_field(_text(Path("/proc/cpuinfo")), "model name") or platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        kernel=platform.release(),
        glibc=(os.confstr("CS_GNU_LIBC_VERSION") or "unknown").removeprefix("glibc "),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        pyresolve=own,
        driver=driver.version if driver.present else None,
        kernel_driver=kernel_driver[0] if kernel_driver else None,
        gpus=tuple(_field(_text(file), "Model") or "unknown" for file in gpus),
        load=round(os.getloadavg()[0], 2),
    )


def choose() -> Target:
    """Return the hook that pick() chooses, else a libcudart, else libm: the first that loads here.

    Raises PyresolveError if not even libm loads.
    """
    base = {name: value for name, value in os.environ.items() if name != _PRELOAD}
    try:
        choice = pyresolve.pick()
        pinned = {**base, **choice.env(base, pin="library_path")}
        pinned.pop(_PRELOAD, None)
        for environ in (base, pinned):
            report = pyresolve.check(choice, environ=environ)
            if report.verdict is pyresolve.Verdict.OK:
                what = "the hook that pick() chooses"
                return Target(path=str(choice), what=what, note=None, environ=environ)
        note = f"not the hook, which does not load here: {report.message}"
    except pyresolve.PyresolveError as error:
        note = f"not a hook, because none can be picked here: {error}"
    for runtime in pyresolve.runtimes():
        if runtime.problem is None:
            what = "a CUDA runtime that is installed here"
            return Target(path=str(runtime.path), what=what, note=note, environ=base)
    report = pyresolve.check("libm.so.6", environ=base)
    for path in report.loaded:
        if path.name == "libm.so.6":
            what = "the C library's libm: there is no CUDA here"
            return Target(path=str(path), what=what, note=note, environ=base)
    raise pyresolve.ProbeError(f"not even libm.so.6 loads here: {report.message}")


def free_memory(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that can be taken without swapping and within every cgroup's limit."""
    available = _field(_text(proc / "meminfo"), "MemAvailable") or "0"
    free = int(available.split()[0]) * 1024
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # cgroup v2
            free = min(free, _room(cgroups, path, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            free = min(free, _room(cgroups / "memory", path, *names))
    return free


def _room(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> int:
    """Return what a group and its ancestors leave; page cache that can be dropped is free."""
    room = 1 << 62
    group = root / path.lstrip("/")
    for directory in (group, *group.parents):
        if not directory.is_relative_to(root):
            break
        bound, used = _text(directory / limit).strip(), _text(directory / usage).strip()
        if bound.isdigit() and used.isdigit():
            cache = re.search(rf"^{reclaimable} (\d+)$", _text(directory / "memory.stat"), re.M)
            room = min(room, int(bound) - int(used) + (int(cache[1]) if cache else 0))
    return max(0, room)


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.M)
    return found[1].strip() if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
