"""audit(): what is true of a running process. Reads /proc and this process's own symbol scope."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _overrides
from ._disk import elf, fault, torch
from ._disk.files import same_file
from ._environ import PRELOAD, parse_preload
from ._errors import PyresolveError
from ._model import ElfStatus, Status, Verdict
from ._names import runtime_major, same_stem
from ._native import ffi, lib

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    `preload` is what LD_PRELOAD held when it was started (None if the process wrote its title
    over that), `hook` the build of the hook that is
    mapped (None if none is), `owner` the file that its `cudaMalloc` comes from (None if that
    is none, or cannot be told of another process). `runtimes` are the libcudart files that are
    mapped, `torch_runtime` the one that the torch in it was built to map.
    """

    pid: int
    preload: tuple[str, ...] | None
    hook: Path | None
    owner: Path | None
    runtimes: tuple[Path, ...]
    torch_runtime: Path | None
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """FAIL if there is any finding."""
        return Verdict.FAIL if self.findings else Verdict.OK

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable."""

        def text(path: Path | None) -> str | None:
            return None if path is None else str(path)

        return {
            "pid": self.pid,
            "verdict": self.verdict.value,
            "preload": None if self.preload is None else list(self.preload),
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
    PyresolveError if the process is gone or may not be looked at.
    """
    number = os.getpid() if pid is None else pid
    variables, mapped = _read(number)
    preload = None if variables is None else parse_preload(variables.get(PRELOAD))
    forced = os.path.basename((variables or {}).get(_overrides.PRELOAD, ""))  # noqa: PTH119
    is_build = same_stem(stem)
    named = [
        item
        for item in preload or ()
        if is_build(name := os.path.basename(item)) or name == forced  # noqa: PTH119
    ]
    took = next((path for item in named if (path := _mapped_as(item, mapped))), None)
    hook = took or next((path for path in mapped if is_build(path.name)), None)
    own = number == os.getpid()
    seen = Audit(
        pid=number,
        preload=preload,
        hook=hook,
        owner=_own("cudaMalloc") if own else _first_of(preload or (), mapped, hook),
        runtimes=tuple(path for path in mapped if runtime_major(path.name) is not None),
        torch_runtime=_torch_runtime(mapped),
        findings=(),
    )
    hooked = _about_the_hook(seen, named, took, own=own)
    findings = [*([hooked] if hooked else []), *_about_the_runtimes(seen)]
    return replace(seen, findings=tuple(findings))


def _about_the_hook(
    seen: Audit, named: list[str], took: Path | None, *, own: bool
) -> Finding | None:
    process = f"process {seen.pid}"
    if seen.hook is None and not named:
        return Finding(
            status=Status.NOT_PRELOADED,
            message=f"{process} was started without the hook in {PRELOAD}: {_RESTART}",
        )
    if took is None and named:
        diagnosis = fault.find(named[0]) if "/" in named[0] else None
        why = diagnosis.message if diagnosis else f"{named[0]} was skipped by the loader"
        program = elf.read(f"/proc/{seen.pid}/exe")
        if program.status is ElfStatus.SOUND and program.interpreter is None:
            why = "its program is linked statically, which makes LD_PRELOAD void: use a dynamic one"
        return Finding(
            status=Status.IGNORED,
            message=f"{PRELOAD} of {process} names the hook, but it is not mapped: {why}",
        )
    in_effect = seen.owner is not None and seen.owner == seen.hook
    if took is None and (seen.preload is not None or (own and not in_effect)):
        return Finding(
            status=Status.BYPASSED,
            message=f"{seen.hook} was loaded into {process} after its start, too late to take"
            f" effect: {_RESTART}",
        )
    if took and seen.owner and not in_effect and _stands_before(seen.owner, named[0], seen):
        return Finding(
            status=Status.BYPASSED,
            message=f"cudaMalloc of {process} comes from {seen.owner}, not from {seen.hook}: that"
            f" stands before the hook in {PRELOAD}; put the hook first and {_RESTART}",
        )
    return None


def _stands_before(owner: Path, hook: str, seen: Audit) -> bool:
    """Tell whether the hook is too late, rather than leaving the symbol to what it links."""
    preload = seen.preload or ()
    ahead = preload[: preload.index(hook)]
    return any(_mapped_as(item, (owner,)) for item in ahead) or same_file(
        owner, Path(f"/proc/{seen.pid}/exe")
    )


def _about_the_runtimes(seen: Audit) -> Iterator[Finding]:
    if len(seen.runtimes) > 1:
        files = ", ".join(map(str, seen.runtimes))
        yield Finding(
            status=Status.SEVERAL_RUNTIMES,
            message=f"process {seen.pid} maps {len(seen.runtimes)} CUDA runtimes ({files}): their"
            f" states are apart, and which one a call reaches is chance; {_RESTART}",
        )
    if seen.torch_runtime and not any(
        same_file(seen.torch_runtime, path) for path in seen.runtimes
    ):
        files = ", ".join(map(str, seen.runtimes)) or "no CUDA runtime"
        yield Finding(
            status=Status.WRONG_RUNTIME,
            message=f"process {seen.pid} maps {files}, where its torch was built to use"
            f" {seen.torch_runtime}: {_RESTART}",
        )


def _read(pid: int) -> tuple[dict[str, str] | None, tuple[Path, ...]]:
    """Return the environment that a process was started with, and the files that it maps.

    The environment is None if the process wrote its title over it (setproctitle).
    """
    directory = Path(f"/proc/{pid}")
    try:
        environ = (directory / "environ").read_bytes()
        maps = (directory / "maps").read_bytes()
    except PermissionError:
        raise PyresolveError(
            f"process {pid} may not be looked at: run this as a user who may trace it"
        ) from None
    except OSError:
        maps = environ = b""
    if not maps:
        raise PyresolveError(
            f"there is no process {pid}, or it has ended: give the pid of one that runs"
        )
    paths: dict[Path, None] = {}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            name = os.fsdecode(fields[5].replace(b"\\012", b"\n"))  # all that the kernel escapes
            paths[Path(name.removesuffix(_DELETED))] = None
    if environ and b"=" not in environ.partition(b"\0")[0]:
        return None, tuple(paths)
    pairs = (entry.partition(b"=") for entry in environ.split(b"\0") if entry)
    variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return variables, tuple(paths)


def _own(symbol: str) -> Path | None:
    buffer = ffi.new("char[]", _PATH_MAX)
    length = lib.pyr_scope_owner(symbol.encode(), buffer, _PATH_MAX)
    return Path(os.fsdecode(ffi.buffer(buffer, length)[:])) if length else None


def _first_of(preload: tuple[str, ...], mapped: tuple[Path, ...], hook: Path | None) -> Path | None:
    """Return where another process gets cudaMalloc from, None if only it could tell.

    What is preloaded comes before all that the program links itself. The first of it is known to
    define it if it is the hook or a libcudart; of any other library that cannot be told.
    """
    first = _mapped_as(preload[0], mapped) if preload else None
    if first is None or (first != hook and runtime_major(first.name) is None):
        return None
    return first


def _mapped_as(item: str, mapped: tuple[Path, ...]) -> Path | None:
    """Return the mapped file that an element of LD_PRELOAD stands for."""
    path = Path(item)
    if "/" not in item:
        return next((other for other in mapped if other.name == item), None)
    if path in mapped:  # also if it is deleted by now
        return path
    return next((other for other in mapped if same_file(other, path)), None)


def _torch_runtime(mapped: tuple[Path, ...]) -> Path | None:
    library = next((path for path in mapped if path.name == "libc10_cuda.so"), None)
    return torch.runtime_by_rpath(library) if library else None
