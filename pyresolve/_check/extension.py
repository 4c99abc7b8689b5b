"""Python extensions: libraries that use what an interpreter defines, and link none."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, cast

from .._disk import elf, interpreter_stub, symbols
from .._disk.elf import printable
from .._disk.files import identity
from .._imports import importing
from .._model import LoadReport, Status, Verdict
from .trace import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .._process.helper import Deadline

_TAG = re.compile(r"\.(?P<tag>cpython-\d+[a-z]*|pypy\d+-pp\d+|graalpy[\w-]+)(?:-[\w-]+)?\.so$")
_VERSION = re.compile(r"python3\.(?P<minor>\d+)(?P<abi>t?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Interpreter:
    """`libraries` are those named libpython; `tag` is that of its extensions, or ""."""

    libraries: tuple[str, ...]
    tag: str


def check(
    report: LoadReport,
    executable: str,
    *,
    load: Callable[[str], LoadReport],
    environ: Mapping[str, str],
    deadline: Deadline,
) -> LoadReport:
    """Check an extension again together with an interpreter; `report` is without one.

    `load` opens the target after a library that defines what the interpreter defines: its
    libpython, or one that is made from the symbols of the executable. No interpreter is started.
    """
    interpreter = _describe(executable, environ, deadline)
    name = os.fspath(report.path)
    tag = _TAG.search(name)
    if tag and interpreter.tag and tag["tag"] != interpreter.tag:
        return _of_another(
            report,
            f"{name} is named for {tag['tag']}, and {executable} takes {interpreter.tag}",
            tag["tag"],
        )
    library = next(filter(_is_python, interpreter.libraries), None)
    try:
        checked = load(library) if library else _with_stub(executable, load)
    except OSError as error:
        return replace(report, message=printable(f"{report.message}; {error.strerror}"))
    if checked is None:
        message = (
            f"{report.message}; {executable} defines nothing of Python's: name the interpreter"
            " itself, no script that starts it"
        )
        return replace(report, message=printable(message))
    if checked.status is not Status.WRONG_PYTHON:
        return checked
    some = ", ".join(checked.undefined[:5])
    found = f"{name} uses {some}, which {executable} does not define"
    return _of_another(checked, found, checked.detail)


def _of_another(report: LoadReport, found: str, detail: str) -> LoadReport:
    message = f"{found}: it is built for another Python; reinstall it with the workers' interpreter"
    return replace(
        report,
        verdict=Verdict.FAIL,
        status=Status.WRONG_PYTHON,
        message=printable(message),
        detail=detail,
    )


def _describe(executable: str, environ: Mapping[str, str], deadline: Deadline) -> _Interpreter:
    facts = elf.read(executable)
    libraries: list[str] = []
    if facts.interpreter and any(name.startswith("libpython") for name in facts.needed):
        _, found = trace(executable, facts.interpreter, environ=environ, deadline=deadline)
        libraries = [path for path in found if os.path.basename(path).startswith("libpython")]  # noqa: PTH119
    # Only the name of a file tells the version of an interpreter that is not started.
    names = [os.path.basename(os.path.realpath(file)) for file in (executable, *libraries)]  # noqa: PTH119
    versions = (match for name in names if (match := _VERSION.search(name)))
    version = next(versions, None)
    tag = f"cpython-3{version['minor']}{version['abi']}" if version else ""
    return _Interpreter(libraries=tuple(libraries), tag=tag)


def _is_python(library: str) -> bool:
    name = "Py_IsInitialized"
    found = elf.symbols(library, name)
    return found is not None and name in found.defined


def _with_stub(executable: str, load: Callable[[str], LoadReport]) -> LoadReport | None:
    """Check with a stand-in for an executable, which cannot be opened; None if it is no Python."""
    image = _image(executable, identity(executable)) if _is_python(executable) else None
    if image is None:
        return None
    with _memory_file() as file:
        file.write(image)
        file.flush()
        stub = f"/proc/{os.getpid()}/fd/{file.fileno()}"
        checked = load(stub)
    if stub in checked.message:
        raise OSError(errno.EACCES, f"what stands for {executable} cannot be opened through /proc")
    return checked


def _memory_file() -> BinaryIO:
    if hasattr(os, "memfd_create"):  # not in an interpreter that is built for an old glibc
        return open(os.memfd_create("pyresolve-python", os.MFD_CLOEXEC), "wb")  # noqa: PTH123
    with importing:
        import tempfile

    return cast("BinaryIO", tempfile.TemporaryFile())


@lru_cache(maxsize=4)
def _image(executable: str, _: tuple[int, ...] | None) -> bytes | None:
    """Return the library that defines what a file defines; its identity is for the cache."""
    return interpreter_stub.build(symbols.exported(executable))
