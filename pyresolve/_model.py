"""The types of what is gathered, decided and reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from ._document import document, plain
from ._names import dotted


class Verdict(Enum):
    """May it be used? UNKNOWN: something that decides it was not seen here, such as the driver."""

    OK = "ok"
    FAIL = "fail"
    UNKNOWN = "unknown"


class Status(Enum):
    """The cause of a verdict; up to BROKEN_ENVIRONMENT in the order of native/status.h."""

    LOADABLE = "loadable"
    NO_DRIVER = "no_driver"
    NO_PYTHON = "no_python"
    MISSING_DEPENDENCY = "missing_dependency"
    UNDEFINED_SYMBOL = "undefined_symbol"
    VERSION_MISMATCH = "version_mismatch"
    WRONG_PYTHON = "wrong_python"
    NOT_FOUND = "not_found"
    NOT_ELF = "not_elf"
    TRUNCATED = "truncated"
    WRONG_ARCH = "wrong_arch"
    NOEXEC = "noexec"
    PERMISSION = "permission"
    NOT_LOADABLE = "not_loadable"
    IGNORED = "ignored"
    BYPASSED = "bypassed"
    TORCH_FAILS = "torch_fails"
    CRASHED = "crashed"
    EXITED = "exited"
    TIMED_OUT = "timed_out"
    BROKEN_ENVIRONMENT = "broken_environment"
    NOT_PRELOADED = "not_preloaded"
    SEVERAL_RUNTIMES = "several_runtimes"
    WRONG_RUNTIME = "wrong_runtime"
    NOT_SEEN = "not_seen"

    @property
    def verdict(self) -> Verdict:
        """Return what it means for the question whether the library may be used."""
        if self is Status.LOADABLE:
            return Verdict.OK
        unknown = (Status.NO_DRIVER, Status.NO_PYTHON, Status.NOT_SEEN)
        return Verdict.UNKNOWN if self in unknown else Verdict.FAIL


class Mode(str, Enum):
    """How a library is tried: opened by a running process, or preloaded before it starts."""

    DLOPEN = "dlopen"
    PRELOAD = "preload"


class Pin(str, Enum):
    """How torch's own libcudart is put where the hook finds it."""

    AUTO = "auto"
    LIBRARY_PATH = "library_path"
    PRELOAD = "preload"
    NONE = "none"


class Source(Enum):
    """What led to the chosen build, strongest first."""

    OVERRIDE = "override"
    RESOLVER = "package resolver"
    TORCH_RUNTIME = "torch's runtime"
    TORCH_METADATA = "torch metadata"
    FOUND_RUNTIME = "found runtime"
    LOADABILITY = "loadability"
    EXISTENCE = "existence"


class Origin(Enum):
    """How a CUDA runtime library was come by."""

    TORCH = "torch"
    LOADER = "loader"
    LIBRARY_PATH = "LD_LIBRARY_PATH"
    PACKAGE = "package"
    CONDA = "conda"
    TOOLKIT = "toolkit"


class ElfStatus(Enum):
    """How far the reader of ELF files came."""

    SOUND = "sound"
    CANNOT_OPEN = "cannot open"
    CANNOT_READ = "cannot read"
    NOT_REGULAR = "not a regular file"
    EMPTY = "empty"
    NOT_ELF = "not ELF"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    FOREIGN = "foreign"
    TOO_MUCH = "too much"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionNeed:
    """One symbol version that a library wants of another: `GLIBC_2.34` of `libc.so.6`."""

    file: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElfFacts:
    """What a file says about itself. Fields are empty or None if the reader did not reach them.

    `fault` is what is wrong with the file alone, LOADABLE for a sound library for this machine.
    """

    path: Path
    status: ElfStatus
    fault: Status = Status.LOADABLE
    errno: int = 0
    size: int | None = None
    needed_size: int | None = None
    device: int | None = None
    inode: int | None = None
    elf_class: int | None = None
    byte_order: int | None = None
    machine: int | None = None
    type: int | None = None
    bind_now: bool = False
    host: bool = False
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    interpreter: str | None = None
    versions_needed: tuple[VersionNeed, ...] = ()
    versions_defined: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """A cause that lies in the file itself, with the sentence for the user."""

    status: Status
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A libcudart: `version` is what cudaRuntimeGetVersion answers (12080 is 12.8).

    `path` is the path as the loader used it, never resolved through links: `$ORIGIN` follows it.
    `version` is None if the library could not be loaded and asked; `problem` says why.
    """

    path: Path
    major: int
    version: int | None = None
    origin: Origin
    distribution: str | None = None
    problem: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**plain(self), "version": dotted(self.version)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """The NVIDIA driver library as the workers' loader finds it.

    `version` is what cuDriverGetVersion answers, the highest CUDA version it supports (13000 is
    13.0); None if there is no driver. `problem` says why there is none, `absent` that the loader
    does not find the library at all.
    """

    path: Path | None = None
    version: int | None = None
    problem: str | None = None
    absent: bool = False

    @property
    def present(self) -> bool:
        """True if a driver library answered."""
        return self.path is not None and self.problem is None

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {**plain(self), "present": self.present, "version": dotted(self.version)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A library that the loader did not find, and how to fix it.

    `needed_by` is the file whose NEEDED names it, `searched` the places where the loader looked,
    `elsewhere` sound copies that are out of its reach, `unusable` what is wrong with the others,
    `supplier` the command that would install it.
    """

    name: str
    needed_by: str | None = None
    searched: tuple[str, ...] = ()
    elsewhere: tuple[Path, ...] = ()
    unusable: tuple[str, ...] = ()
    supplier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """The outcome of one trial load; `message` is one sentence with the cause and what to do.

    `detail` is the cause in a word or two: the library, symbol or version that is missing, the
    signal or exit status that ended the trial; empty if the status says it all.
    `remedy` is a shell command that fixes it, None if no single one does. `undefined` are
    symbols (with their version, `name@version`) that nothing defines, `used_by` is the file that
    uses the symbol or wants the version, `provider` the one that should have it and lacks it.
    `loaded` are the files that the trial mapped, `runtime` and `driver` what was found among them.
    `elapsed` is in seconds. `pid` is that of a process which outlived SIGKILL, because it sleeps in
    the kernel.
    """

    path: Path
    mode: Mode
    verdict: Verdict
    status: Status
    message: str
    detail: str = ""
    remedy: str | None = None
    missing: tuple[Missing, ...] = ()
    undefined: tuple[str, ...] = ()
    used_by: Path | None = None
    provider: Path | None = None
    loaded: tuple[Path, ...] = ()
    runtime: Runtime | None = None
    driver: Driver = field(default_factory=Driver)
    elapsed: float = 0.0
    pid: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable (docs/json.md)."""
        return document(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A build of the hook that a package ships.

    `major` is the CUDA major that its NEEDED names, or if that names none the one in its file
    name; `named` is the one in the file name, `runtime` the SONAME of the libcudart that it needs,
    `has_search_path` says that it has an RPATH or RUNPATH.
    `problem` says why it cannot be used at all, `in_place` that the cause lies in where it is and
    not in what it is: to install it anew would change nothing.
    """

    path: Path
    major: int | None = None
    runtime: str | None = None
    named: int | None = None
    has_search_path: bool = False
    problem: str | None = None
    in_place: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """An installed torch, as its files describe it. Nothing of it was imported.

    `cuda` is the text in `torch/version.py`, `major` the CUDA major in it, `accelerator` names
    another accelerator that it was built for. `library` is the part of it that links the CUDA
    runtime, `library_major` the major which that part NEEDs. `problem` says what could not be read.
    """

    root: Path
    version: str | None = None
    cuda: str | None = None
    major: int | None = None
    accelerator: str | None = None
    library: Path | None = None
    library_major: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one source says; `major` is None if it says nothing, `decided` that it was followed."""

    source: Source
    text: str
    major: int | None = None
    decided: bool = False
