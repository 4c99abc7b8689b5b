"""The CUDA runtimes that lie on disk, and who would bring one that does not."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from .._environ import LIBRARY_PATH, parse_library_path
from .._model import Origin, Runtime
from .._names import runtime_major
from .files import absolute, exists, is_directory, is_hidden, names_in, same_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from .site import Site

_TOOLKIT_PARENT = Path("/usr/local")
_LAST_SUFFIXED_MAJOR = 12  # later wheels carry the major in their version, not in their name


def directories(site: Site, environ: Mapping[str, str]) -> Iterator[tuple[Path, Origin]]:
    """Yield the directories that may hold CUDA libraries: the environment's before the system's."""
    for path, origin in _directories(site, environ):
        yield Path(absolute(str(path))), origin  # a variable may hold a relative path


def _directories(site: Site, environ: Mapping[str, str]) -> Iterator[tuple[Path, Origin]]:
    for package in site.packages("nvidia"):
        for part in names_in(package):
            yield package / part / "lib", Origin.PACKAGE
    prefixes = [environ["CONDA_PREFIX"]] if environ.get("CONDA_PREFIX") else []
    for prefix in dict.fromkeys((*map(Path, prefixes), site.prefix)):
        if is_directory(prefix / "conda-meta"):
            yield from ((path, Origin.CONDA) for path in _library_directories(prefix))
    for element in parse_library_path(environ.get(LIBRARY_PATH)):
        yield Path(element), Origin.LIBRARY_PATH
    named = (environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if environ.get(name))
    usual = (name for name in names_in(_TOOLKIT_PARENT) if re.fullmatch(r"cuda(-[\d.]+)?", name))
    for toolkit in dict.fromkeys(chain(map(Path, named), map(_TOOLKIT_PARENT.joinpath, usual))):
        yield from ((path, Origin.TOOLKIT) for path in _library_directories(toolkit))


def hidden(environ: Mapping[str, str]) -> Iterator[str]:
    """Say of each directory in a variable that this user may not look into that it is left out."""
    for name in ("CONDA_PREFIX", "CUDA_HOME", "CUDA_PATH", LIBRARY_PATH, "PYTHONPATH"):
        for element in parse_library_path(environ.get(name)):
            if element and is_hidden(element):
                yield (
                    f"{element}, which {name} names, may not be looked into by this user: what lies"
                    " there counts as absent"
                )


def installed(site: Site, environ: Mapping[str, str]) -> tuple[Runtime, ...]:
    """Return the libcudart files on disk, one for each directory and major, none of them asked."""
    found: dict[tuple[int, int], Runtime] = {}
    for directory, origin in directories(site, environ):
        names = (name for name in names_in(directory) if runtime_major(name) is not None)
        for name in sorted(names, key=lambda name: (len(name), name)):
            path = directory / name
            runtime = Runtime(
                path=path,
                major=runtime_major(name) or 0,
                origin=origin,
                distribution=_owner(site, path) if origin is Origin.PACKAGE else None,
            )
            try:
                status = path.stat()
            except OSError:
                continue  # a dangling link
            found.setdefault((status.st_dev, status.st_ino), runtime)
    return tuple(found.values())


def as_installed(runtime: Runtime, known: Iterable[Runtime]) -> Runtime:
    """Name a mapped libcudart by the path under which it is known: one from an RPATH is long."""
    for other in known:
        if same_file(other.path, runtime.path):
            return replace(other, version=runtime.version)
    return runtime


def copies(soname: str, site: Site, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the installed files of this name, wherever they lie; last those beside torch's own."""
    places = [directory for directory, _ in directories(site, environ)]
    places += [package / "lib" for package in site.packages("torch")]
    paths = (directory / soname for directory in places)
    return tuple(dict.fromkeys(path for path in paths if exists(path)))


def supplier(soname: str) -> str | None:
    """Return the command that installs a CUDA runtime, None for any other library."""
    major = runtime_major(soname)
    if major is None:
        return None
    if major <= _LAST_SUFFIXED_MAJOR:
        return f"pip install nvidia-cuda-runtime-cu{major}"
    return f"pip install 'nvidia-cuda-runtime=={major}.*'"


def only_runtime(directory: Path) -> bool:
    """Tell whether a directory holds no shared object but libcudart, so that it hides nothing."""
    return all(name.startswith("libcudart") for name in names_in(directory) if ".so" in name)


def _library_directories(prefix: Path) -> Iterator[Path]:
    yield prefix / "lib64"
    yield prefix / "lib"
    for target in names_in(prefix / "targets"):
        yield prefix / "targets" / target / "lib"


def _owner(site: Site, path: Path) -> str | None:
    for distribution in site.distributions(r"nvidia_cuda_runtime\w*"):
        if path.is_relative_to(distribution.root):
            record = distribution.root / distribution.directory / "RECORD"
            relative = path.relative_to(distribution.root).as_posix()
            try:
                listed = f"{relative}," in record.read_text()
            except OSError:
                continue
            if listed:
                return f"{distribution.name.replace('_', '-')} {distribution.version}"
    return None
