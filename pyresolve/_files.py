"""Files and directories as they are: a path is only one of a file's names."""

from __future__ import annotations

import os


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Compare two paths by device and inode, as text where a file is not there."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121  (texts as well as paths)
    except OSError:
        return os.fspath(one) == os.fspath(other)


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Return the names in a directory, sorted; none where it cannot be listed."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  (twice as fast as iterdir)
    except OSError:
        return []
