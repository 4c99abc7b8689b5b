"""Which file is meant: a path is only one of its names."""

from __future__ import annotations

import os


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Compare two paths by device and inode, as text where a file is not there."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121  (texts as well as paths)
    except OSError:
        return os.fspath(one) == os.fspath(other)
