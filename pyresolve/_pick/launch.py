"""The environment that a hook needs: the ways to change it, tried as a whole until one works."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .._check import check, report as reports
from .._disk import cuda, fault, torch as torches
from .._disk.files import is_directory, same_file
from .._environ import (
    LIBRARY_PATH,
    PRELOAD,
    delta,
    has_empty_element,
    parse_library_path,
    parse_preload,
)
from .._errors import UnrepresentablePathError
from .._model import Candidate, Diagnosis, LoadReport, Pin, Runtime, Status, Verdict
from .._names import runtime_major, same_stem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .._process.helper import Deadline
    from .facts import Facts

_TMS = "torch_memory_saver"
_LISTS_SINCE = (0, 0, 10)  # torch_memory_saver before that takes LD_PRELOAD for one path


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """A change of the environment that may work.

    `runtime` is the libcudart that it pins, None if it changes nothing but LD_PRELOAD. `expected`
    is the libcudart that the process is to map, `directory` what it adds to LD_LIBRARY_PATH.
    """

    change: dict[str, str]
    runtime: Runtime | None
    expected: Path | None
    directory: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The ways to start with a hook, the narrowest first.

    `runtime` is the libcudart that can be pinned, `refused` why a way could not be written down.
    """

    ways: tuple[Way, ...]
    runtime: Runtime | None = None
    refused: UnrepresentablePathError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """The report on a start with `hook` preloaded and the variables of `change` set."""

    hook: str
    change: dict[str, str]
    report: LoadReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A change of the environment, and the report on the rehearsal in the changed one."""

    change: dict[str, str]
    report: LoadReport
    notes: tuple[str, ...] = ()


def orders(facts: Facts, candidate: Candidate) -> Iterator[tuple[str, ...]]:
    """Yield the preloads that may stay ahead of the hook, the order to try first before the others.

    An order that is there already is tried first. Else the hook comes first, and behind the others
    only if that does not work: the runtime of AddressSanitizer refuses every other place.
    """
    present = parse_preload(facts.environ.get(PRELOAD))
    hook = os.fspath(candidate.path)
    found = [present[: present.index(hook)]] if hook in present else []
    others = tuple(item for item in present if item != hook)
    yield from dict.fromkeys((*found, (), others))


def find(
    facts: Facts,
    candidate: Candidate,
    pin: Pin,
    *,
    deadline: Deadline,
    known: Rehearsal | None,
) -> Launch:
    """Return the first change that works, in one order of LD_PRELOAD after another.

    If none works, it is the first that failed. Whether torch calls the hook does not depend on the
    change, and is looked at last. Raises UnrepresentablePathError.
    """
    launch = _first_that_works(facts, candidate, pin, deadline, known)
    diagnosis = _uncalled(facts, candidate.path)
    if diagnosis is None:
        return launch
    return replace(launch, report=reports.with_caller(launch.report, diagnosis))


def _first_that_works(
    facts: Facts, candidate: Candidate, pin: Pin, deadline: Deadline, known: Rehearsal | None
) -> Launch:
    first: Launch | None = None
    for ahead in orders(facts, candidate):
        planned = plan(facts, candidate, pin, ahead)
        launch = verify(planned, facts, candidate, deadline=deadline, known=known)
        first = first or launch
        if launch.report.verdict is not Verdict.FAIL:
            return launch
        if launch.report.status not in check.ORDER_MATTERS:
            break
    assert first, "there is always an order"
    return first


def plan(
    facts: Facts, candidate: Candidate, pin: Pin = Pin.AUTO, ahead: tuple[str, ...] | None = None
) -> Plan:
    """Return the ways to start with `candidate`, the narrowest first.

    `ahead` are the preloads that stay ahead of it, default those of the first order.
    The hook is loaded before torch's RPATH is read, so that the environment decides which libcudart
    the process gets. If that may not be torch's, torch's is pinned. Raises UnrepresentablePathError
    if no way can be written down.
    """
    if ahead is None:
        ahead = next(orders(facts, candidate))
    own = _own_runtime(facts, candidate)
    others = (runtime for runtime in facts.installed if runtime.major == candidate.major)
    pinned = own or next(others, None)
    if pinned is None or pin is Pin.NONE:
        return Plan(ways=(_way(facts, candidate, ahead, Pin.NONE),))
    if pin is not Pin.AUTO:
        return Plan(ways=(_way(facts, candidate, ahead, pin, pinned, pinned.path),))
    ways: list[Way] = []
    refused: UnrepresentablePathError | None = None
    if not _must_pin(facts, candidate, own):
        expected = own.path if own else None
        ways.append(_way(facts, candidate, ahead, Pin.NONE, expected=expected))
    for kind in _pins(facts, pinned):
        try:
            ways.append(_way(facts, candidate, ahead, kind, pinned, pinned.path))
        except UnrepresentablePathError as error:  # noqa: PERF203  (two turns at most)
            refused = error
    if refused and not ways:
        raise refused
    return Plan(ways=tuple(ways), runtime=pinned, refused=refused)


def verify(
    planned: Plan,
    facts: Facts,
    candidate: Candidate,
    *,
    deadline: Deadline,
    known: Rehearsal | None,
) -> Launch:
    """Rehearse the ways until one works, and return it; else the first that failed.

    A way that pins is not tried if the one before it failed for another reason than the runtime.
    `known` is a rehearsal that was made already.
    """
    first: Launch | None = None
    for way in planned.ways:
        launch = _rehearse(way, facts, candidate, deadline, known)
        if launch.report.verdict is not Verdict.FAIL:
            return launch
        if way.runtime is None:
            if planned.runtime is None or not _wants_runtime(launch.report, planned.runtime):
                return launch
        else:
            first = first or launch
    if first:
        return first
    assert planned.refused, "there is a way that pins, or a reason why there is none"
    raise planned.refused


def _own_runtime(facts: Facts, candidate: Candidate) -> Runtime | None:
    """Return torch's libcudart if the candidate links its major.

    If torch's library does not load as things stand, it is the one that torch brings.
    """
    runtime = facts.torch_runtime or facts.torch_own
    return runtime if runtime and runtime.major == candidate.major else None


def _must_pin(facts: Facts, candidate: Candidate, own: Runtime | None) -> bool:
    """Tell whether it is known without a rehearsal that the hook alone would map another runtime.

    It is if neither the hook's own search path nor a preload has a say.
    """
    environ = facts.environ
    if own is None or candidate.has_search_path or parse_preload(environ.get(PRELOAD)):
        return False
    if _relative_elements(environ):
        return True  # what is found here says nothing about a worker that starts elsewhere
    found = next((r for r in facts.loader_runtimes if r.major == candidate.major), None)
    return found is None or not same_file(found.path, own.path)


def _wants_runtime(report: LoadReport, runtime: Runtime) -> bool:
    if report.status in (Status.WRONG_RUNTIME, Status.TORCH_FAILS):
        return True
    names = {missing.name for missing in report.missing}
    return report.status is Status.MISSING_DEPENDENCY and runtime.path.name in names


def _pins(facts: Facts, runtime: Runtime) -> Iterator[Pin]:
    narrow = cuda.only_runtime(runtime.path.parent)
    if narrow:
        yield Pin.LIBRARY_PATH
    if _reads_lists(facts) and facts.package not in os.fspath(runtime.path):
        yield Pin.PRELOAD
    if not narrow:
        yield Pin.LIBRARY_PATH


def _reads_lists(facts: Facts) -> bool:
    """Tell whether the package can find itself in an LD_PRELOAD of several elements."""
    if facts.package != _TMS or facts.package_version is None:
        return True
    numbers = tuple(int(part) for part in facts.package_version.split(".") if part.isdecimal())
    return numbers >= _LISTS_SINCE


def _way(
    facts: Facts,
    candidate: Candidate,
    ahead: tuple[str, ...],
    pin: Pin,
    runtime: Runtime | None = None,
    expected: Path | None = None,
) -> Way:
    path = os.fspath(runtime.path) if runtime else ""
    directory = os.path.dirname(path) if pin is Pin.LIBRARY_PATH else None  # noqa: PTH120
    added = [directory, facts.driver_directory and os.fspath(facts.driver_directory)]
    change = delta(
        facts.environ,
        hook=os.fspath(candidate.path),
        preload=[path] if pin is Pin.PRELOAD else [],
        library_path=[item for item in added if item],
        ahead=ahead,
        same_stem=same_stem(facts.stem),
    )
    return Way(change=change, runtime=runtime, expected=expected, directory=directory)


def rehearsed(way: Way, facts: Facts) -> dict[str, str]:
    """Return the variables that the helper sets for the rehearsal: it starts without LD_PRELOAD."""
    return {PRELOAD: facts.environ.get(PRELOAD, ""), **way.change}


def _rehearse(
    way: Way,
    facts: Facts,
    candidate: Candidate,
    deadline: Deadline,
    known: Rehearsal | None,
) -> Launch:
    change = rehearsed(way, facts)
    hook = os.fspath(candidate.path)
    if known and (known.hook, known.change) == (hook, change):
        report = known.report
    else:
        report = check.rehearse(
            hook,
            change=change,
            environ=facts.environ,
            deadline=deadline,
            next_library=facts.torch_library,
        )
    if way.expected:
        report = reports.with_expected(report, way.expected)
    final = {**facts.environ, **way.change}
    notes = [*_notes(facts, candidate, final), *_unfound(final, report)]
    if way.directory or facts.driver_directory:
        notes += _conda_note(way.directory or os.fspath(facts.driver_directory or ""))
    return Launch(change=way.change, report=report, notes=tuple(notes))


def _uncalled(facts: Facts, hook: Path) -> Diagnosis | None:
    """Say why torch does not call the hook, or that this was not seen."""
    torch = facts.torch
    if torch and torch.library:
        return torches.bypass(torch.library, hook)
    if torch and torch.major is not None:
        message = (
            f"whether torch calls {hook} was not seen: torch {torch.version} in {torch.root} is"
            f" built for CUDA {torch.cuda} and has no libc10_cuda.so; reinstall torch"
        )
        return Diagnosis(status=Status.NOT_SEEN, message=message)
    return None


def _relative_elements(environ: Mapping[str, str]) -> list[str]:
    elements = parse_library_path(environ.get(LIBRARY_PATH))
    return [element for element in elements if element and element[0] not in "/$"]


def _conda_note(directory: str) -> Iterator[str]:
    prefix = next((p for p in Path(directory).parents if is_directory(p / "conda-meta")), None)
    if prefix:
        yield (
            f"{LIBRARY_PATH} begins with {directory}, which holds all libraries of a conda"
            " prefix: system programs that a worker starts may break on them;"
            " torch_memory_saver 0.0.10 or newer can do without"
        )


_LITERAL = (
    "belong to the file name for the loader: docker run --env-file keeps them, where a shell would"
    " not; write it without quotes"
)
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def _is_quoted(element: str) -> bool:
    return element[:1] in ("'", '"') or element[-1:] in ("'", '"')


def _unfound(environ: Mapping[str, str], report: LoadReport) -> Iterator[str]:
    """Say which bare names of LD_PRELOAD the loader did not find in the rehearsal."""
    mapped = {path.name for path in report.loaded}
    for element in parse_preload(environ[PRELOAD]) if mapped else ():
        if "/" not in element and not _is_quoted(element) and element not in mapped:
            yield (
                f"{PRELOAD} has {element}, which the loader does not find or cannot load: every"
                " process starts without it; write its path, or take it out"
            )


def _expandable(environ: Mapping[str, str]) -> Iterator[str]:
    """Say that torch does not call cudaMalloc, which torch_memory_saver stands in for."""
    for name in _ALLOCATORS:
        if re.search(r"\bexpandable_segments\s*:\s*True\b", environ.get(name, "")):
            yield (
                f"{name} has expandable_segments:True, with which torch allocates past cudaMalloc:"
                f" {_TMS} disables itself or sees no allocation; take that out for its workers"
            )


def _notes(facts: Facts, candidate: Candidate, environ: Mapping[str, str]) -> Iterator[str]:
    preloads = parse_preload(environ[PRELOAD])
    for element in preloads:
        if element == os.fspath(candidate.path):
            continue
        if _is_quoted(element):
            yield f"{PRELOAD} has {element}, whose quotes {_LITERAL}"
            continue
        plain = "/" in element and "$" not in element  # a token is the loader's to expand
        if plain and (diagnosis := fault.find(element)):
            yield f"the loader ignores a preload that was there before: {diagnosis.message}"
        major = runtime_major(os.path.basename(element))  # noqa: PTH119
        if major is not None and candidate.major is not None and major != candidate.major:
            yield (
                f"{PRELOAD} held {element} before, a runtime of CUDA {major} beside the hook's of"
                f" CUDA {candidate.major}: two runtimes will be in every worker; take it out"
            )
    if facts.package == _TMS:
        yield from _expandable(environ)
    if facts.package == _TMS and _reads_lists(facts):
        named = [item for item in preloads if _TMS in item]
        if len(named) != 1:
            yield (
                f"{facts.package} wants exactly one element of {PRELOAD} that contains {_TMS!r} and"
                f" finds {len(named)} ({', '.join(named)}): move the others to another directory"
            )
    elif len(preloads) > 1 and not _reads_lists(facts):
        yield (
            f"{facts.package} {facts.package_version} takes the whole of {PRELOAD} for one path and"
            f" will not find itself among {len(preloads)}: install 0.0.10 or newer, or start the"
            " workers without the other preloads"
        )
    for element in _relative_elements(environ):
        if _is_quoted(element):
            yield f"{LIBRARY_PATH} has {element}, whose quotes {_LITERAL}"
            continue
        yield (
            f"{LIBRARY_PATH} has the relative element {element}: it means another directory"
            " wherever a worker starts; write it in full"
        )
    if has_empty_element(environ):
        yield (
            f"{LIBRARY_PATH} has an empty element: libraries are also searched in whatever"
            " directory a worker starts in; take it out"
        )
