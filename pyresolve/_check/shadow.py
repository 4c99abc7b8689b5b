"""Which file lacks a symbol or a version, and which one has it but is not the one that is found."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .._disk import elf
from .._disk.cuda import copies
from .._disk.elf import printable
from .._disk.files import exists, same_file
from .._environ import LIBRARY_PATH, export_library_path, parse_library_path
from .._model import LoadReport, Status
from .._names import DRIVER_SONAME
from .report import needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from .._disk.site import Site
    from .._model import ElfFacts


def explain(
    report: LoadReport, files: Sequence[str], *, environ: Mapping[str, str], site: Site
) -> LoadReport:
    """Name the file that lacks what is wanted, and a copy of that file which has it.

    `files` are those that the loader finds for the target, in its order.
    """
    user = elf.read(report.used_by or report.path)
    name, _, version = report.detail.partition("@")
    mismatch = report.status is Status.VERSION_MISMATCH and not version
    for soname in _suppliers(user, name if mismatch else version, report.provider):
        provider = report.provider or _first(files, soname)
        if provider is None:
            continue
        has = _has_version(name) if mismatch else _has_symbol(name, version)
        others = (path for path in _copies(soname, user, site, environ) if has(path))
        other = next((path for path in others if not same_file(path, provider)), None)
        if other:
            return _shadowed(report, user, provider, other, environ)
        if advice := _advice(provider, soname, versioned=bool(version or mismatch)):
            text = f"{needs(str(user.path), report.detail, str(provider))}: {advice}"
            return replace(report, provider=provider, message=printable(text))
    return report


def _suppliers(user: ElfFacts, version: str, provider: Path | None) -> list[str]:
    """Return the SONAMEs of which one should have it: the loader knows it only with a version."""
    if provider:
        return [provider.name]
    wanted = [need.file for need in user.versions_needed if need.version == version]
    return wanted or list(user.needed)


def _first(files: Sequence[str], soname: str) -> Path | None:
    return next((Path(file) for file in files if os.path.basename(file) == soname), None)  # noqa: PTH119


def _has_symbol(name: str, version: str) -> Callable[[Path], bool]:
    def has(path: Path) -> bool:
        found = elf.symbols(path, name)
        versions = elf.read(path).versions_defined if version else ()
        return found is not None and name in found.defined and (not versions or version in versions)

    return has


def _has_version(version: str) -> Callable[[Path], bool]:
    return lambda path: version in elf.read(path).versions_defined


def _copies(soname: str, user: ElfFacts, site: Site, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the files of this name, those that `user` leads to itself before all others."""
    for directory in elf.expanded((*user.rpath, *user.runpath), user.path):
        path = Path(directory, soname)
        if exists(path):
            yield path
    yield from copies(soname, site, environ)


def _shadowed(
    report: LoadReport, user: ElfFacts, provider: Path, other: Path, environ: Mapping[str, str]
) -> LoadReport:
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    through = next((item for item in elements if item and same_file(item, provider.parent)), None)
    directory = os.path.normpath(other.parent)
    text = f"{needs(str(user.path), report.detail, str(provider))} and is found first"
    if through:
        text += f" through LD_LIBRARY_PATH ({through})"
    text += f"; {other} has it: "
    remedy = None
    if user.rpath and not user.runpath and not through:
        text += f"the DT_RPATH of {user.path} leads to the first; replace that file"
    else:
        before = f" before {through}" if through else ""
        text += f"put {directory}{before} into LD_LIBRARY_PATH"
        remedy = export_library_path(directory)
    return replace(report, provider=provider, message=printable(text), remedy=remedy)


def _advice(provider: Path, soname: str, *, versioned: bool) -> str | None:
    """Say what to do about the file that lacks it, if no other copy has it."""
    if soname == DRIVER_SONAME:
        return "update the driver"
    own = elf.read(provider).soname
    if versioned and own and own != soname:
        return f"it is {own} under another name; put the real {soname} in its place"
    return None
