"""What the figures were taken on, and how much memory there is to take."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyresolve

_CGROUPS = Path("/sys/fs/cgroup")


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

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data (docs/json.md)."""
        return {**asdict(self), "gpus": list(self.gpus)}


def look() -> Machine:
    """Find out what this machine is."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("pyresolve-native")
    except PackageNotFoundError:
        own = "unknown"
    kernel_driver = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", _text(Path("/proc/driver/nvidia/version")))
    driver = pyresolve.driver()
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
        gpus=_gpus(Path("/proc/driver/nvidia/gpus")),
        load=round(os.getloadavg()[0], 2),
    )


def free_memory(proc: Path = Path("/proc"), cgroups: Path = _CGROUPS) -> int:
    """Return the bytes that may be taken without swapping, by the machine and by every cgroup."""
    available = _field(_text(proc / "meminfo"), "MemAvailable") or "0"
    free = int(available.split()[0]) * 1024
    for line in _text(proc / "self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:  # cgroup v2; /sys/fs/cgroup/unified beside v1
            free = min(free, _room(cgroups, path, "memory.max", "memory.current", "inactive_file"))
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            free = min(free, _room(cgroups / "memory", path, *names))
    return free


def _room(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> int:
    """Return what a group and those above it leave; page cache that can go counts as free."""
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


def _gpus(directory: Path) -> tuple[str, ...]:
    files = sorted(directory.glob("*/information"))
    return tuple(_field(_text(file), "Model") or "unknown" for file in files)


def _field(text: str, name: str) -> str | None:
    found = re.search(rf"^{re.escape(name)}\s*:\s*(.*)$", text, re.M)
    return found[1].strip() if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
