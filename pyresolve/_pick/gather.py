"""Gather the facts: first from files alone, then from the loader, in one start of the helper."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from .. import _overrides
from .._check import report as reports
from .._disk import builds, cuda, driver as drivers, torch as torches
from .._disk.files import exists
from .._environ import LIBRARY_PATH, parse_library_path
from .._errors import OverrideError
from .._model import Mode, Origin, Runtime, Verdict
from .._names import DRIVER_SONAME
from .._process import helper
from . import resolver
from .facts import Facts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .._disk.site import Site
    from .._model import Candidate, Torch


def read(
    stem: str,
    package: str,
    *,
    cuda_version: int | str | None,
    asking: resolver.Ask,
    site: Site,
    environ: Mapping[str, str],
) -> Facts:
    """Return what the files of `site` and the variables of `environ` say. Raises as pick() does."""
    if not stem or "/" in stem:
        raise ValueError(f"stem is {stem!r}: give the file name of the hook without its suffix")
    if not re.fullmatch(r"\w[\w-]*", package):
        raise ValueError(f"package is {package!r}: give the name under which it is imported")
    answer = resolver.ask(package, stem, asking)
    distribution = next(site.distributions(re.escape(package.replace("-", "_").lower())), None)
    place = next(site.packages(package), None)
    torch = torches.find(site)
    installed = cuda.installed(site, environ)
    return Facts(
        package=package,
        stem=stem,
        searched=tuple(builds.places(site, package)),
        package_found=distribution is not None or place is not None,
        package_version=distribution.version if distribution else None,
        package_place=place.parent if place else None,
        candidates=builds.candidates(site, package, stem),
        override=_overrides.major(environ, cuda_version),
        forced=_forced(environ),
        resolved=builds.describe(answer) if answer else None,
        torch=torch,
        torch_own=_torch_own(torch, installed),
        installed=installed,
        site=site,
        environ=environ,
    )


def moved(facts: Facts, environ: Mapping[str, str]) -> Facts:
    """Return the facts of files for another environment."""
    assert facts.site is not None, "facts that were read have a site"
    return replace(facts, environ=environ, installed=cuda.installed(facts.site, environ))


def expected(facts: Facts) -> Facts:
    """Return what asking will most likely find, from the facts of files.

    torch is taken to map its own libcudart, and the loader to find what LD_LIBRARY_PATH leads to.
    """
    runtime = facts.torch_own
    if runtime is None:
        return facts
    return replace(
        facts,
        torch_runtime=runtime,
        loader_runtimes=tuple(_in_library_path(runtime, facts)),
    )


def _torch_own(torch: Torch | None, installed: Sequence[Runtime]) -> Runtime | None:
    path = torches.runtime_by_rpath(torch.library) if torch and torch.library else None
    if path is None or torch is None or torch.library_major is None:
        return None
    runtime = Runtime(path=path.resolve(), major=torch.library_major, origin=Origin.TORCH)
    return replace(cuda.as_installed(runtime, installed), origin=Origin.TORCH)


def _in_library_path(runtime: Runtime, facts: Facts) -> list[Runtime]:
    for element in parse_library_path(facts.environ.get(LIBRARY_PATH)):
        path = Path(element, runtime.path.name)
        if exists(path):
            found = Runtime(path=path, major=runtime.major, origin=Origin.LOADER)
            return [replace(cuda.as_installed(found, facts.installed), origin=Origin.LOADER)]
    return []


def ask(
    facts: Facts,
    deadline: helper.Deadline,
    *,
    hook: str | None = None,
    change: Mapping[str, str] | None = None,
    complete: bool = False,
) -> tuple[Facts, helper.Answer]:
    """Complete the facts of files, and rehearse `hook` with `change` in the same start.

    The runtimes of other majors than torch's are asked for only if `complete`. If the loader finds
    no driver, it is asked again with the directories where a driver is mounted, one after another.
    """
    found, answer = _ask(
        facts, facts.environ, deadline, hook=hook, change=change, complete=complete
    )
    if found.driver.path is None:
        for directory, wider in drivers.with_directories(facts.environ):
            again, _ = _ask(facts, wider, deadline, complete=complete)
            if again.driver.present:
                return replace(again, driver_directory=directory), answer
    return found, answer


def _ask(
    facts: Facts,
    environ: Mapping[str, str],
    deadline: helper.Deadline,
    *,
    hook: str | None = None,
    change: Mapping[str, str] | None = None,
    complete: bool,
) -> tuple[Facts, helper.Answer]:
    """Ask which libcudart torch maps, which ones the loader finds, and for the driver.

    It has half of the time that is left, so that one library that hangs leaves some.
    """
    half = deadline.half()
    # libc10_cuda.so maps the libcudart that torch will use: its RPATH comes before the environment.
    library = facts.torch_library
    sonames = _sonames(facts, complete=complete)
    candidates = [os.fspath(c.path) for c in facts.candidates if not c.problem]
    if not _depends_on_trials(facts):
        candidates = []
    targets = [DRIVER_SONAME, *([library] if library else []), *sonames, *candidates]
    answer = helper.attempt(
        targets,
        hook=hook,
        next_library=library,
        change=change,
        environ=environ,
        deadline=half,
    )
    trials = iter(answer.trials)
    driver = reports.driver_of(next(trials))
    if library:
        facts = _with_torch(facts, library, answer, next(trials), half.timeout)
    runtimes = [reports.runtime_of(next(trials)) for _ in sonames]
    return replace(
        facts,
        loader_runtimes=tuple(
            replace(cuda.as_installed(runtime, facts.installed), origin=Origin.LOADER)
            for runtime in runtimes
            if runtime
        ),
        driver=driver,
        driver_directory=None,
        trials=tuple(
            reports.of_trial(path, Mode.DLOPEN, answer, next(trials), timeout=half.timeout)
            for path in candidates
        ),
        complete=complete or _torch_major(facts) is None,
    ), answer


def _with_torch(
    facts: Facts, library: str, answer: helper.Answer, trial: helper.Trial, timeout: float
) -> Facts:
    report = reports.of_trial(library, Mode.DLOPEN, answer, trial, timeout=timeout)
    if report.verdict is Verdict.FAIL:
        return replace(facts, torch_runtime=None, torch_problem=report.message)
    runtime = report.runtime and cuda.as_installed(report.runtime, facts.installed)
    # A torch with a runtime linked into it statically loads and maps none.
    runtime = runtime and replace(runtime, origin=Origin.TORCH)
    return replace(facts, torch_runtime=runtime, torch_problem=None)


def _torch_major(facts: Facts) -> int | None:
    return facts.torch.library_major if facts.torch else None


def _sonames(facts: Facts, *, complete: bool) -> Sequence[str]:
    """Return the libcudart names that the decision or the plan can still depend on."""
    sonames = {(c.runtime, c.major) for c in facts.candidates if c.runtime}
    sonames |= {(r.path.name, r.major) for r in facts.installed}
    wanted = _torch_major(facts)
    if facts.override or facts.forced or facts.resolved or wanted is None or complete:
        return sorted({name for name, _ in sonames})
    return sorted({name for name, major in sonames if major == wanted})


def _depends_on_trials(facts: Facts) -> bool:
    """Tell whether no source names a major but, maybe, a libcudart in the loader's cache."""
    torch = facts.torch
    named = facts.override or facts.forced or facts.resolved or facts.installed
    known = torch is not None and (torch.library_major is not None or torch.major is not None)
    return not named and not known


def _forced(environ: Mapping[str, str]) -> Candidate | None:
    path = _overrides.preload(environ)
    if path is None:
        return None
    candidate = builds.describe(Path(path))
    if candidate.problem:
        raise OverrideError(
            f"{_overrides.PRELOAD}={path} cannot be preloaded: {candidate.problem}; correct or"
            " unset it",
            variable=_overrides.PRELOAD,
            value=path,
        )
    return candidate
