"""Why no build is chosen: errors with what was looked for, what is there and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._errors import NotCudaError, NoVariantError
from .._model import Candidate, Evidence, Source

if TYPE_CHECKING:
    from pathlib import Path

    from .facts import Facts


def is_misnamed(candidate: Candidate) -> bool:
    """Tell whether a file is named for another major than it links; cu128 names 12."""
    if candidate.named is None or candidate.major is None:
        return False
    return not str(candidate.named).startswith(str(candidate.major))


def not_cuda(facts: Facts, root: Path, accelerator: str) -> NotCudaError:
    """Return the error for a torch that is built for another accelerator."""
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


def no_build(facts: Facts) -> NoVariantError:
    """Return the error for a package without any usable build."""
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


def no_major(facts: Facts, usable: list[Candidate], wanted: Evidence) -> NoVariantError:
    """Return the error for a package without a build for the major that the workers use."""
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
    # --force-reinstall: if the newest is installed, a file of it is missing or damaged.
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
    named = f", named for CUDA {candidate.named}" if is_misnamed(candidate) else ""
    return f"CUDA {candidate.major}{named}"
