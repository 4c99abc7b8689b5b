"""audit(): what is true of a running process. Reads /proc and this process's own symbol scope.

A path of another process is looked up as that process sees it.
"""

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
from ._process import running

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATH_MAX = 4096
_DELETED = " (deleted)"  # how /proc marks a mapped file that is gone from its directory
_TORCH = ("libc10_cuda.so", "libtorch_cuda.so")  # the first that is mapped allocates memory
_RESTART = "start the process anew with Choice.env() or pyresolve exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong with a running process or was not seen of it, and what to do."""

    status: Status
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What is true of a process.

    `preload` is what LD_PRELOAD held when it was started (None if the process wrote its title
    over that), `hook` the build of the hook that is
    mapped (None if none is), `owner` the file that its `cudaMalloc` comes from (None if that
    is none, or cannot be told of another process). `runtimes` are the libcudart files that are
    mapped, `torch_runtime` the one that the torch in it was built to map. Paths are those that the
    process itself would write.
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
        """FAIL if something is wrong, UNKNOWN if something could not be seen."""
        verdicts = {finding.status.verdict for finding in self.findings}
        order = (Verdict.FAIL, Verdict.UNKNOWN)
        return next((verdict for verdict in order if verdict in verdicts), Verdict.OK)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """What /proc says of a process; `variables` is None if it wrote its title over them.

    `gone` are the mapped files that were deleted or replaced since, with where they still are.
    """

    pid: int
    view: running.View
    variables: dict[str, str] | None
    mapped: tuple[Path, ...]
    gone: dict[Path, Path]

    @property
    def preload(self) -> tuple[str, ...] | None:
        """What LD_PRELOAD held at its start; None if that cannot be told."""
        return None if self.variables is None else parse_preload(self.variables.get(PRELOAD))

    def at(self, path: Path) -> Path:
        """Return where a file of the process is for us."""
        return self.gone.get(path) or self.view.at(path)

    def same(self, one: Path, other: Path) -> bool:
        """Tell whether two paths of the process are one file."""
        return one == other or same_file(self.at(one), self.at(other))

    def mapped_as(self, item: str) -> Path | None:
        """Return the mapped file that an element of LD_PRELOAD stands for."""
        path = Path(item)
        if not item.startswith("/") or "$" in item:  # the loader searched or expanded it
            return next((other for other in self.mapped if other.name == path.name), None)
        if path in self.mapped:  # also if it is deleted by now
            return path
        return next((other for other in self.mapped if self.same(other, path)), None)

    def library(self) -> Path | None:
        """Return the part of torch that allocates memory, if it is mapped."""
        named = (path for name in _TORCH for path in self.mapped if path.name == name)
        return next(named, None)


def audit(*, pid: int | None = None, stem: str = "torch_memory_saver_hook_mode_preload") -> Audit:
    """Return what is true of the process `pid`, by default of this one, about the hook `stem`.

    For use in a worker after its start, or on a node from another process of the same user. Raises
    PyresolveError if the process is gone or may not be looked at.
    """
    number = os.getpid() if pid is None else pid
    _, started = running.state(number)
    process = _read(number)
    preload = process.preload
    forced = os.path.basename((process.variables or {}).get(_overrides.PRELOAD, ""))  # noqa: PTH119
    is_build = same_stem(stem)
    named = [
        item
        for item in preload or ()
        if is_build(name := os.path.basename(item)) or name == forced  # noqa: PTH119
    ]
    took = next((path for item in named if (path := process.mapped_as(item))), None)
    hook = took or next((path for path in process.mapped if is_build(path.name)), None)
    own = number == os.getpid()
    library = process.library()
    expected = torch.runtime_by_rpath(library, at=process.at) if library else None
    seen = Audit(
        pid=number,
        preload=preload,
        hook=hook,
        owner=_own("cudaMalloc") if own else _first_of(preload or (), process, hook),
        runtimes=tuple(path for path in process.mapped if runtime_major(path.name) is not None),
        torch_runtime=process.view.resolve(expected) if expected else None,
        findings=(),
    )
    hooked = _about_the_hook(seen, process, named, took, own=own)
    findings = [hooked] if hooked else [*_about_torch(process, hook, library)]
    findings += _about_the_runtimes(seen, process)
    now = running.state(number)
    if now[0] in running.ENDED or now[1] != started:  # its files were not there any more
        raise _ended(number)
    return replace(seen, findings=tuple(findings))


def _about_the_hook(
    seen: Audit, process: _Process, named: list[str], took: Path | None, *, own: bool
) -> Finding | None:
    title = f"process {seen.pid}"
    if seen.hook is None and not named:
        return Finding(
            status=Status.NOT_PRELOADED,
            message=f"{title} was started without the hook in {PRELOAD}: {_RESTART}",
        )
    if took is None and named and not process.view.seen:
        return Finding(
            status=Status.NOT_SEEN,
            message=f"whether {named[0]}, which {PRELOAD} of {title} names, is one of the files"
            f" that it maps was not seen: /proc/{seen.pid}/root may not be looked into; run this as"
            " root, or in the process itself",
        )
    if took is None and named:
        return Finding(
            status=Status.IGNORED,
            message=f"{PRELOAD} of {title} names the hook, but it is not mapped:"
            f" {_why_ignored(process, named[0])}",
        )
    in_effect = seen.owner is not None and seen.owner == seen.hook
    if took is None and (seen.preload is not None or (own and not in_effect)):
        return Finding(
            status=Status.BYPASSED,
            message=f"{seen.hook} was loaded into {title} after its start, too late to take"
            f" effect: {_RESTART}",
        )
    if took and seen.owner and not in_effect and _stands_before(seen.owner, named[0], process):
        return Finding(
            status=Status.BYPASSED,
            message=f"cudaMalloc of {title} comes from {seen.owner}, not from {seen.hook}: that"
            f" stands before the hook in {PRELOAD}; put the hook first and {_RESTART}",
        )
    if took and _is_relative(named[0]):
        return Finding(
            status=Status.NOT_SEEN,
            message=f"{PRELOAD} of {title} names {named[0]}, which is another file in each"
            f" directory that a process starts in: whether that was {took} was not seen; write it"
            " in full",
        )
    return None


def _about_torch(process: _Process, hook: Path | None, library: Path | None) -> Iterator[Finding]:
    if hook and library:
        if diagnosis := torch.bypass(library, hook, at=process.at):
            yield Finding(status=diagnosis.status, message=diagnosis.message)
        return
    other = next((path for path in process.mapped if path.name.startswith("libtorch")), None)
    if hook and other:
        yield Finding(
            status=Status.NOT_SEEN,
            message=f"whether torch calls {hook} was not seen: process {process.pid} maps {other}"
            f" and none of {', '.join(_TORCH)}, as a torch for CPUs or one that is a single file",
        )


def _why_ignored(process: _Process, item: str) -> str:
    program = elf.read(f"/proc/{process.pid}/exe")
    if program.status is ElfStatus.SOUND and program.interpreter is None:
        return "its program is linked statically, which makes LD_PRELOAD void: use a dynamic one"
    if item.startswith("/") and "$" not in item:
        place = process.at(Path(item))
        if diagnosis := fault.find(place):
            return diagnosis.message.replace(elf.printable(os.fspath(place)), elf.printable(item))
    if _is_relative(item):
        return (
            f"{item} is another file in each directory that a process starts in: write it in full"
        )
    return f"{item} was skipped by the loader"


def _is_relative(item: str) -> bool:
    return "/" in item and item[0] not in "/$"


def _stands_before(owner: Path, hook: str, process: _Process) -> bool:
    """Tell whether the hook is too late, rather than leaving the symbol to what it links."""
    preload = process.preload or ()
    ahead = preload[: preload.index(hook)]
    return any(
        path is not None and process.same(path, owner) for path in map(process.mapped_as, ahead)
    ) or same_file(process.at(owner), f"/proc/{process.pid}/exe")


def _about_the_runtimes(seen: Audit, process: _Process) -> Iterator[Finding]:
    if len(seen.runtimes) > 1:
        files = ", ".join(map(str, seen.runtimes))
        yield Finding(
            status=Status.SEVERAL_RUNTIMES,
            message=f"process {seen.pid} maps {len(seen.runtimes)} CUDA runtimes ({files}): their"
            f" states are apart, and which one a call reaches is chance; {_RESTART}",
        )
    if seen.torch_runtime and not any(
        process.same(seen.torch_runtime, path) for path in seen.runtimes
    ):
        files = ", ".join(map(str, seen.runtimes)) or "no CUDA runtime"
        yield Finding(
            status=Status.WRONG_RUNTIME,
            message=f"process {seen.pid} maps {files}, where its torch was built to use"
            f" {seen.torch_runtime}: {_RESTART}",
        )


def _read(pid: int) -> _Process:
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
        raise _ended(pid)
    view = running.View.of(pid)
    paths: dict[Path, None] = {}
    gone: dict[Path, Path] = {}
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(b"/"):
            text = os.fsdecode(fields[5].replace(b"\\012", b"\n"))  # all that the kernel escapes
            path = view.named(text.removesuffix(_DELETED))
            paths[path] = None
            if text.endswith(_DELETED):
                gone.setdefault(path, directory / "map_files" / os.fsdecode(fields[0]))
    variables = None
    if not environ or b"=" in environ.partition(b"\0")[0]:
        pairs = (entry.partition(b"=") for entry in environ.split(b"\0") if entry)
        variables = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    return _Process(pid=pid, view=view, variables=variables, mapped=tuple(paths), gone=gone)


def _ended(pid: int) -> PyresolveError:
    """Return the error about a process of which /proc says nothing."""
    state, _ = running.state(pid)
    if state == "hidden":
        return PyresolveError(
            f"process {pid} runs, but /proc does not show it (hidepid): run this as root, or as a"
            " user who may trace it"
        )
    if state not in running.ENDED:
        return PyresolveError(f"process {pid} maps no file: it is one of the kernel's, or ends now")
    return PyresolveError(
        f"there is no process {pid}, or it has ended: give the pid of one that runs"
    )


def _own(symbol: str) -> Path | None:
    buffer = ffi.new("char[]", _PATH_MAX)
    length = lib.pyr_scope_owner(symbol.encode(), buffer, _PATH_MAX)
    return Path(os.fsdecode(ffi.buffer(buffer, length)[:])) if length else None


def _first_of(preload: tuple[str, ...], process: _Process, hook: Path | None) -> Path | None:
    """Return where another process gets cudaMalloc from, None if only it could tell.

    What is preloaded comes before all that the program links itself. The first of it is known to
    define it if it is the hook or a libcudart; of any other library that cannot be told.
    """
    first = process.mapped_as(preload[0]) if preload else None
    if first is None or (first != hook and runtime_major(first.name) is None):
        return None
    return first
