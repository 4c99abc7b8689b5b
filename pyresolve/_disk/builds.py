"""The builds of a hook that a package ships, and which CUDA major each of them links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._model import Candidate, Status
from .._names import build_pattern, runtime_major
from . import elf, fault
from .files import names_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from .site import Site

# Runtimes of other accelerators: a hook that links one is no build for CUDA.
_OTHER_RUNTIMES = {
    "libamdhip64.so": "ROCm",
    "libsycl.so": "Intel XPU",
    "libze_loader.so": "Intel XPU",
    "libascendcl.so": "Ascend NPU",
    "libmusart.so": "Moore Threads MUSA",
}


def candidates(site: Site, package: str, stem: str) -> tuple[Candidate, ...]:
    """Return every build of `stem` beside the package and inside it, in the order of import.

    In one place unsuffixed files come first, then the suffixed ones by their number.
    """
    return tuple(describe(path, named) for path, named in _files(site, package, stem))


def places(site: Site, package: str) -> Iterator[Path]:
    """Yield the directories that may hold builds: beside the package, inside it, in its sources."""
    for entry in site.entries:
        if "os.py" not in entry.names and entry.path.name != "lib-dynload":  # no standard library
            yield entry.path
    yield from site.packages(package)
    yield from site.sources(package)


def _files(site: Site, package: str, stem: str) -> Iterator[tuple[Path, int | None]]:
    pattern = build_pattern(stem)
    listed = {entry.path: entry.names for entry in site.entries}
    for directory in places(site, package):
        names = listed.get(directory) or names_in(directory)
        matches = [match for name in names if (match := pattern.fullmatch(name))]
        for match in sorted(matches, key=lambda m: (int(m[1] or 0), m[0])):
            yield directory / match[0], int(match[1]) if match[1] else None


def describe(path: Path, named: int | None = None) -> Candidate:
    """Read one build; `named` is the major in its file name."""
    facts = elf.read(path)
    if diagnosis := fault.diagnose(facts):
        in_place = diagnosis.status in (Status.NOEXEC, Status.PERMISSION)
        return Candidate(path=path, named=named, problem=diagnosis.message, in_place=in_place)
    for soname in facts.needed:
        for prefix, accelerator in _OTHER_RUNTIMES.items():
            if soname.startswith(prefix):
                problem = f"{path} links {soname}: it is built for {accelerator}, not for CUDA"
                return Candidate(path=path, named=named, problem=problem)
    runtimes = [soname for soname in facts.needed if runtime_major(soname) is not None]
    if len(runtimes) > 1:
        problem = f"{path} links several CUDA runtimes: {', '.join(runtimes)}"
        return Candidate(path=path, named=named, problem=problem)
    runtime = runtimes[0] if runtimes else None
    return Candidate(
        path=path,
        major=runtime_major(runtime) if runtime else named,
        named=named,
        runtime=runtime,
        has_search_path=bool(facts.rpath or facts.runpath),
    )
