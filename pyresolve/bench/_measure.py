"""The whole benchmark, phase by phase: sampling, Ctrl-C, and what is measured.

The methods are sampled in turns. What makes one slow for a while (another job, the CPU's clock)
makes the others slow too, so it cancels out in their ratios.
"""

from __future__ import annotations

import os
import signal
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from ._caller import Caller
from ._methods import METHODS, Unmeasurable

if TYPE_CHECKING:
    from ._machine import Machine, Target

_Key = TypeVar("_Key")

Progress = Callable[[str, int, int], None]
"""Called with what is measured, how many rounds are done, and of how many."""

_IN_TURNS = (  # what is measured for each size of the caller, and its name for the progress
    (("floor", "check", "ldd", "python_child"), "resident memory"),
    (("fork", "fork_exit"), "fork"),
)
_CHECKS_OF_A_THREAD = 4  # in a round


class Interrupted(Exception):  # noqa: N818  (the user asked for it)
    """The user wants no more samples."""


class Interrupt:
    """Delays a Ctrl-C until the current sample has ended; the second one acts as usual.

    So no sample is cut off, and no child is left unreaped.
    """

    def __init__(self) -> None:
        self._requested = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _request(self, _number: int, _frame: object) -> None:
        self._requested = True
        signal.signal(signal.SIGINT, self._before)

    def check(self) -> None:
        """Raise Interrupted if there was a Ctrl-C."""
        if self._requested:
            raise Interrupted


@dataclass(slots=True, kw_only=True)
class Series:
    """The samples of one method in seconds, in the order in which they were taken.

    `problem` says why there are none, or no more.
    """

    warmups: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    problem: str | None = None

    @property
    def median(self) -> float | None:
        """The median, None without samples."""
        return statistics.median(self.samples) if self.samples else None


def interleaved(
    sides: Mapping[_Key, Callable[[], float]],
    *,
    runs: int,
    warmups: int,
    budget: float | None,
    check_interrupt: Callable[[], None] = lambda: None,
    progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> dict[_Key, Series]:
    """Take `runs` samples of each side, one of each in a round, after `warmups` that do not count.

    Every second round goes backwards, so that no side always follows the same other one. With a
    `budget` in seconds a slow side takes part in as many rounds as that allows, evenly spread, and
    at least ten. If `check_interrupt` raises Interrupted, the samples so far are returned.
    """
    order = list(sides)
    taken = {name: Series() for name in order}
    with suppress(Interrupted):
        for turn in range(-warmups, runs):
            for name in reversed(order) if turn % 2 else order:
                series = taken[name]
                if series.problem or (turn >= 0 and not _takes_part(series, turn, runs, budget)):
                    continue
                check_interrupt()
                try:
                    (series.warmups if turn < 0 else series.samples).append(sides[name]())
                except Unmeasurable as reason:
                    series.problem = str(reason)
            progress(max(0, turn + 1), runs)
    return taken


def _takes_part(series: Series, turn: int, runs: int, budget: float | None) -> bool:
    affordable = runs
    if budget is not None and series.warmups:
        affordable = min(runs, max(10, int(budget / min(series.warmups))))
    return (turn + 1) * affordable // runs > turn * affordable // runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much is measured. `budget`: the seconds that a slow method may take in a phase."""

    runs: int
    growth_runs: int
    thread_rounds: int
    warmups: int
    budget: float | None
    resident: tuple[int, ...] = ()
    threads: tuple[int, ...] = ()


QUICK = Plan(runs=40, growth_runs=10, thread_rounds=5, warmups=2, budget=1.0)
FULL = Plan(runs=200, growth_runs=50, thread_rounds=25, warmups=5, budget=8.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threads:
    """What `count` threads of one process see that check at the same time.

    `series` has every call, `rounds` the seconds that each round of calls took.
    """

    count: int
    series: Series
    rounds: list[float]

    @property
    def calls(self) -> int:
        """How many calls a round has."""
        return self.count * _CHECKS_OF_A_THREAD

    @property
    def per_second(self) -> float | None:
        """How many checks all threads made in a second, by the median round."""
        return self.calls / statistics.median(self.rounds) if self.rounds else None


@dataclass(slots=True, kw_only=True)
class Growth:
    """The methods in a caller that was told to hold `held` bytes and has `resident` in all."""

    held: int
    resident: int
    series: dict[str, Series] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Result:
    """All that was measured; the lists are empty if that phase failed or was not reached."""

    machine: Machine
    target: Target
    methods: dict[str, Series] = field(default_factory=dict)
    growth: list[Growth] = field(default_factory=list)
    threads: list[Threads] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    complete: bool = False


def measure(
    plan: Plan, *, machine: Machine, target: Target, interrupt: Interrupt, progress: Progress
) -> Result:
    """Measure all that the plan says. An interrupt ends it early and keeps what there is."""
    result = Result(machine=machine, target=target)
    phases = _Phases(plan, result, interrupt, progress)
    with suppress(Interrupted):
        for phase, what in (
            (phases.methods, "the methods"),
            (phases.growth, "the growth with resident memory"),
            (phases.threads, "threads that check at the same time"),
        ):
            try:
                with ExitStack() as stack:
                    phase(stack)
            except Unmeasurable as reason:
                result.problems.append(f"not measured: {what}: {reason}")
            interrupt.check()
        result.complete = True
    return result


class _Phases:
    """Each phase fills its part of the result, and leaves its callers to a stack."""

    def __init__(
        self, plan: Plan, result: Result, interrupt: Interrupt, progress: Progress
    ) -> None:
        self._plan, self._result = plan, result
        self._interrupt, self._progress = interrupt, progress
        self._caller = partial(Caller, result.target.path, check_interrupt=interrupt.check)

    def methods(self, stack: ExitStack) -> None:
        environ = self._result.target.environ
        loading = stack.enter_context(self._caller(environ=environ))
        forking = stack.enter_context(self._caller(environ=environ))
        launching = stack.enter_context(self._caller(environ=os.environ))
        sides = {}
        for name, method in METHODS.items():
            caller = forking if method.forks else loading if method.loads else launching
            sides[name] = caller.side(name)
        self._result.methods = self._take(sides, self._plan.runs, "methods")

    def growth(self, stack: ExitStack) -> None:
        plan, growth = self._plan, self._result.growth
        callers = []
        for held in plan.resident:
            self._progress("resident memory", 0, plan.growth_runs)
            caller = self._caller(environ=self._result.target.environ, extra=held)
            callers.append(stack.enter_context(caller))
            growth.append(Growth(held=held, resident=caller.resident))
        for names, what in _IN_TURNS:
            sides = {
                (at, name): caller.side(name) for at, caller in enumerate(callers) for name in names
            }
            for (at, name), series in self._take(sides, plan.growth_runs, what).items():
                growth[at].series[name] = series

    def threads(self, stack: ExitStack) -> None:
        plan = self._plan
        caller = stack.enter_context(self._caller(environ=self._result.target.environ))
        calls: dict[int, list[list[float]]] = {count: [] for count in plan.threads}

        def one_round(count: int) -> float:
            answer = caller.ask(threads=count, each=_CHECKS_OF_A_THREAD)
            calls[count].append(answer["taken"])
            return float(answer["wall"])

        sides = {count: partial(one_round, count) for count in plan.threads}
        for count, rounds in self._take(sides, plan.thread_rounds, "threads").items():
            warm = len(rounds.warmups)
            series = Series(
                warmups=list(chain(*calls[count][:warm])),
                samples=list(chain(*calls[count][warm:])),
                problem=rounds.problem,
            )
            self._result.threads.append(Threads(count=count, rounds=rounds.samples, series=series))

    def _take(
        self, sides: Mapping[_Key, Callable[[], float]], runs: int, what: str
    ) -> dict[_Key, Series]:
        return interleaved(
            sides,
            runs=runs,
            warmups=self._plan.warmups,
            budget=self._plan.budget,
            check_interrupt=self._interrupt.check,
            progress=lambda done, of: self._progress(what, done, of),
        )
