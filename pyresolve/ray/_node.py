"""What a worker of one node finds out about it. Ray runs it there; the answer is plain data."""

from __future__ import annotations

from typing import Any

from .. import _survey
from .._errors import PyresolveError
from .._model import Verdict
from .._names import dotted
from .._pick.pick import Verify, choose, look


def examine(stem: str, package: str, timeout: float) -> dict[str, Any]:
    """Return what pick() would do for a worker like this one, and what that rests on."""
    seen, deadline = look(stem, package=package, resolver="never", complete=True, timeout=timeout)
    facts = seen.facts
    runtimes = _survey.versions(facts.installed, environ=facts.environ, deadline=deadline)
    found = {
        "driver": dotted(facts.driver.version) if facts.driver.present else None,
        "torch": facts.torch and facts.torch.version,
        "runtimes": tuple(sorted({str(dotted(r.version)) for r in runtimes if r.version})),
    }
    try:
        choice = choose(seen, verify=Verify.AUTO, deadline=deadline, timeout=timeout)
    except PyresolveError as error:
        return {**found, "verdict": Verdict.FAIL.value, "message": str(error)}
    message = choice.report.message if choice.report else ""
    build = {"build": str(choice.path), "cuda_major": choice.cuda_major}
    return {**found, **build, "verdict": choice.verdict.value, "message": message}
