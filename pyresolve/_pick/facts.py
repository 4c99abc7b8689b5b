"""What is known before a build is chosen, and what is decided from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._model import Candidate, Driver, Evidence, LoadReport, Runtime, Source, Torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .._disk.site import Site


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the decision and the plan of the environment rest on.

    `package_place` is the directory that the package is imported from, `searched` are all that were
    looked at. `override` is the major that the user set and where, `forced` the file. `resolved` is
    what the package's own resolver answered. `environ` is the environment that workers start with.

    `installed` are the libcudart files on disk.

    `torch_own` is the libcudart that the search path in torch's library leads to.

    These are found by asking the loader: `torch_runtime` is the libcudart that torch's library
    maps, `torch_problem` why it does not load.
    `loader_runtimes` are those that the workers' loader finds by name; unless `complete`, only of
    the major that torch needs. `driver_directory` is where the driver lies if the loader finds it
    only with that directory. `trials` are the reports on each candidate, made only if nothing else
    can tell.
    """

    package: str
    stem: str
    searched: tuple[Path, ...]
    package_found: bool = True
    package_version: str | None = None
    package_place: Path | None = None
    candidates: tuple[Candidate, ...] = ()
    override: tuple[int, str] | None = None
    forced: Candidate | None = None
    resolved: Candidate | None = None
    torch: Torch | None = None
    torch_own: Runtime | None = None
    torch_runtime: Runtime | None = None
    torch_problem: str | None = None
    loader_runtimes: tuple[Runtime, ...] = ()
    installed: tuple[Runtime, ...] = ()
    driver: Driver = field(default_factory=Driver)
    driver_directory: Path | None = None
    trials: tuple[LoadReport, ...] = ()
    complete: bool = True
    site: Site | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch_library(self) -> str:
        """The part of torch that links the CUDA runtime, "" if there is none."""
        return str(self.torch.library) if self.torch and self.torch.library else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The build to use, and every source with what it said, strongest first."""

    candidate: Candidate
    source: Source
    evidence: tuple[Evidence, ...]
    warnings: tuple[str, ...]
