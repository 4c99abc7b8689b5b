"""Where an interpreter's packages are. Directories are listed, nothing is imported."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from .._errors import ProbeError
from .files import absolute, is_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One directory of the import path with the names in it."""

    path: Path
    names: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """An installed distribution, as its `.dist-info` directory names it."""

    name: str
    version: str
    root: Path
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What an interpreter imports from: its prefix, and its path in the order of import."""

    prefix: Path
    entries: tuple[Entry, ...]

    def packages(self, name: str) -> Iterator[Path]:
        """Yield every directory that `import name` could mean, first the one that it does."""
        for entry in self.entries:
            if name in entry.names and is_directory(entry.path / name):
                yield entry.path / name

    def sources(self, package: str) -> Iterator[Path]:
        """Yield where an editable install of a package keeps it (PEP 610), often off the path."""
        for distribution in self.distributions(re.escape(package.replace("-", "_").lower())):
            record = distribution.root / distribution.directory / "direct_url.json"
            try:
                direct = json.loads(record.read_bytes())
                url, editable = direct["url"], direct["dir_info"]["editable"]
            except (OSError, ValueError, LookupError, TypeError):
                continue
            if editable and isinstance(url, str) and url.startswith("file://"):
                root = Path(unquote(url.removeprefix("file://")))
                yield from (path for path in (root, root / "src") if is_directory(path))

    def distributions(self, pattern: str) -> Iterator[Distribution]:
        """Yield the installed distributions whose normalized name matches the regex `pattern`."""
        matches = re.compile(pattern).fullmatch
        return (found for found in _distributions(self.entries) if matches(found.name))


@lru_cache(maxsize=8)
def _distributions(entries: tuple[Entry, ...]) -> tuple[Distribution, ...]:
    found = []
    for entry in entries:
        for directory in entry.names:
            name, dash, version = directory.removesuffix(".dist-info").partition("-")
            if dash and directory.endswith(".dist-info"):
                normal = re.sub(r"[-_.]+", "_", name).lower()  # PEP 503, PEP 427
                found.append(
                    Distribution(name=normal, version=version, root=entry.path, directory=directory)
                )
    return tuple(found)


def current() -> Site:
    """Return the site of the running interpreter: its `sys.path` as it is now."""
    if sys.path is None:  # in a __del__ at the end
        raise ProbeError("the interpreter is ending and has no sys.path any more: ask before")
    return Site(prefix=Path(sys.prefix), entries=tuple(entries(sys.path)))


def entries(paths: list[str]) -> Iterator[Entry]:
    """Yield the directories of an import path, once each."""
    for path in dict.fromkeys(path or os.curdir for path in paths):
        whole = Path(os.path.normpath(absolute(path)))  # resolve() would follow links
        try:
            names = frozenset(os.listdir(whole))  # noqa: PTH208  (twice as fast as iterdir)
        except OSError:
            continue  # a zip file, or a directory that is not there: both are usual in sys.path
        yield Entry(path=whole, names=names)
