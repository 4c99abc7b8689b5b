"""What torch was built for, from its files alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .._model import Diagnosis, ElfStatus, Status, Torch
from .._names import runtime_major
from . import elf
from .files import exists, is_file

if TYPE_CHECKING:
    from collections.abc import Callable

    from .site import Site

# Packages that add an accelerator to a torch whose own metadata names none.
_PLUGINS = {"torch_npu": "Ascend NPU", "torch_musa": "Moore Threads MUSA"}

_VERSION_PY_SIZE = 65536  # bytes: the real one has some 300
_ASSIGNMENT = re.compile(
    r"^(?P<name>__version__|cuda|hip|xpu)[ \t]*(?::[^=\n]*)?=[ \t]*(?P<value>[^\n#]*[^\s#])", re.M
)


def find(site: Site) -> Torch | None:
    """Return the torch that `import torch` would mean, None if there is none."""
    for package in site.packages("torch"):
        version_py = package / "version.py"
        if exists(version_py) or exists(package / "__init__.py"):
            return _describe(site, package, version_py)
    return None


def parse_major(version: str) -> int | None:
    """Return the major of `13`, `12.8` or `12.8.1`, None for anything else."""
    match = re.fullmatch(r"(\d{1,3})(?:\.\d+)*", version.strip(), re.ASCII)
    return int(match[1]) if match else None


def runtime_by_rpath(library: Path, *, at: Callable[[Path], Path] = Path) -> Path | None:
    """Return the libcudart that the search path in torch's own library leads to.

    For a process that runs already, and for a guess before the loader is asked. `at` returns where
    a path of another process is here.
    """
    facts = elf.read(at(library))
    soname = next((name for name in facts.needed if runtime_major(name) is not None), None)
    for directory in elf.expanded((*facts.rpath, *facts.runpath), library) if soname else ():
        path = Path(directory, soname or "")
        if exists(at(path)):
            return path
    return None


def bypass(library: Path, hook: Path, *, at: Callable[[Path], Path] = Path) -> Diagnosis | None:
    """Say why torch does not call the hook, or that this cannot be seen; None if it calls it.

    `library` is the part of torch that allocates memory. The loader binds a function to the hook
    only if that library leaves it undefined: a CUDA runtime that is linked into it statically is
    called without asking the loader. `at` returns where a path of another process is here.
    """
    ours, theirs = elf.symbols(at(hook), "cuda"), elf.symbols(at(library), "cuda")
    if ours is None or theirs is None:
        unread = library if theirs is None else hook
        message = (
            f"whether torch calls {hook} was not seen: the symbols of {unread} cannot be read here"
        )
        return Diagnosis(status=Status.NOT_SEEN, message=message)
    names = ", ".join(sorted(ours.defined))
    if ours.defined & theirs.defined:
        message = (
            f"whether torch calls {hook} was not seen: {library} defines functions itself that the"
            f" hook replaces ({names})"
        )
        return Diagnosis(status=Status.NOT_SEEN, message=message)
    if not ours.defined or ours.defined & theirs.undefined:
        return None
    why = (
        "as if a CUDA runtime were linked into it statically; install a torch that links libcudart"
        " as a shared library"
    )
    if theirs.undefined:
        why = "only others of libcudart; use a hook that is made for this torch"
    message = (
        f"torch does not call {hook}: {library} leaves none of the functions that it replaces"
        f" ({names}) to the loader, {why}"
    )
    return Diagnosis(status=Status.BYPASSED, message=message)


def _describe(site: Site, package: Path, version_py: Path) -> Torch:
    library, library_major = _library(package)
    values, problem = _assignments(version_py)
    written = values.get("cuda")
    cuda = _literal(written)
    major = parse_major(cuda) if cuda is not None else None
    if written is None:
        problem = problem or f"{version_py} does not say what CUDA torch was built for"
    elif written != "None" and major is None:
        shown = written[:80] if written.isprintable() else ascii(written[:80])
        problem = f"{version_py} says cuda = {shown}, which is no version"
    return Torch(
        root=package.parent,
        version=_literal(values.get("__version__")),
        cuda=cuda,
        major=major,
        accelerator=None if major is not None else _accelerator(site, values),
        library=library,
        library_major=library_major,
        problem=problem,
    )


def _accelerator(site: Site, values: dict[str, str]) -> str | None:
    for name, label in (("hip", "ROCm"), ("xpu", "Intel XPU")):
        if version := _literal(values.get(name)):
            return f"{label} {version}"
    for plugin, label in _PLUGINS.items():
        if next(site.packages(plugin), None):
            return f"{label} ({plugin})"
    return _announced(site)


def _announced(site: Site) -> str | None:
    """Return the accelerator that a plugin announces: torch loads this group at its import."""
    for distribution in site.distributions(".*"):
        file = distribution.root / distribution.directory / "entry_points.txt"
        try:
            announced = "[torch.backends]" in file.read_text(errors="replace")
        except OSError:
            continue
        if announced:
            return f"another accelerator ({distribution.name})"
    return None


def _library(package: Path) -> tuple[Path | None, int | None]:
    # The smallest part of torch that links the CUDA runtime, with the RPATH that all of it has.
    path = package / "lib" / "libc10_cuda.so"
    facts = elf.read(path)
    if facts.status is ElfStatus.CANNOT_OPEN:
        return None, None
    majors = (runtime_major(soname) for soname in facts.needed)
    return path, next((major for major in majors if major is not None), None)


def _assignments(path: Path) -> tuple[dict[str, str], str | None]:
    """Return the text that a module assigns to each name that counts, or why it cannot be read.

    As text, and not compiled: the file may be anything, and the compiler's warnings about it would
    be the caller's.
    """
    if exists(path) and not is_file(path):
        return {}, f"{path} is no file"  # to open a FIFO would wait for ever
    try:
        with path.open("rb") as file:
            source = file.read(_VERSION_PY_SIZE).decode("utf-8-sig", errors="replace")
    except OSError as error:
        return {}, f"{path} cannot be read ({error.strerror})"
    if source.startswith("version https://git-lfs"):
        return {}, f"{path} is a Git LFS pointer, not the file: run git lfs pull"
    return {match["name"]: match["value"] for match in _ASSIGNMENT.finditer(source)}, None


def _literal(text: str | None) -> str | None:
    match = re.fullmatch(r"""(['"])([^'"\\]*)\1""", text or "")
    return match[2] if match else None
