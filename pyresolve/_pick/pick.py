"""pick(): gather, decide, plan, verify."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _overrides
from .._check import check
from .._disk import cuda
from .._document import document
from .._errors import NotLoadableError, PyresolveError
from .._imports import importing
from .._model import LoadReport, Pin, Status, Verdict
from .._process import helper, interpreter
from . import gather, launch
from .decide import decide
from .launch import Rehearsal
from .resolver import Ask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._model import Candidate, Driver, Evidence, Runtime, Source
    from .facts import Facts
    from .launch import Launch

_AnyEnum = TypeVar("_AnyEnum", bound=Enum)


class Verify(str, Enum):
    """What to do about a build that does not work in the final environment."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """All that is known before a build is chosen.

    `rehearsal` was made while the loader was asked, None if there was none or its time was up.
    """

    facts: Facts
    rehearsal: Rehearsal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The build to preload, why it was chosen, and whether it works.

    `verdict` and `report` are those of the environment that `env()` makes of the one that was
    given to pick(), rehearsed as a whole; `report` is None if nothing was verified. `runtime` is
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
    _facts: Facts = field(repr=False, compare=False)
    _candidate: Candidate = field(repr=False, compare=False)
    _launch: Launch | None = field(repr=False, compare=False)
    _verify: Verify = field(repr=False, compare=False)
    _timeout: float = field(repr=False, compare=False)
    _host: tuple[str, str] = field(repr=False, compare=False)

    def __fspath__(self) -> str:
        """Return the path."""
        return os.fspath(self.path)

    def __str__(self) -> str:
        """Return the path."""
        return os.fspath(self.path)

    @property
    def facts(self) -> Facts:
        """What it was chosen from; for pyresolve's own commands."""
        return self._facts

    def env(self, environ: Mapping[str, str] | None = None, *, pin: str = "auto") -> dict[str, str]:
        """Return the variables that must change so that workers start with the hook.

        `environ` is the environment they would start with, default os.environ, which is never
        written. `pin` says how torch's own libcudart is put where the hook finds it: "auto" (the
        narrowest way that works), "library_path", "preload" or "none". The result is meant for one
        start of one program: applied again it is empty. On another host than pick() ran on it
        warns (RuntimeWarning): what was found there says nothing about here.

        Raises UnrepresentablePathError for a path that the variables cannot hold, NotLoadableError
        if pick() would, ValueError for a pin that means nothing.
        """
        if (here := _host()) != self._host:
            warnings.warn(
                f"this choice was made on {self._host[0]} and is used on {here[0]}, where"
                " packages, CUDA and driver may be others: call pick() there",
                RuntimeWarning,
                stacklevel=2,
            )
        base = dict(os.environ if environ is None else environ)
        how = _option(Pin, pin, "pin")
        same = base == self._facts.environ
        if self._launch and how is Pin.AUTO and same:
            return dict(self._launch.change)
        deadline = helper.Deadline(_overrides.timeout(base, self._timeout))
        seen = Look(facts=self._facts)
        if not same:
            facts = gather.moved(self._facts, base)
            seen = _ask(facts, _expected(facts, self._candidate, how), deadline)
        launched = _launched(seen, self._candidate, how, deadline)
        if _demanded(launched.report, seen.facts.driver, self._verify):
            raise NotLoadableError(launched.report.message, report=launched.report, choice=self)
        return dict(launched.change)

    def explain(self) -> str:
        """Return what was found and why this build was chosen, for people."""
        major = "unknown" if self.cuda_major is None else self.cuda_major
        lines = [f"{self.path}", f"  CUDA {major}, from {self.source.value}"]
        for evidence in self.evidence:
            mark = "*" if evidence.decided else " "
            lines.append(f"  {mark} {evidence.source.value}: {evidence.text}")
        message = self.report.message if self.report else "not verified"
        lines.append(f"  {self.verdict.name}: {message}")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data; the keys are stable (docs/json.md)."""
        change = dict(self._launch.change) if self._launch else None
        return {**document(self), "env": change}


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

    `python` is the interpreter of the workers if it is not this one: it is asked once for its
    import path. `environ` is the environment that they start with, default os.environ, which is
    never written. `cuda` sets the major (12, "12.8", "cu12"). `resolver` says when to ask the
    package's own resolver: "auto" (if that costs and loads nothing), "always", "never". `verify`
    says what to do if the build does not work in its final environment: "auto" raises if this host
    has a driver and so is like the workers, and warns if it has none; "always" raises; "never" does
    not look. `timeout` in seconds holds for all of it.

    Nothing is imported or loaded into this process, except what `resolver` allows.

    Raises NoVariantError, NotCudaError, NotLoadableError, ResolverError, OverrideError,
    InterpreterError, UnrepresentablePathError, ProbeError (all of them PyresolveError), and
    ValueError for an option that means nothing.
    """
    checking = _option(Verify, verify, "verify")
    seen, deadline = look(
        stem,
        package=package,
        python=python,
        environ=environ,
        cuda=cuda,
        resolver=resolver,
        rehearse=checking is not Verify.NEVER,
        timeout=timeout,
    )
    return choose(seen, verify=checking, deadline=deadline, timeout=timeout)


def look(
    stem: str,
    *,
    package: str,
    python: str | os.PathLike[str] | None = None,
    environ: Mapping[str, str] | None = None,
    cuda: int | str | None = None,
    resolver: str = "auto",
    rehearse: bool = True,
    complete: bool = False,
    timeout: float = 10.0,
) -> tuple[Look, helper.Deadline]:
    """Gather all facts, with the options of pick(), and the deadline that began with it.

    In the same start of the helper, what will most likely be chosen is rehearsed. `complete` has
    all runtimes asked for, not only those that the choice depends on.
    """
    base = dict(os.environ if environ is None else environ)
    asking = _option(Ask, resolver, "resolver")
    deadline = helper.Deadline(_overrides.timeout(base, timeout))
    if python is not None and asking is Ask.AUTO:
        asking = Ask.NEVER  # what is imported here says nothing about the workers
    if python is None:
        interpreter.refuse_own()
    facts = gather.read(
        stem,
        package,
        cuda_version=cuda,
        asking=asking,
        site=interpreter.site_of(python, environ=base, deadline=deadline),
        environ=base,
    )
    expected = _expected(facts) if rehearse else None
    return _ask(facts, expected, deadline, complete=complete), deadline


def choose(seen: Look, *, verify: Verify, deadline: helper.Deadline, timeout: float) -> Choice:
    """Decide, then verify what was decided."""
    facts = seen.facts
    decision = decide(facts)
    choice = Choice(
        path=decision.candidate.path,
        cuda_major=decision.candidate.major,
        source=decision.source,
        verdict=Verdict.UNKNOWN,
        report=None,
        runtime=facts.torch_runtime,
        driver=facts.driver,
        evidence=decision.evidence,
        warnings=decision.warnings,
        _facts=facts,
        _candidate=decision.candidate,
        _launch=None,
        _verify=verify,
        _timeout=timeout,
        _host=_host(),
    )
    if verify is Verify.NEVER:
        return replace(choice, warnings=(*choice.warnings, *_host_warnings(facts, None)))
    return _verified(choice, seen, deadline)


def _expected(
    facts: Facts, candidate: Candidate | None = None, pin: Pin = Pin.AUTO
) -> tuple[str, dict[str, str]] | None:
    """Return the hook and the change that will most likely be chosen, from files alone."""
    likely = gather.expected(facts)
    try:
        candidate = candidate or decide(likely).candidate
        way = launch.plan(likely, candidate, pin).ways[0]
    except PyresolveError:
        return None  # if that stays so, it is raised after the loader was asked
    return os.fspath(candidate.path), launch.rehearsed(way, facts)


def _ask(
    facts: Facts,
    expected: tuple[str, dict[str, str]] | None,
    deadline: helper.Deadline,
    *,
    complete: bool = False,
) -> Look:
    if expected is None:
        return Look(facts=gather.ask(facts, deadline, complete=complete)[0])
    hook, change = expected
    facts, answer = gather.ask(facts, deadline, hook=hook, change=change, complete=complete)
    report = check.of_rehearsal(
        hook,
        answer,
        environ={**facts.environ, **change},
        timeout=deadline.timeout,
        next_library=facts.torch_library,
    )
    if report.status is Status.TIMED_OUT:
        return Look(facts=facts)  # it had a part of the time only
    return Look(facts=facts, rehearsal=Rehearsal(hook=hook, change=change, report=report))


def _launched(seen: Look, candidate: Candidate, pin: Pin, deadline: helper.Deadline) -> Launch:
    """Plan and verify, and explain a failure that can be explained."""
    facts = seen.facts
    launched = launch.find(facts, candidate, pin, deadline=deadline, known=seen.rehearsal)
    if launched.report.status not in check.EXPLAINED or facts.site is None:
        return launched
    with importing:
        from .._check.explain import Circumstances, explain

    final = {**facts.environ, **launched.change}
    where = Circumstances(environ=final, site=facts.site, deadline=deadline)
    report = explain(launched.report, where)
    return replace(launched, report=report)


def _verified(choice: Choice, seen: Look, deadline: helper.Deadline) -> Choice:
    facts = seen.facts
    launched = _launched(seen, choice._candidate, Pin.AUTO, deadline)
    report = launched.report
    driver = report.driver if report.driver.present else facts.driver
    notes = [*choice.warnings, *_host_warnings(facts, report), *launched.notes]
    failed = _demanded(report, driver, choice._verify)
    if report.verdict is Verdict.FAIL and not failed:
        notes.append(
            f"{report.message}; the loader finds no working driver here, the workers may differ"
        )
    runtime = choice.runtime
    if report.runtime:
        known = [runtime, *facts.installed] if runtime else facts.installed
        runtime = cuda.as_installed(report.runtime, known)
    choice = replace(
        choice,
        verdict=report.verdict,
        report=report,
        runtime=runtime,
        driver=driver,
        warnings=tuple(dict.fromkeys(notes)),
        _launch=launched,
    )
    if failed:
        raise NotLoadableError(report.message, report=report, choice=choice)
    return choice


def _demanded(report: LoadReport, driver: Driver, verify: Verify) -> bool:
    """Tell whether a failure is an error here."""
    # If nothing starts at all the driver could not be asked for, and the workers are no better.
    like_workers = driver.present or report.status is Status.BROKEN_ENVIRONMENT
    demanded = verify is Verify.ALWAYS or (verify is Verify.AUTO and like_workers)
    return report.verdict is Verdict.FAIL and demanded


def _option(kind: type[_AnyEnum], value: str, name: str) -> _AnyEnum:
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(repr(item.value) for item in kind)
        raise ValueError(f"{name} is {value!r}: give one of {known}") from None


def _host() -> tuple[str, str]:
    """Return what identifies this running system: its name, and the id of its boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        boot = ""
    return os.uname().nodename, boot


def _host_warnings(facts: Facts, report: LoadReport | None) -> list[str]:
    driver, warnings = facts.driver, [*cuda.hidden(facts.environ)]
    works = report is not None and report.verdict is not Verdict.FAIL  # torch's library as well
    if facts.torch_problem and not works:
        warnings.append(f"torch's own library does not load here: {facts.torch_problem}")
    if driver.path is None:
        warnings += _container_warnings(facts.environ)
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
            " likely reason why libcuda.so.1 is not found; start it with NVIDIA_VISIBLE_DEVICES=all"
            " where it should have GPUs"
        ]
    if capabilities and not {"compute", "all"} & set(capabilities.lower().split(",")):
        return [
            f"NVIDIA_DRIVER_CAPABILITIES={capabilities} keeps libcuda.so.1 out of this container:"
            " start it with NVIDIA_DRIVER_CAPABILITIES=compute,utility"
        ]
    return []
