"""Facts in, decision out. Pure: no I/O, no environment, no list of CUDA versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._model import Candidate, Driver, Evidence, LoadReport, Runtime, Source, Torch, Verdict
from .._names import dotted
from . import refusal
from .facts import Decision, Facts
from .refusal import is_misnamed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def decide(facts: Facts) -> Decision:
    """Return the build that the strongest source names.

    The first source that answers decides; the others are recorded. A known major without its own
    build is NoVariantError, never another major's build. NotCudaError if torch is built for another
    accelerator and the user set neither a major nor a file.
    """
    torch = facts.torch
    if torch and torch.accelerator and not facts.override and not facts.forced:
        raise refusal.not_cuda(facts, torch.root, torch.accelerator)
    usable = [candidate for candidate in facts.candidates if not candidate.problem]
    named = facts.forced or (None if facts.override else facts.resolved)
    if not usable and not named:
        raise refusal.no_build(facts)
    evidence = list(_evidence(facts, usable))
    if named:
        return _follow(facts, named, usable, evidence)
    first = next((item for item in evidence if item.major is not None), None)
    if first:
        warnings = list(_contradictions(first, evidence))
        if first.source is Source.FOUND_RUNTIME:
            warnings += _guess(facts, first.major)
        chosen = _of_major(usable, first.major)
        if not chosen:
            raise refusal.no_major(facts, usable, first)
        return _decision(facts, chosen, first.source, evidence, warnings)
    return _last_resort(facts, usable, evidence, facts.trials)


def _follow(
    facts: Facts, named: Candidate, usable: list[Candidate], evidence: list[Evidence]
) -> Decision:
    """Take the file that the user or the package's resolver names, whatever it links.

    Except for a resolver that does not look at torch, such as that of torch_memory_saver 0.0.9: if
    it leads to another major than torch's, and there is no build for torch's, the workers would
    die.
    """
    first, *others = evidence
    if first.source is Source.RESOLVER and first.major is not None:
        wanted = next((item for item in others if item.major is not None), first)
        known = wanted.source in (Source.TORCH_RUNTIME, Source.TORCH_METADATA)
        if known and wanted.major != first.major and not _of_major(usable, wanted.major):
            raise refusal.no_major(facts, usable, wanted)
    warnings = list(_contradictions(first, evidence)) if first.major is not None else []
    if facts.forced and facts.override and facts.override[0] != facts.forced.major:
        warnings.append(
            f"{first.text} links the runtime of CUDA {facts.forced.major} and contradicts"
            f" {facts.override[1]}: the file was followed; unset one of the two"
        )
    return _decision(facts, named, first.source, evidence, warnings)


def _decision(
    facts: Facts,
    candidate: Candidate,
    source: Source,
    evidence: list[Evidence],
    warnings: list[str],
) -> Decision:
    if is_misnamed(candidate):
        warnings.append(
            f"{candidate.path} is named for CUDA {candidate.named} and links the runtime of CUDA"
            f" {candidate.major}: what it links counts"
        )
    warnings += _circumstances(facts, candidate)
    return Decision(
        candidate=candidate,
        source=source,
        evidence=tuple(
            Evidence(source=e.source, text=e.text, major=e.major, decided=e.source is source)
            for e in evidence
        ),
        warnings=tuple(warnings),
    )


def _circumstances(facts: Facts, candidate: Candidate) -> Iterator[str]:
    """Yield what may keep the right build from being of use."""
    torch, driver, place = facts.torch, facts.driver, facts.package_place
    if torch and torch.cuda is None and not torch.problem:
        yield (
            f"torch {torch.version} in {torch.root} is a CPU build, which uses no GPU and leaves"
            " the hook nothing to do: install one that is built for CUDA, or name the workers'"
            " interpreter with python="
        )
    if candidate.major is not None and not _supports(driver, candidate.major):
        yield (
            f"the driver {driver.path} supports CUDA up to {dotted(driver.version)}, and the"
            f" workers use CUDA {candidate.major}: update the driver, or install a torch for an"
            " older CUDA"
        )
    beside = place and candidate.path.is_relative_to(place)
    if place and not beside and not facts.forced and candidate.path.parent in facts.searched:
        yield (
            f"{candidate.path} belongs to another copy of {facts.package} than the one in {place},"
            " which is imported: remove one of the two"
        )


def _evidence(facts: Facts, usable: list[Candidate]) -> Iterator[Evidence]:
    if facts.forced:
        text = f"PYRESOLVE_PRELOAD={facts.forced.path}"
        yield Evidence(source=Source.OVERRIDE, text=text, major=facts.forced.major)
    if facts.override:
        major, where = facts.override
        yield Evidence(source=Source.OVERRIDE, text=where, major=None if facts.forced else major)
    if facts.resolved:
        yield Evidence(
            source=Source.RESOLVER,
            text=f"{facts.package} chose {facts.resolved.path}",
            major=facts.resolved.major,
        )
    if facts.torch:
        yield _torch_runtime(facts, facts.torch)
        yield _torch_metadata(facts.torch)
    else:
        yield Evidence(source=Source.TORCH_METADATA, text="torch is not installed")
    yield _found(facts, usable)


def _torch_runtime(facts: Facts, torch: Torch) -> Evidence:
    source = Source.TORCH_RUNTIME
    if facts.torch_runtime:
        path, major = facts.torch_runtime.path, facts.torch_runtime.major
        return Evidence(source=source, text=f"{torch.library} maps {path}", major=major)
    if torch.library is None:
        return Evidence(source=source, text=f"torch in {torch.root} has no CUDA library")
    text = f"{torch.library} needs the runtime of CUDA {torch.library_major}"
    if torch.library_major is None:
        text = f"{torch.library} names no CUDA runtime"
    if facts.torch_problem:
        text += f" and does not load here ({facts.torch_problem})"
    return Evidence(source=source, text=text, major=torch.library_major)


def _torch_metadata(torch: Torch) -> Evidence:
    source, name = Source.TORCH_METADATA, f"torch {torch.version or 'of unknown version'}"
    if torch.problem:
        return Evidence(source=source, text=torch.problem)
    if torch.cuda is None:
        return Evidence(source=source, text=f"{name} in {torch.root} is a CPU build")
    text = f"{name} in {torch.root} is built for CUDA {torch.cuda}"
    return Evidence(source=source, text=text, major=torch.major)


def _found(facts: Facts, usable: list[Candidate]) -> Evidence:
    source = Source.FOUND_RUNTIME
    runtimes, where = _reachable(facts)
    if not runtimes:
        text = "no CUDA runtime was found, by the loader or in the usual directories"
        return Evidence(source=source, text=text)
    text = f"{where} {_names(runtimes)}"
    reached = {runtime.path for runtime in facts.loader_runtimes}
    others = [runtime for runtime in facts.installed if runtime.path not in reached]
    if reached and others:
        text += f"; installed are {_names(others)}"
    return Evidence(source=source, text=text, major=_best(facts, runtimes, usable))


def _names(runtimes: Iterable[Runtime]) -> str:
    return ", ".join(
        f"{r.path} (CUDA {_version(r)}{f', {r.distribution}' if r.distribution else ''})"
        for r in runtimes
    )


def _reachable(facts: Facts) -> tuple[tuple[Runtime, ...], str]:
    if facts.loader_runtimes:
        return facts.loader_runtimes, "the loader finds"
    outside = "out of the loader's reach, but " if facts.complete else ""
    return facts.installed, f"{outside}installed are"


def _best(facts: Facts, runtimes: Iterable[Runtime], usable: list[Candidate]) -> int:
    majors = {runtime.major for runtime in runtimes}
    with_build = majors & {candidate.major for candidate in usable if candidate.major is not None}
    pool = with_build or majors
    supported = {major for major in pool if _supports(facts.driver, major)}
    return max(supported or pool)


def _supports(driver: Driver, major: int) -> bool:
    return driver.version is None or major <= driver.version // 1000


def _guess(facts: Facts, major: int | None) -> Iterator[str]:
    runtimes, _ = _reachable(facts)
    majors = sorted({runtime.major for runtime in runtimes})
    if len(majors) > 1 and facts.driver.version is None:
        yield (
            f"CUDA {major} is a guess: the runtimes of CUDA {', '.join(map(str, majors))} are here,"
            " no torch says which one the workers use, and no driver limits it; set PYRESOLVE_CUDA"
        )


def _contradictions(first: Evidence, evidence: list[Evidence]) -> Iterator[str]:
    for other in evidence:
        # Other runtimes are installed on many machines: that contradicts nothing.
        if other.source is Source.FOUND_RUNTIME or other.major in (None, first.major):
            continue
        about_torch = {first.source, other.source} == {Source.TORCH_RUNTIME, Source.TORCH_METADATA}
        yield (
            f"{first.source.value} says CUDA {first.major} ({first.text}), {other.source.value}"
            f" says CUDA {other.major} ({other.text}): the first was followed"
            + ("; torch contradicts itself, reinstall it" if about_torch else "")
        )


def _last_resort(
    facts: Facts, usable: list[Candidate], evidence: list[Evidence], trials: tuple[LoadReport, ...]
) -> Decision:
    outcome = {report.path: report for report in trials}
    loads = [
        candidate
        for candidate in usable
        if candidate.path in outcome and outcome[candidate.path].verdict is not Verdict.FAIL
    ]
    tried = "; ".join(report.message for report in trials)
    if loads and len({candidate.major for candidate in loads}) == 1:
        chosen = _of_major(loads, loads[0].major) or loads[0]
        text = f"of the builds found only those for CUDA {chosen.major} load"
        if chosen.major is None:
            text = f"{chosen.path} loads"
        evidence.append(Evidence(source=Source.LOADABILITY, text=text, major=chosen.major))
        return _decision(facts, chosen, Source.LOADABILITY, evidence, [])
    evidence.append(Evidence(source=Source.LOADABILITY, text=tried))
    chosen = min(usable, key=lambda candidate: (candidate.named is not None, candidate.named or 0))
    text = f"{chosen.path} is there"
    evidence.append(Evidence(source=Source.EXISTENCE, text=text, major=chosen.major))
    warning = (
        f"{chosen.path} was chosen only because it is there: torch, the CUDA runtimes and the"
        f" driver told nothing, and no single build loads here ({tried})"
    )
    return _decision(facts, chosen, Source.EXISTENCE, evidence, [warning])


def _of_major(usable: list[Candidate], major: int | None) -> Candidate | None:
    """Return the build for a major: first by place, there one that says so in its name.

    If there is none, a build that links no CUDA runtime and names no major goes with any.
    """
    matches = [candidate for candidate in usable if candidate.major == major]
    if not matches:
        return next((candidate for candidate in usable if candidate.major is None), None)
    place = matches[0].path.parent
    beside = [candidate for candidate in matches if candidate.path.parent == place]
    return next((candidate for candidate in beside if candidate.named == major), matches[0])


def _version(runtime: Runtime) -> str:
    return dotted(runtime.version) or str(runtime.major)
