"""Where a driver library lies that the loader does not find, and what speaks for a GPU host."""

from __future__ import annotations

import os
import shlex
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from .._environ import LIBRARY_PATH, join_library_path, parse_library_path
from .._imports import importing
from .._names import DRIVER_SONAME
from . import elf, fault
from .files import exists, names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_ROOT = "/"

# Patterns of directories, below the root. The loader searches some of these on some systems.
_DRIVER_PLACES = (
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",  # NixOS
    "usr/local/nvidia/lib64",  # container images, Kubernetes device plugins
    "usr/local/nvidia/lib",
    "usr/lib64-nvidia",  # Colab
    ".singularity.d/libs",  # Apptainer's --nv
    "usr/lib/*-linux-gnu/nvidia/current",  # Debian
    "usr/lib/*-linux-gnu/nvidia/*",
    "usr/lib/*-linux-gnu/nvidia",  # Jetson
    "usr/lib/*-linux-gnu/tegra",
    "usr/lib64/nvidia",
    "usr/lib/nvidia",
    "usr/lib/nvidia/*",
    "usr/lib/nvidia-*",  # older Ubuntu
    "usr/lib/*-linux-gnu/GL/nvidia-*/lib",  # Flatpak
    "home/kubernetes/bin/nvidia/lib64",  # Google's container-optimised system
    "var/lib/nvidia/lib64",
    "run/nvidia/driver/usr/lib/*-linux-gnu",  # the GPU operator's driver container
    "run/nvidia/driver/usr/lib64",
)
_LOADER_PLACES = ("usr/lib/*-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib", "usr/local/lib64")
_GPU_EVIDENCE = (
    "dev/nvidiactl",
    "dev/nvidia[0-9]*",
    "dev/nvhost-ctrl-gpu",  # Jetson
    "dev/dxg",  # WSL
    "proc/driver/nvidia/version",
)
_MANAGEMENT = (
    "libnvidia-ml.so.1"  # of the driver, and mounted with another capability of containers
)


def directories() -> Iterator[Path]:
    """Yield the usual places of a driver library that hold a sound one."""
    for place in _existing(_DRIVER_PLACES):
        if place.name in ("stubs", "compat") or not exists(place / DRIVER_SONAME):
            continue
        if fault.find(place / DRIVER_SONAME) is None:
            yield place


def with_directories(environ: Mapping[str, str]) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield each of those directories, and `environ` with it at the end of LD_LIBRARY_PATH."""
    for directory in directories():
        elements = (*parse_library_path(environ.get(LIBRARY_PATH)), str(directory))
        yield directory, {**environ, LIBRARY_PATH: join_library_path(elements)}


def where(environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Say what comes after "the loader does not find libcuda.so.1", and the command that helps.

    No absence is asserted: only places that are known here were looked at.
    """
    if outside := next(directories(), None):
        return f": it lies in {outside}; put that into {LIBRARY_PATH}", _export(outside)
    in_reach = [*loader_places(environ)]
    beyond = [*_existing(_DRIVER_PLACES)]
    places = dict.fromkeys((*in_reach, *beyond))
    if found := tuple(unlinked(DRIVER_SONAME, places)):
        return _without_link(found, in_reach)
    management = (place / _MANAGEMENT for place in places if exists(place / _MANAGEMENT))
    if evidence := ", ".join(map(str, (*_existing(_GPU_EVIDENCE), *management))):
        return (
            f", although this looks like a GPU host ({evidence}): have the container runtime mount"
            " the driver's libraries (docker --gpus all, apptainer --nv), or install them",
            None,
        )
    return ": check on a GPU node for a verdict", None


def loader_places(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the directories that the loader most likely searches."""
    yield from map(Path, parse_library_path(environ.get(LIBRARY_PATH)))
    yield from _existing(_LOADER_PLACES)


def unlinked(soname: str, places: Iterable[Path]) -> Iterator[Path]:
    """Yield the sound libraries of this SONAME in directories where no link of that name leads.

    An upgrade may have left a dangling one.
    """
    beginning = soname.partition(".so")[0] + ".so."
    for place in dict.fromkeys(places):
        for name in names_in(place) if not exists(place / soname) else ():
            if not name.startswith(beginning):
                continue
            facts = elf.read(place / name)
            if facts.soname == soname and fault.diagnose(facts) is None:
                yield place / name


def missing_link(path: Path, soname: str) -> str:
    """Return the command that makes the link which ldconfig would make."""
    return f"ln -sf {shlex.quote(path.name)} {shlex.quote(str(path.parent / soname))}"


def _without_link(found: tuple[Path, ...], in_reach: list[Path]) -> tuple[str, str | None]:
    path, *others = found
    command = missing_link(path, DRIVER_SONAME)
    if path.parent not in in_reach:
        command = f"{command} && {_export(path.parent)}"
    text = f": {path} is one, to which no link {DRIVER_SONAME} leads; run ldconfig, or {command}"
    if not others:
        return text, command
    names = ", ".join(map(str, others))
    return f"{text}, if it is of the kernel module's version (others: {names})", None


def _export(directory: Path) -> str:
    quoted = shlex.quote(str(directory))
    return f"export {LIBRARY_PATH}=${{{LIBRARY_PATH}:+${LIBRARY_PATH}:}}{quoted}"


def _existing(patterns: Iterable[str]) -> Iterator[Path]:
    with importing:  # a host whose driver is found does without
        import glob

    found = (sorted(glob.glob(os.path.join(_ROOT, pattern))) for pattern in patterns)  # noqa: PTH118, PTH207
    return map(Path, chain.from_iterable(found))
