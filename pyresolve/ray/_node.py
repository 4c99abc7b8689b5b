"""What a worker of one node finds out about it. Ray runs it there; the answer is plain data."""

from __future__ import annotations

import os
from typing import Any

from .. import _gather, _probe, _resolver, _sites
from .._errors import PyresolveError
from .._explain import dotted
from .._pick import pick
from .._survey import runtimes
from .._types import Verdict


def examine(stem: str, package: str, timeout: float) -> dict[str, Any]:
    """Return what pick() would do for a worker like this one, and what it goes by."""
    environ = dict(os.environ)
    facts = _gather.gather(
        stem,
        package,
        cuda=None,
        asking=_resolver.Ask.NEVER,
        site=_sites.current(),
        environ=environ,
        deadline=_probe.Deadline(timeout),
    )
    found = {
        "driver": dotted(facts.driver.version) if facts.driver.present else None,
        "torch": facts.torch and facts.torch.version,
        "runtimes": tuple(sorted({str(dotted(r.version)) for r in runtimes() if r.version})),
    }
    try:
        choice = pick(stem, package=package, environ=environ, resolver="never", timeout=timeout)
    except PyresolveError as error:
        return {**found, "verdict": Verdict.FAIL.value, "message": str(error)}
    message = choice.report.message if choice.report else ""
    build = {"build": str(choice.path), "cuda_major": choice.cuda_major}
    return {**found, **build, "verdict": choice.verdict.value, "message": message}
