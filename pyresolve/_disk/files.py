"""Files and directories. A path is only one of a file's names."""

from __future__ import annotations

import os

# A path that cannot be looked into counts as absent. Path.exists() and Path.is_dir() would raise
# PermissionError instead.
exists = os.path.exists
is_directory = os.path.isdir
is_file = os.path.isfile


def absolute(path: str) -> str:
    """Return a path from the root, not normalized: `link/..` depends on where the link leads.

    If the current directory was deleted the path stays as it is: nothing can be found from there.
    """
    try:
        return path if path.startswith("/") else os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118
    except FileNotFoundError:
        return path if "/" in path else f"./{path}"  # a bare name would be searched


def is_hidden(path: str | os.PathLike[str]) -> bool:
    """Tell whether this user may not see what is at a path."""
    try:
        os.stat(path)  # noqa: PTH116
        return is_directory(path) and not os.access(path, os.R_OK | os.X_OK)
    except PermissionError:
        return True
    except (OSError, ValueError):  # a NUL in the path
        return False


def identity(path: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """Return what changes if a file is replaced or changed, None if it cannot be looked at."""
    try:
        status = os.stat(path)  # noqa: PTH116  (of many, and a Path costs)
    except OSError:
        return None
    # The time of the change: a new mode or file capability changes no other.
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def same_file(one: str | os.PathLike[str], other: str | os.PathLike[str]) -> bool:
    """Compare two paths by device and inode, as text if a file is not there."""
    try:
        return os.path.samefile(one, other)  # noqa: PTH121  (texts as well as paths)
    except OSError:
        return os.fspath(one) == os.fspath(other)


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Return the names in a directory, sorted; none if it cannot be listed."""
    try:
        return sorted(os.listdir(directory))  # noqa: PTH208  (twice as fast as iterdir)
    except OSError:
        return []
