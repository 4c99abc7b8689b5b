"""The whole benchmark, phase by phase. An interrupt ends it early and loses nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from . import _helper
from ._caller import Caller
from ._interrupt import Interrupt, Interrupted
from ._methods import METHODS, Unmeasurable
from ._sampling import Series, Side, interleaved

if TYPE_CHECKING:
    from ._machine import Machine
    from ._target import Target

_Key = TypeVar("_Key")

Progress = Callable[[str, int, int], None]
"""Told what is measured, how many rounds are done, and of how many."""

_SPAWNING = ("floor", "check", "ldd", "python_child")
_FORKING = ("fork", "fork_exit")
_CHECKS_OF_A_THREAD = 4  # in a round


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. `budget` bounds what a slow method gets in a phase, in seconds."""

    runs: int
    growth_runs: int
    thread_rounds: int
    warmups: int
    budget: float | None
    resident: tuple[int, ...]
    threads: tuple[int, ...]


def quick(*, resident: tuple[int, ...], threads: tuple[int, ...]) -> Plan:
    """Return the plan for a first look."""
    return Plan(
        runs=40,
        growth_runs=10,
        thread_rounds=5,
        warmups=2,
        budget=1.0,
        resident=resident,
        threads=threads,
    )


def full(*, resident: tuple[int, ...], threads: tuple[int, ...]) -> Plan:
    """Return the plan for figures to go by."""
    return Plan(
        runs=200,
        growth_runs=50,
        thread_rounds=25,
        warmups=5,
        budget=8.0,
        resident=resident,
        threads=threads,
    )


def exactly(
    runs: int, *, warmups: int, resident: tuple[int, ...], threads: tuple[int, ...]
) -> Plan:
    """Return the plan that takes as many samples of everything, however slow it is."""
    return Plan(
        runs=runs,
        growth_runs=runs,
        thread_rounds=runs,
        warmups=warmups,
        budget=None,
        resident=resident,
        threads=threads,
    )


@dataclass(slots=True, kw_only=True)
class Together:
    """What `threads` threads of one process see that check at the same time.

    `series` has every single call, `walls` what each round took as a whole, in nanoseconds; `calls`
    is how many calls a round has.
    """

    threads: int
    calls: int
    series: Series = field(default_factory=Series)
    walls: list[int] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Growth:
    """The methods as a caller sees them that holds `held` bytes, and `resident` with its own."""

    held: int
    resident: int
    series: dict[str, Series] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Result:
    """All that was measured; lists are empty where it did not come to that.

    `helper` are the resident bytes of a check's processes before they load the target.
    """

    machine: Machine
    target: Target
    plan: Plan
    methods: dict[str, Series] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    threads: list[Together] = field(default_factory=list)
    helper: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    complete: bool = False


def measure(
    plan: Plan, *, machine: Machine, target: Target, interrupt: Interrupt, progress: Progress
) -> Result:
    """Measure all that the plan says."""
    result = Result(machine=machine, target=target, plan=plan)
    try:
        for phase in (_methods, _growth, _threads, _helper_memory):
            phase(result, interrupt, progress)
            interrupt.heed()
        result.complete = True
    except Interrupted:
        pass
    return result


def _methods(result: Result, interrupt: Interrupt, progress: Progress) -> None:
    path, plan = result.target.path, result.plan
    with _phase(result, "the methods") as stack:

        def caller(environ: Mapping[str, str]) -> Caller:
            return stack.enter_context(Caller(path, environ=environ, interrupt=interrupt))

        loading, forking = caller(result.target.environ), caller(result.target.environ)
        launching = caller(os.environ)
        sides = {}
        for name, method in METHODS.items():
            one = forking if method.forks else loading if method.loads else launching
            sides[name] = one.side(name)
        result.methods = _take(sides, plan.runs, "methods", plan, interrupt, progress)


def _growth(result: Result, interrupt: Interrupt, progress: Progress) -> None:
    target, plan = result.target, result.plan
    with _phase(result, "the growth with resident memory") as stack:
        callers = []
        for held in plan.resident:
            progress("resident memory", 0, plan.growth_runs)
            caller = Caller(target.path, environ=target.environ, interrupt=interrupt, extra=held)
            callers.append(stack.enter_context(caller))
            result.growth.append(Growth(held=held, resident=caller.resident))
        for names, what in ((_SPAWNING, "resident memory"), (_FORKING, "fork")):
            sides = {
                (at, name): caller.side(name) for at, caller in enumerate(callers) for name in names
            }
            taken = _take(sides, plan.growth_runs, what, plan, interrupt, progress)
            for (at, name), series in taken.items():
                result.growth[at].series[name] = series


def _take(
    sides: Mapping[_Key, Side],
    runs: int,
    what: str,
    plan: Plan,
    interrupt: Interrupt,
    progress: Progress,
) -> dict[_Key, Series]:
    return interleaved(
        sides,
        runs=runs,
        warmups=plan.warmups,
        budget=plan.budget,
        heed=interrupt.heed,
        progress=lambda done, of: progress(what, done, of),
    )


def _threads(result: Result, interrupt: Interrupt, progress: Progress) -> None:
    target, plan = result.target, result.plan
    with _phase(result, "threads that check at the same time") as stack:
        caller = Caller(target.path, environ=target.environ, interrupt=interrupt)
        stack.enter_context(caller)
        result.threads = [
            Together(threads=count, calls=count * _CHECKS_OF_A_THREAD) for count in plan.threads
        ]
        for turn in range(-1, plan.thread_rounds):
            for one in reversed(result.threads) if turn % 2 else result.threads:
                if one.series.problem is None:
                    _round(one, caller, warmup=turn < 0)
            progress("threads", max(0, turn + 1), plan.thread_rounds)


def _round(one: Together, caller: Caller, *, warmup: bool) -> None:
    try:
        answer = caller.ask(threads=one.threads, each=_CHECKS_OF_A_THREAD)
    except Unmeasurable as reason:
        one.series.problem = str(reason)
        return
    if warmup:
        one.series.warmups += answer["taken"]
    else:
        one.series.samples += answer["taken"]
        one.walls.append(answer["wall"])


def _helper_memory(result: Result, _interrupt: Interrupt, _progress: Progress) -> None:
    with _phase(result, "the memory of the helper"):
        result.helper = _helper.resident()


@contextmanager
def _phase(result: Result, what: str) -> Iterator[ExitStack]:
    """Keep what cannot be measured as a whole from the rest."""
    with ExitStack() as stack:
        try:
            yield stack
        except Unmeasurable as reason:
            result.problems.append(f"not measured: {what}: {reason}")
