"""Gather the facts that the decision rests on. The decision itself is `_decide`'s."""

from __future__ import annotations

import os
import re
from dataclasses import replace
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
from ._environ import LIBRARY_PATH, join_library_path, parse_library_path
from ._errors import OverrideError
from ._files import same_file
from ._types import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ._sites import Site
    from ._types import Candidate, LoadReport, Runtime


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
    answer = _resolver.ask(package, stem, asking)
    distribution = next(site.distributions(re.escape(package.replace("-", "_").lower())), None)
    place = next(site.packages(package), None)
    facts = _decide.Facts(
        package=package,
        stem=stem,
        searched=tuple(_variants.places(site, package)),
        package_found=distribution is not None or place is not None,
        package_version=distribution.version if distribution else None,
        package_place=place.parent if place else None,
        candidates=_variants.candidates(site, package, stem),
        override=_overrides.major(environ, cuda),
        forced=_forced(environ),
        resolved=_variants.describe(answer) if answer else None,
        torch=_torch.find(site),
    )
    return look(facts, site=site, environ=environ, deadline=deadline)


def look(
    facts: _decide.Facts, *, site: Site, environ: Mapping[str, str], deadline: _probe.Deadline
) -> _decide.Facts:
    """Return `facts` with all that depends on the environment found out for `environ`.

    Where the loader finds no driver, it is looked for in the places where it is mounted.
    """
    found = _look(facts, site, environ, deadline)
    for directory in _runtime.driver_directories() if found.driver.path is None else ():
        elements = (*parse_library_path(environ.get(LIBRARY_PATH)), str(directory))
        wider = {**environ, LIBRARY_PATH: join_library_path(elements)}
        again = _look(facts, site, wider, deadline)
        if again.driver.present:
            return replace(again, driver_directory=directory)
    return found


def _look(
    facts: _decide.Facts, site: Site, environ: Mapping[str, str], deadline: _probe.Deadline
) -> _decide.Facts:
    """Ask one process which libcudart torch maps, which the loader finds, and for the driver."""
    installed = _runtime.installed(site, environ)
    # libc10_cuda.so maps the libcudart that torch will use: its RPATH beats the environment.
    library = os.fspath(facts.torch.library) if facts.torch and facts.torch.library else None
    sonames = {c.runtime for c in facts.candidates if c.runtime} | {r.path.name for r in installed}
    targets = [_runtime.DRIVER_SONAME, *([library] if library else []), *sorted(sonames)]
    answer = _probe.load(targets, environ=environ, deadline=deadline.half())
    driver, *trials = answer.trials
    torchs, problem = None, None
    if library:
        trial = trials.pop(0)
        torchs = _judge.runtime_of(trial)
        if torchs is None:
            report = _judge.of_load(library, answer, trial, timeout=deadline.timeout / 2)
            problem = report.message
    runtimes = [_judge.runtime_of(trial) for trial in trials]
    return replace(
        facts,
        torch_runtime=replace(as_installed(torchs, installed), origin=Origin.TORCH)
        if torchs
        else None,
        torch_problem=problem,
        loader_runtimes=tuple(
            replace(as_installed(runtime, installed), origin=Origin.LOADER)
            for runtime in runtimes
            if runtime
        ),
        installed=installed,
        driver=_judge.driver_of(driver),
        driver_directory=None,
    )


def as_installed(runtime: Runtime, known: Iterable[Runtime]) -> Runtime:
    """Name a libcudart that was mapped as it is known: its path by an RPATH is full of `..`."""
    for other in known:
        if same_file(other.path, runtime.path):
            return replace(other, version=runtime.version)
    return runtime


def try_all(
    facts: _decide.Facts, *, environ: Mapping[str, str], deadline: _probe.Deadline
) -> tuple[LoadReport, ...]:
    """Load every usable candidate, each in a process of its own."""
    return tuple(
        _check.load(os.fspath(candidate.path), environ=environ, deadline=deadline)
        for candidate in facts.candidates
        if not candidate.problem
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
