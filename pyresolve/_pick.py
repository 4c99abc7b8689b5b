"""pick(): gather, decide, verify."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from . import (
    _causes,
    _check,
    _decide,
    _explain,
    _gather,
    _launch,
    _overrides,
    _probe,
    _resolver,
    _sites,
    _survey,
    _variants,
)
from ._environ import PRELOAD, parse_preload
from ._errors import NotLoadableError
from ._runtime import DRIVER_SONAME
from ._types import LoadReport, Pin, Status, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._types import Candidate, Driver, Evidence, Runtime, Source

_AnyEnum = TypeVar("_AnyEnum", bound=Enum)


class Verify(str, Enum):
    """What to do about a build that does not work in the final environment."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What `Choice.env` needs to work out another environment than `environ`."""

    facts: _decide.Facts
    candidate: Candidate
    site: _sites.Site
    verify: Verify
    timeout: float
    environ: dict[str, str]
    host: tuple[str, str]
    launch: _launch.Launch | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The build to preload, why it was chosen, and whether it works.

    `verdict` and `report` are those of the environment that `env()` makes of the one that was
    given to pick(), rehearsed as a whole; `report` is None where nothing was verified. `runtime` is
    the libcudart that the workers will use, as far as that is known here.
    """

    path: Path
    cuda_major: int | None
    source: Source
    verdict: Verdict
    report: LoadReport | None
    runtime: Runtime | None
    driver: Driver
    evidence: tuple[Evidence, ...]
    warnings: tuple[str, ...]
    _context: _Context = field(repr=False, compare=False)

    def __fspath__(self) -> str:
        """Return the path."""
        return os.fspath(self.path)

    def __str__(self) -> str:
        """Return the path."""
        return os.fspath(self.path)

    def env(self, environ: Mapping[str, str] | None = None, *, pin: str = "auto") -> dict[str, str]:
        """Return the variables that must change so that workers start with the hook.

        `environ` is the environment they would start with, default os.environ, which is never
        written. `pin` says how torch's own libcudart is put where the hook finds it: "auto" (the
        narrowest way that works), "library_path", "preload" or "none". The result is meant for one
        start of one program: applied again it is empty. On another host than pick() ran on it
        warns (RuntimeWarning): what was found there says nothing about here.

        Raises UnrepresentablePathError for a path that the variables cannot hold, NotLoadableError
        where pick() would, ValueError for a pin that means nothing.
        """
        context = self._context
        if (here := _host()) != context.host:
            warnings.warn(
                f"this choice was made on {context.host[0]} and is used on {here[0]}, where"
                " packages, CUDA and driver may be others: call pick() there",
                RuntimeWarning,
                stacklevel=2,
            )
        base = dict(os.environ if environ is None else environ)
        how = _option(Pin, pin, "pin")
        if context.launch and how is Pin.AUTO and base == context.environ:
            return dict(context.launch.change)
        deadline = _probe.Deadline(_overrides.timeout(base, context.timeout))
        facts = context.facts
        if base != context.environ:
            facts = _gather.look(facts, site=context.site, environ=base, deadline=deadline)
            context = replace(context, facts=facts, environ=base)
        launch = _rehearsed(context, how, deadline)
        _enforce(launch.report, facts.driver, context.verify)
        return dict(launch.change)

    def explain(self) -> str:
        """Return what was found and why this build was chosen, for people."""
        return _explain.choice_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable."""
        return _explain.choice_dict(self)


def pick(
    stem: str = "torch_memory_saver_hook_mode_preload",
    *,
    package: str = "torch_memory_saver",
    python: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    cuda: int | str | None = None,
    resolver: str = "auto",
    verify: str = "auto",
    timeout: float = 10.0,
) -> Choice:
    """Return the build of `stem` that links the CUDA runtime which the workers' torch will use.

    `python` is the interpreter of the workers where it is not this one: it is asked once for its
    import path. `environ` is the environment that they start with, default os.environ, which is
    never written. `cuda` lays the major down (12, "12.8", "cu12"). `resolver` says when to ask the
    package's own resolver: "auto" (where that costs and loads nothing), "always", "never". `verify`
    says what to do where the build does not work in its final environment: "auto" raises where this
    host has a driver and so is like the workers, and warns where it has none; "always" raises;
    "never" does not look. `timeout` in seconds holds for all of it.

    Nothing is imported or loaded into this process, but for what `resolver` allows.

    Raises NoVariantError, NotCudaError, NotLoadableError, ResolverError, OverrideError,
    InterpreterError, UnrepresentablePathError, ProbeError (all of them PyresolveError), and
    ValueError for an option that means nothing.
    """
    base = dict(os.environ if environ is None else environ)
    asking = _option(_resolver.Ask, resolver, "resolver")
    checking = _option(Verify, verify, "verify")
    deadline = _probe.Deadline(_overrides.timeout(base, timeout))
    site = _survey.site(python, environ=base, deadline=deadline)
    if python is not None and asking is _resolver.Ask.AUTO:
        asking = _resolver.Ask.NEVER  # what is imported here says nothing about the workers

    facts = _gather.gather(
        stem, package, cuda=cuda, asking=asking, site=site, environ=base, deadline=deadline
    )
    decision = _decide.decide(facts)
    if decision is None:
        facts = replace(facts, trials=_gather.try_all(facts, environ=base, deadline=deadline))
        decision = _decide.decide(facts)
    assert decision is not None, "with trials there is always a decision"

    context = _Context(
        facts=facts,
        candidate=decision.candidate,
        site=site,
        verify=checking,
        timeout=timeout,
        environ=base,
        host=_host(),
        launch=None,
    )
    choice = Choice(
        path=decision.candidate.path,
        cuda_major=decision.candidate.major,
        source=decision.source,
        verdict=Verdict.UNKNOWN,
        report=None,
        runtime=facts.torch_runtime,
        driver=facts.driver,
        evidence=decision.evidence,
        warnings=(*decision.warnings, *_host_warnings(facts, base)),
        _context=context,
    )
    return choice if checking is Verify.NEVER else _verified(choice, deadline)


def _host() -> tuple[str, str]:
    """Return what tells this running system from others: its name, and the id of its boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = ""
    return os.uname().nodename, boot


def _verified(choice: Choice, deadline: _probe.Deadline) -> Choice:
    context = choice._context
    facts = context.facts
    launch = _rehearsed(context, Pin.AUTO, deadline)
    report = launch.report
    driver = report.driver if report.driver.present else facts.driver
    _enforce(report, driver, context.verify)
    warnings = [*choice.warnings, *launch.notes]
    if report.verdict is not Verdict.FAIL and report.runtime:
        # What torch's library lacks alone, the pin brings.
        lacks = f"needs {report.runtime.path.name}, which the loader does not find"
        warnings = [warning for warning in warnings if lacks not in warning]
    if report.verdict is Verdict.FAIL:
        warnings.append(
            f"{report.message}; this host has no working driver, the workers may differ"
        )
    runtime = choice.runtime
    if report.runtime:
        known = [runtime, *facts.installed] if runtime else facts.installed
        runtime = _gather.as_installed(report.runtime, known)
    return replace(
        choice,
        verdict=report.verdict,
        report=report,
        runtime=runtime,
        driver=driver,
        warnings=tuple(dict.fromkeys(warnings)),
        _context=replace(context, launch=launch),
    )


def _option(kind: type[_AnyEnum], value: str, name: str) -> _AnyEnum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(item.value) for item in kind)
        raise ValueError(f"{name} is {value!r}: give one of {known}") from None


def _hook(context: _Context) -> _launch.Hook:
    facts, path, major = context.facts, context.candidate.path, context.candidate.major
    torchs = facts.torch_runtime
    return _launch.Hook(
        path=os.fspath(path),
        major=major,
        package=facts.package,
        version=facts.package_version,
        same_stem=_variants.same_stem(facts.stem),
        torchs=torchs if torchs and torchs.major == major else None,
        loaders=next((r for r in facts.loader_runtimes if r.major == major), None),
        others=tuple(runtime for runtime in facts.installed if runtime.major == major),
        has_search_path=context.candidate.has_search_path,
        driver_directory=facts.driver_directory,
        driver_absent=_is_absent(facts.driver) and not _brings_driver(context.environ),
    )


def _is_absent(driver: Driver) -> bool:
    """Tell a driver that is not there, or skipped, from one that breaks what needs it.

    The loader names the file by its path where it stops at it, by its SONAME where it went on.
    """
    return driver.path is None and _causes.of_words(driver.problem or "").file == DRIVER_SONAME


def _brings_driver(environ: Mapping[str, str]) -> bool:
    preloads = parse_preload(environ.get(PRELOAD))
    return any(os.path.basename(path).startswith("libcuda.so") for path in preloads)  # noqa: PTH119


def _rehearsed(context: _Context, pin: Pin, deadline: _probe.Deadline) -> _launch.Launch:
    environ = context.environ
    launch = _launch.plan(_hook(context), environ=environ, pin=pin, deadline=deadline)
    if launch.report.status not in _check.EXPLAINED:
        return launch
    final = {**environ, **launch.change}
    report = _check.explain(launch.report, environ=final, site=context.site, deadline=deadline)
    return replace(launch, report=report)


def _enforce(report: LoadReport, driver: Driver, verify: Verify) -> None:
    # Where nothing starts at all the driver could not be asked for, and the workers are no better.
    like_workers = driver.present or report.status is Status.BROKEN_ENVIRONMENT
    demanded = verify is Verify.ALWAYS or (verify is Verify.AUTO and like_workers)
    if report.verdict is Verdict.FAIL and demanded:
        raise NotLoadableError(report.message, report=report)


def _host_warnings(facts: _decide.Facts, environ: Mapping[str, str]) -> list[str]:
    driver, warnings = facts.driver, []
    if facts.torch_problem:
        warnings.append(f"torch's own library does not load here: {facts.torch_problem}")
    if driver.path is None:
        warnings += _container_warnings(environ)
    elif "compat" in (*driver.path.parts, *driver.path.resolve().parts):
        warnings.append(
            f"the driver library is {driver.path}, a forward-compatibility copy: where it is older"
            " than the host's driver, or the GPU is not supported, CUDA fails with error 803 or"
            " 804; then take its directory out of LD_LIBRARY_PATH or /etc/ld.so.conf.d"
        )
    return warnings


def _container_warnings(environ: Mapping[str, str]) -> list[str]:
    """Say which variable of the NVIDIA container runtime keeps the driver out."""
    devices = environ.get("NVIDIA_VISIBLE_DEVICES")
    capabilities = environ.get("NVIDIA_DRIVER_CAPABILITIES")
    if devices is not None and devices.strip().lower() in ("", "void", "none"):
        shown = devices.strip() or "(empty)"
        return [
            f"NVIDIA_VISIBLE_DEVICES={shown} keeps the driver out of this container: that is the"
            " likely reason why libcuda.so.1 is not here; start it with NVIDIA_VISIBLE_DEVICES=all"
            " where it should have GPUs"
        ]
    if capabilities and not {"compute", "all"} & set(capabilities.lower().split(",")):
        return [
            f"NVIDIA_DRIVER_CAPABILITIES={capabilities} keeps libcuda.so.1 out of this container:"
            " start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        ]
    return []
