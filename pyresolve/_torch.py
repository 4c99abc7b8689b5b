"""What torch was built for, from its files alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from . import _elf
from ._types import ElfStatus, Torch
from ._variants import runtime_major

if TYPE_CHECKING:
    from ._sites import Site

# Packages that add an accelerator to a torch whose own metadata names none.
_PLUGINS = {"torch_npu": "Ascend NPU", "torch_musa": "Moore Threads MUSA"}

_ONLY_AST = 0x400  # ast.PyCF_ONLY_AST, without the import of ast and all that it brings


def find(site: Site) -> Torch | None:
    """Return the torch that `import torch` would mean, None where there is none."""
    for package in site.packages("torch"):
        version_py = package / "version.py"
        if version_py.exists() or (package / "__init__.py").exists():
            return _describe(site, package, version_py)
    return None


def parse_major(version: str) -> int | None:
    """Return the major of `13`, `12.8` or `12.8.1`, None for anything else."""
    match = re.fullmatch(r"(\d{1,3})(?:\.\d+)*", version.strip(), re.ASCII)
    return int(match[1]) if match else None


def runtime_by_rpath(library: Path) -> Path | None:
    """Return the libcudart that the search path in torch's own library leads to.

    For a process that runs already; where one can be started, the loader is asked instead.
    """
    facts = _elf.read(library)
    soname = next((name for name in facts.needed if runtime_major(name) is not None), None)
    for entry in (*facts.rpath, *facts.runpath) if soname else ():
        path = Path(entry.replace("$ORIGIN", str(library.parent)), soname or "")
        if path.exists():
            return path.resolve()
    return None


def _describe(site: Site, package: Path, version_py: Path) -> Torch:
    library, library_major = _library(package)
    names, problem = _constants(version_py)
    cuda, major = names.get("cuda"), None
    if isinstance(cuda, str):
        major = parse_major(cuda)
        if major is None:
            problem = f"{version_py} says cuda = {cuda!r}, which is no version"
    elif not problem and "cuda" not in names:
        problem = f"{version_py} does not say what CUDA torch was built for"
    version = names.get("__version__")
    return Torch(
        root=package.parent,
        version=version if isinstance(version, str) else None,
        cuda=cuda if isinstance(cuda, str) else None,
        major=major,
        accelerator=None if cuda else _accelerator(site, names),
        library=library,
        library_major=library_major,
        problem=problem,
    )


def _accelerator(site: Site, names: dict[str, object]) -> str | None:
    for name, label in (("hip", "ROCm"), ("xpu", "Intel XPU")):
        if names.get(name):
            return f"{label} {names[name]}"
    for plugin, label in _PLUGINS.items():
        if next(site.packages(plugin), None):
            return f"{label} ({plugin})"
    return None


def _library(package: Path) -> tuple[Path | None, int | None]:
    # The smallest part of torch that links the CUDA runtime, with the RPATH that all of it has.
    path = package / "lib" / "libc10_cuda.so"
    facts = _elf.read(path)
    if facts.status is ElfStatus.CANNOT_OPEN:
        return None, None
    majors = (runtime_major(soname) for soname in facts.needed)
    return path, next((major for major in majors if major is not None), None)


def _constants(path: Path) -> tuple[dict[str, object], str | None]:
    """Return what a module assigns as constants at its top level, or why it cannot be read."""
    import _ast

    try:
        source = path.read_bytes()
        tree = compile(source, path, "exec", _ONLY_AST, dont_inherit=True)
    except OSError as error:
        return {}, f"{path} cannot be read ({error.strerror})"
    except (SyntaxError, ValueError):
        if source.startswith(b"version https://git-lfs"):
            return {}, f"{path} is a Git LFS pointer, not the file: run git lfs pull"
        return {}, f"{path} is not Python"
    constants: dict[str, object] = {}
    for node in tree.body:
        targets: list[_ast.expr] = []
        if isinstance(node, _ast.Assign):
            targets = node.targets
        elif isinstance(node, _ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, _ast.Name) and isinstance(node.value, _ast.Constant):
                constants[target.id] = node.value.value
    return constants, None
