"""Gather the facts that the decision rests on. The decision itself is `_decide`'s."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import (
    _check,
    _decide,
    _judge,
    _overrides,
    _probe,
    _resolver,
    _runtime,
    _torch,
    _variants,
)
from ._errors import OverrideError
from ._types import Driver, Origin, Runtime

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._sites import Site
    from ._types import Candidate, LoadReport, Torch


def gather(
    stem: str,
    package: str,
    *,
    cuda: int | str | None,
    asking: _resolver.Ask,
    site: Site,
    environ: Mapping[str, str],
    deadline: _probe.Deadline,
) -> _decide.Facts:
    """Look at the packages in `site` and ask the loader in `environ`. Raises as pick() does."""
    if not stem or "/" in stem:
        raise ValueError(f"stem is {stem!r}: give the file name of the hook without its suffix")
    if not re.fullmatch(r"\w[\w-]*", package):
        raise ValueError(f"package is {package!r}: give the name under which it is imported")
    candidates = _variants.candidates(site, package, stem)
    installed = _runtime.installed(site, environ)
    torch = _torch.find(site)
    sonames = {c.runtime for c in candidates if c.runtime} | {r.path.name for r in installed}
    seen = _ask_loader(torch, sorted(sonames), environ, deadline)
    answer = _resolver.ask(package, stem, asking)
    distribution = next(site.distributions(re.escape(package.replace("-", "_").lower())), None)
    return _decide.Facts(
        package=package,
        stem=stem,
        searched=tuple(entry.path for entry in site.entries),
        package_found=distribution is not None or any(site.packages(package)),
        package_version=distribution.version if distribution else None,
        candidates=candidates,
        override=_overrides.major(environ, cuda),
        forced=_forced(environ),
        resolved=_variants.describe(answer) if answer else None,
        torch=torch,
        torch_runtime=_as_installed(seen.torchs, installed),
        torch_problem=seen.torch_problem,
        loader_runtimes=seen.by_name,
        installed=installed,
        driver=seen.driver,
    )


def _forced(environ: Mapping[str, str]) -> Candidate | None:
    path = _overrides.preload(environ)
    if path is None:
        return None
    candidate = _variants.describe(Path(path))
    if candidate.problem:
        raise OverrideError(
            f"{_overrides.PRELOAD}={path} cannot be preloaded: {candidate.problem}; correct or"
            " unset it",
            variable=_overrides.PRELOAD,
            value=path,
        )
    return candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    torchs: Runtime | None
    torch_problem: str | None
    by_name: tuple[Runtime, ...]
    driver: Driver


def _ask_loader(
    torch: Torch | None,
    sonames: Sequence[str],
    environ: Mapping[str, str],
    deadline: _probe.Deadline,
) -> _Seen:
    """Ask, in one process, which libcudart torch maps, which the loader finds, and for the driver.

    libc10_cuda.so maps the libcudart that torch will use: its RPATH beats the environment.
    """
    library = os.fspath(torch.library) if torch and torch.library else None
    # The driver comes first, in a child of its own: it is what most of the others depend on.
    targets = [_runtime.DRIVER_SONAME, *([library] if library else []), *sonames]
    answer = _probe.load(targets, environ=environ, deadline=deadline)
    driver, *trials = answer.trials
    torchs, problem = None, None
    if library:
        trial = trials.pop(0)
        torchs = _judge.runtime_of(trial)
        if torchs is None:
            report = _judge.of_load(library, answer, trial, timeout=deadline.timeout)
            problem = report.message
    runtimes = [_judge.runtime_of(trial) for trial in trials]
    return _Seen(
        torchs=torchs,
        torch_problem=problem,
        by_name=tuple(runtime for runtime in runtimes if runtime),
        driver=driver.driver or Driver(problem="it could not be asked for"),
    )


def _as_installed(runtime: Runtime | None, installed: Sequence[Runtime]) -> Runtime | None:
    """Name torch's libcudart as it is found on disk: its path by torch's RPATH is full of `..`."""
    for other in installed if runtime else ():
        if runtime and _judge.same_file(other.path, runtime.path):
            return replace(other, version=runtime.version, origin=Origin.TORCH)
    return replace(runtime, origin=Origin.TORCH) if runtime else None


def try_all(
    facts: _decide.Facts, *, environ: Mapping[str, str], deadline: _probe.Deadline
) -> tuple[LoadReport, ...]:
    """Load every usable candidate, each in a process of its own."""
    return tuple(
        _check.load(os.fspath(candidate.path), environ=environ, deadline=deadline)
        for candidate in facts.candidates
        if not candidate.problem
    )
