"""audit(): what is true of a running process. Reads /proc and this process's own symbol scope."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _elf, _torch, _variants
from ._environ import PRELOAD, parse_preload
from ._errors import PyresolveError
from ._native import ffi, lib
from ._types import Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PATH_MAX = 4096
_DELETED = " (deleted)"  # how /proc marks a mapped file that is gone from its directory
_RESTART = "start the process anew with Choice.env() or pyresolve exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a running process, and what to do."""

    status: Status
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is true of a process.

    `preload` is what LD_PRELOAD held when it was started, `hook` the build of the hook that is
    mapped (None where none is), `owner` the file that its `cudaMalloc` comes from (None where that
    is none, or cannot be told of another process). `runtimes` are the libcudart files that are
    mapped, `torch_runtime` the one that the torch in it was built to map.
    """

    pid: int
    preload: tuple[str, ...]
    hook: Path | None
    owner: Path | None
    runtimes: tuple[Path, ...]
    torch_runtime: Path | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """FAIL where there is any finding."""
        return Verdict.FAIL if self.findings else Verdict.OK

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable."""

        def text(path: Path | None) -> str | None:
            return None if path is None else str(path)

        return {
            "pid": self.pid,
            "verdict": self.verdict.value,
            "preload": list(self.preload),
            "hook": text(self.hook),
            "active": self.hook is not None and not self.findings,
            "owner": text(self.owner),
            "runtimes": [str(path) for path in self.runtimes],
            "torch_runtime": text(self.torch_runtime),
            "findings": [
                {"status": finding.status.value, "message": finding.message}
                for finding in self.findings
            ],
        }


def audit(*, pid: int | None = None, stem: str = "torch_memory_saver_hook_mode_preload") -> Audit:
    """Return what is true of the process `pid`, by default of this one, about the hook `stem`.

    For use in a worker after its start, or on a node from another process of the same user. Raises
    PyresolveError where the process is gone or may not be looked at.
    """
    number = os.getpid() if pid is None else pid
    is_hook = _variants.same_stem(stem)
    preload, mapped = _read(number)
    own = number == os.getpid()
    seen = Audit(
        pid=number,
        preload=preload,
        hook=next((path for path in mapped if is_hook(path.name)), None),
        owner=_own("cudaMalloc") if own else _by_order(preload, mapped, is_hook),
        runtimes=tuple(path for path in mapped if _variants.runtime_major(path.name) is not None),
        torch_runtime=_torch_runtime(mapped),
        findings=(),
    )
    return replace(seen, findings=tuple(_findings(seen, is_hook)))


def _findings(seen: Audit, is_hook: Callable[[str], bool]) -> Iterator[Finding]:
    named = next((item for item in seen.preload if is_hook(os.path.basename(item))), None)  # noqa: PTH119
    if seen.hook is None and named is None:
        yield Finding(
            status=Status.NOT_PRELOADED,
            message=f"process {seen.pid} was started without the hook in {PRELOAD}: {_RESTART}",
        )
    elif seen.hook is None and named is not None:
        diagnosis = _elf.diagnose(_elf.read(named)) if "/" in named else None
        why = diagnosis.message if diagnosis else f"{named} was skipped by the loader"
        yield Finding(
            status=Status.IGNORED,
            message=f"{PRELOAD} of process {seen.pid} names the hook, but it is not mapped: {why}",
        )
    elif named is None:
        yield Finding(
            status=Status.BYPASSED,
            message=f"{seen.hook} was loaded into process {seen.pid} after its start, too late to"
            f" take effect: {_RESTART}",
        )
    elif seen.owner is not None and not is_hook(seen.owner.name):
        yield Finding(
            status=Status.BYPASSED,
            message=f"cudaMalloc of process {seen.pid} comes from {seen.owner}, not from"
            f" {seen.hook}: that stands before the hook in {PRELOAD}; put the hook first and"
            f" {_RESTART}",
        )
    if len(seen.runtimes) > 1:
        files = ", ".join(map(str, seen.runtimes))
        yield Finding(
            status=Status.SEVERAL_RUNTIMES,
            message=f"process {seen.pid} maps {len(seen.runtimes)} CUDA runtimes ({files}): their"
            f" states are apart, and which one a call reaches is chance; {_RESTART}",
        )
    if seen.torch_runtime and not any(_same(seen.torch_runtime, path) for path in seen.runtimes):
        files = ", ".join(map(str, seen.runtimes)) or "no CUDA runtime"
        yield Finding(
            status=Status.WRONG_RUNTIME,
            message=f"process {seen.pid} maps {files}, where its torch was built to use"
            f" {seen.torch_runtime}: {_RESTART}",
        )


def _read(pid: int) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Return the LD_PRELOAD that a process was started with, and the files that it maps."""
    directory = Path(f"/proc/{pid}")
    try:
        environ = (directory / "environ").read_bytes()
        maps = (directory / "maps").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise PyresolveError(
            f"there is no process {pid}, or /proc is not mounted: give the pid of a running one"
        ) from None
    except PermissionError:
        raise PyresolveError(
            f"process {pid} may not be looked at: run this as a user who may trace it"
        ) from None
    prefix = f"{PRELOAD}=".encode()
    values = [entry[len(prefix) :] for entry in environ.split(b"\0") if entry.startswith(prefix)]
    paths: dict[Path, None] = {}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            paths[Path(os.fsdecode(fields[5]).removesuffix(_DELETED))] = None
    return parse_preload(os.fsdecode(values[0]) if values else None), tuple(paths)


def _own(symbol: str) -> Path | None:
    buffer = ffi.new("char[]", _PATH_MAX)
    length = lib.pyr_scope_owner(symbol.encode(), buffer, _PATH_MAX)
    return Path(os.fsdecode(ffi.buffer(buffer, length)[:])) if length else None


def _by_order(
    preload: tuple[str, ...], mapped: tuple[Path, ...], is_hook: Callable[[str], bool]
) -> Path | None:
    """Return where another process gets cudaMalloc from: the first preload that defines it.

    What is preloaded comes before all that the program links itself.
    """
    for item in preload:
        path = Path(item)
        if is_hook(path.name) or _variants.runtime_major(path.name) is not None:
            found = (other for other in mapped if other.name == path.name or _same(other, path))
            if owner := next(found, None):
                return owner
    return None


def _torch_runtime(mapped: tuple[Path, ...]) -> Path | None:
    library = next((path for path in mapped if path.name == "libc10_cuda.so"), None)
    return _torch.runtime_by_rpath(library) if library else None


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other
