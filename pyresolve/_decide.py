"""Facts in, decision out. Pure: no I/O, no environment, no list of CUDA versions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._errors import NotCudaError, NoVariantError
from ._types import Candidate, Driver, Evidence, LoadReport, Runtime, Source, Torch, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that the decision rests on.

    `package_place` is the directory that the package is imported from, `searched` all that were
    looked at.
    `override` is the major that the user laid down and where; `forced` the file. `resolved` is what
    the package's own resolver answered. `torch_runtime` is the libcudart that torch's library maps,
    `loader_runtimes` those that the workers' loader finds by name, `installed` those on disk.
    `driver_directory` is where the driver lies if the loader finds it only when told to. `trials`
    are the outcomes of loading each candidate, None as long as nobody asked.
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
    torch_runtime: Runtime | None = None
    torch_problem: str | None = None
    loader_runtimes: tuple[Runtime, ...] = ()
    installed: tuple[Runtime, ...] = ()
    driver: Driver = field(default_factory=Driver)
    driver_directory: Path | None = None
    trials: tuple[LoadReport, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The build to use, and every source with what it said, strongest first."""

    candidate: Candidate
    source: Source
    evidence: tuple[Evidence, ...]
    warnings: tuple[str, ...]


def decide(facts: Facts) -> Decision | None:
    """Return the build that the strongest source names, None where `trials` are needed to tell.

    The first source that answers decides; the others are recorded. A known major without a build of
    its own is NoVariantError, never another major's build. NotCudaError where torch is built for
    another accelerator and the user laid down nothing else.
    """
    torch = facts.torch
    if torch and torch.accelerator and not facts.override and not facts.forced:
        raise _not_cuda(facts, torch.root, torch.accelerator)
    usable = [candidate for candidate in facts.candidates if not candidate.problem]
    named = facts.forced or (None if facts.override else facts.resolved)
    if not usable and not named:
        raise _no_build(facts)
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
            raise _no_major(facts, usable, first)
        return _decision(facts, chosen, first.source, evidence, warnings)
    if facts.trials is None:
        return None
    return _last_resort(facts, usable, evidence, facts.trials)


def _follow(
    facts: Facts, named: Candidate, usable: list[Candidate], evidence: list[Evidence]
) -> Decision:
    """Take the file that the user or the package's resolver names, whatever it links.

    But for a resolver that does not look at torch, as that of torch_memory_saver 0.0.9: where it
    leads to another major than torch's, and there is no build for torch's, the workers would die.
    """
    first, *others = evidence
    if first.source is Source.RESOLVER and first.major is not None:
        wanted = next((item for item in others if item.major is not None), first)
        known = wanted.source in (Source.TORCH_RUNTIME, Source.TORCH_METADATA)
        if known and wanted.major != first.major and not _of_major(usable, wanted.major):
            raise _no_major(facts, usable, wanted)
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
    if _lies(candidate):
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
            f"the driver {driver.path} supports CUDA up to {_dotted(driver.version)}, and the"
            f" workers use CUDA {candidate.major}: update the driver, or install a torch for an"
            " older CUDA"
        )
    beside = place and candidate.path.is_relative_to(place)
    if place and not beside and not facts.forced and candidate.path.parent in facts.searched:
        yield (
            f"{candidate.path} belongs to another copy of {facts.package} than the one in {place},"
            " which is imported: remove one of the two"
        )


def _lies(candidate: Candidate) -> bool:
    """Tell whether a file is named for another major than it links; cu128 is a name for 12."""
    if candidate.named is None or candidate.major is None:
        return False
    return not str(candidate.named).startswith(str(candidate.major))


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
        return Evidence(source=source, text="no CUDA runtime in the loader's reach nor on disk")
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
    return facts.installed, "out of the loader's reach, but installed are"


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
        # That other runtimes lie about is a normal state of a machine.
        if other.source is Source.FOUND_RUNTIME or other.major in (None, first.major):
            continue
        torchs = {first.source, other.source} == {Source.TORCH_RUNTIME, Source.TORCH_METADATA}
        yield (
            f"{first.source.value} says CUDA {first.major} ({first.text}), {other.source.value}"
            f" says CUDA {other.major} ({other.text}): the first was followed"
            + ("; torch is in two minds, reinstall it" if torchs else "")
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

    Where there is none, a build that links no CUDA runtime and names no major goes with any.
    """
    matches = [candidate for candidate in usable if candidate.major == major]
    if not matches:
        return next((candidate for candidate in usable if candidate.major is None), None)
    place = matches[0].path.parent
    beside = [candidate for candidate in matches if candidate.path.parent == place]
    return next((candidate for candidate in beside if candidate.named == major), matches[0])


def _not_cuda(facts: Facts, root: Path, accelerator: str) -> NotCudaError:
    message = f"torch in {root} is built for {accelerator}, not for CUDA"
    others = [candidate.problem for candidate in facts.candidates if candidate.problem]
    if others:
        message += (
            f"; {'; '.join(others)}: pyresolve chooses CUDA builds only, preload that one as"
            f" {facts.package} says"
        )
    else:
        message += ": a CUDA hook has nothing to do there; start the workers without it"
    return NotCudaError(message, accelerator=accelerator)


def _no_build(facts: Facts) -> NoVariantError:
    searched = ", ".join(map(str, facts.searched))
    where = f" (in {facts.package_place})" if facts.package_place else ""
    remedy: str | None = (
        f"pip install --force-reinstall --no-deps --only-binary=:all: {facts.package}"
    )
    if facts.candidates and all(candidate.in_place for candidate in facts.candidates):
        first, *more = facts.candidates
        alike = f"; likewise {', '.join(str(other.path) for other in more)}" if more else ""
        message = f"{facts.package} has no usable build of {facts.stem}: {first.problem}{alike}"
        remedy = None
    elif facts.candidates:
        problems = "; ".join(candidate.problem or "" for candidate in facts.candidates)
        message = (
            f"{facts.package} has no usable build of {facts.stem}: {problems}; install a wheel that"
            f" has one ({remedy})"
        )
    elif not facts.package_found:
        remedy = f"pip install {facts.package}"
        message = (
            f"{facts.package} is not installed: it is in none of {searched}; install it into the"
            f" workers' environment ({remedy})"
        )
    else:
        message = (
            f"{facts.package} {facts.package_version or 'of unknown version'} is installed without"
            f" native hooks{where}: no {facts.stem}*.so in {searched}; most likely it was built"
            f" without CUDA, install a wheel that has them"
            f" ({remedy})"
        )
    found = tuple(candidate.path for candidate in facts.candidates)
    return NoVariantError(message, searched=facts.searched, found=found, remedy=remedy)


def _no_major(facts: Facts, usable: list[Candidate], wanted: Evidence) -> NoVariantError:
    broken = next((c for c in facts.candidates if c.problem and c.named == wanted.major), None)
    if broken:
        remedy = f"pip install --force-reinstall --no-deps {facts.package}"
        return NoVariantError(
            f"the workers use CUDA {wanted.major} ({wanted.source.value}: {wanted.text}), and the"
            f" build for it cannot be used: {broken.problem}",
            searched=facts.searched,
            found=tuple(c.path for c in usable),
            major=wanted.major,
            remedy=None if broken.in_place else remedy,
        )
    builds = ", ".join(f"{c.path} ({_links(c)})" for c in usable)
    version = f" {facts.package_version}" if facts.package_version else ""
    problems = "".join(f"; {c.problem}" for c in facts.candidates if c.problem)
    # --force-reinstall: where the newest is installed, a file of it is missing or damaged.
    remedy = f"pip install --upgrade --force-reinstall --no-deps {facts.package}"
    guess = wanted.source is Source.FOUND_RUNTIME
    return NoVariantError(
        f"the workers {'seem to ' if guess else ''}use CUDA {wanted.major} ({wanted.source.value}:"
        f" {wanted.text}), and {facts.package}{version} has no build for it, only"
        f" {builds}{problems}; {'set PYRESOLVE_CUDA if they use another, or ' if guess else ''}"
        f"install a version that ships a build for CUDA {wanted.major} ({remedy})",
        searched=facts.searched,
        found=tuple(c.path for c in usable),
        major=wanted.major,
        remedy=remedy,
    )


def _links(candidate: Candidate) -> str:
    if candidate.major is None:
        return "links no CUDA runtime"
    named = f", named for CUDA {candidate.named}" if _lies(candidate) else ""
    return f"CUDA {candidate.major}{named}"


def _version(runtime: Runtime) -> str:
    return _dotted(runtime.version) if runtime.version else str(runtime.major)


def _dotted(version: int | None) -> str:
    return f"{version // 1000}.{version % 1000 // 10}" if version else "?"
