"""pyresolve doctor: everything found, decided and verified, and what to do."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._document import value as plain_value
from .._model import Verdict
from .._names import dotted
from ._output import (
    add_pick_arguments as add_arguments,
    exit_status,
    print_json,
    print_text,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from .._model import Runtime
    from .._pick.facts import Facts
    from .._pick.pick import Choice

__all__ = ["add_arguments", "run"]

_TIMEOUT = 10.0
_MARKS = {Verdict.OK: "good", Verdict.FAIL: "bad", Verdict.UNKNOWN: "doubtful"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Findings:
    python: str
    facts: Facts
    runtimes: tuple[Runtime, ...]
    choice: Choice | None
    error: Exception | None

    @property
    def verdict(self) -> Verdict:
        return self.choice.verdict if self.choice and not self.error else Verdict.FAIL

    @property
    def remedy(self) -> str | None:
        report = self.choice.report if self.choice else None
        return report.remedy if report else getattr(self.error, "remedy", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    label: str
    text: str
    mark: str = ""  # good, bad, doubtful or chosen


def run(arguments: argparse.Namespace) -> int:
    """Find out everything, then print it."""
    findings = _examine(arguments)
    if arguments.json:
        print_json(_document(findings))
    elif sys.stdout.isatty() and not os.environ.get("NO_COLOR") and (table := _rich()):
        table(list(_rows(findings)))
    else:
        _print_plain(list(_rows(findings)))
    return exit_status([findings.verdict])


def _examine(arguments: argparse.Namespace) -> _Findings:
    from .. import _survey
    from .._errors import NotLoadableError, OverrideError, PyresolveError
    from .._pick.pick import Verify, choose, look

    seen, deadline = look(
        arguments.stem,
        package=arguments.package,
        python=arguments.python,
        cuda=arguments.cuda,
        resolver="auto",
        complete=True,
        timeout=_TIMEOUT,
    )
    choice: Choice | None = None
    error: PyresolveError | None = None
    try:
        choice = choose(seen, verify=Verify.AUTO, deadline=deadline, timeout=_TIMEOUT)
    except OverrideError:
        raise
    except NotLoadableError as failure:
        choice, error = failure.choice, failure
    except PyresolveError as failure:
        error = failure
    facts = seen.facts
    found = _survey.versions(facts.installed, environ=facts.environ, deadline=deadline)
    python = arguments.python or sys.executable
    return _Findings(python=python, facts=facts, runtimes=found, choice=choice, error=error)


def _rows(findings: _Findings) -> Iterator[_Row]:
    facts, choice = findings.facts, findings.choice
    yield _Row(label="python", text=findings.python)
    version = facts.package_version or ("version unknown" if facts.package_found else "not found")
    yield _Row(label="package", text=f"{facts.package} {version}")
    for candidate in facts.candidates:
        chosen = choice is not None and candidate.path == choice.path
        what = candidate.problem or f"{candidate.path} (CUDA {candidate.major or 'unknown'})"
        mark = "bad" if candidate.problem else "chosen" if chosen else ""
        yield _Row(label="build", text=what, mark=mark)
    if facts.torch:
        built = facts.torch.accelerator or (
            f"CUDA {facts.torch.cuda}" if facts.torch.cuda else "CPU"
        )
        text = f"{facts.torch.version or 'unknown'}, built for {built}, in {facts.torch.root}"
        yield _Row(label="torch", text=facts.torch.problem or text)
    else:
        yield _Row(label="torch", text="not installed")
    for runtime in findings.runtimes:
        yield _runtime_row(runtime, facts.loader_runtimes, facts.torch_runtime)
    yield _driver_row(facts)
    if choice:
        yield from _choice_rows(choice)
    message = choice.report.message if choice and choice.report else str(findings.error)
    yield _Row(
        label="verdict",
        text=f"{findings.verdict.name}: {message}",
        mark=_MARKS[findings.verdict],
    )
    if findings.remedy:
        yield _Row(label="do", text=findings.remedy, mark="chosen")


def _runtime_row(runtime: Runtime, reached: tuple[Runtime, ...], torch: Runtime | None) -> _Row:
    from .._disk.files import same_file

    if runtime.problem:
        return _Row(label="runtime", text=runtime.problem, mark="bad")
    notes = [runtime.distribution or runtime.origin.value]
    if torch and same_file(torch.path, runtime.path):
        notes.append("the one torch maps")
    if any(same_file(other.path, runtime.path) for other in reached):
        notes.append("in the loader's reach")
    version = dotted(runtime.version)
    return _Row(label="runtime", text=f"CUDA {version}  {runtime.path} ({', '.join(notes)})")


def _driver_row(facts: Facts) -> _Row:
    from .._disk.driver import where
    from .._names import DRIVER_SONAME

    driver = facts.driver
    if driver.present:
        version = dotted(driver.version) or "unknown"
        text = f"{driver.path}, supports CUDA up to {version}"
        return _Row(label="driver", text=text, mark="good")
    text = f"none that works ({driver.problem})"
    if driver.absent:
        text = f"the loader does not find {DRIVER_SONAME}{where(facts.environ)[0]}"
    return _Row(label="driver", text=text, mark="doubtful")


def _choice_rows(choice: Choice) -> Iterator[_Row]:
    for evidence in choice.evidence:
        mark = "chosen" if evidence.decided else ""
        yield _Row(label="source", text=f"{evidence.source.value}: {evidence.text}", mark=mark)
    yield _Row(label="chosen", text=f"{choice.path}, from {choice.source.value}", mark="chosen")
    works = choice.report is not None and choice.verdict is not Verdict.FAIL
    for name, value in choice.env().items() if works else ():
        yield _Row(label="environment", text=f"export {name}={shlex.quote(value)}")
    for warning in choice.warnings:
        yield _Row(label="warning", text=warning, mark="doubtful")


def _print_plain(rows: list[_Row]) -> None:
    width = max(len(row.label) for row in rows)
    previous = ""
    for row in rows:
        label = "" if row.label == previous else row.label
        star = "*" if row.mark == "chosen" else " "
        print_text(f"{label:<{width}} {star} {row.text}")
        previous = row.label


def _rich() -> Callable[[list[_Row]], None] | None:
    """Return the printer for a terminal, None if rich is not installed."""
    try:
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return None
    styles = {"good": "green", "bad": "bold red", "doubtful": "yellow", "chosen": "bold cyan"}

    def show(rows: list[_Row]) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        previous = ""
        for row in rows:
            label = "" if row.label == previous else row.label
            table.add_row(label, Text(row.text, style=styles.get(row.mark, "")))
            previous = row.label
        Console().print(table)

    return show


def _document(findings: _Findings) -> dict[str, Any]:
    facts, error = findings.facts, findings.error
    torch = facts.torch
    return {
        "verdict": findings.verdict.value,
        "remedy": findings.remedy,
        "python": findings.python,
        "package": {
            "name": facts.package,
            "version": facts.package_version,
            "found": facts.package_found,
        },
        "candidates": [
            {"path": str(c.path), "major": c.major, "named": c.named, "problem": c.problem}
            for c in facts.candidates
        ],
        "torch": torch
        and {
            "root": str(torch.root),
            "version": torch.version,
            "cuda": torch.cuda,
            "accelerator": torch.accelerator,
            "problem": torch.problem,
        },
        "torch_runtime": plain_value(facts.torch_runtime),
        "loader_runtimes": plain_value(facts.loader_runtimes),
        "runtimes": plain_value(findings.runtimes),
        "driver": plain_value(facts.driver),
        "choice": findings.choice and findings.choice.to_dict(),
        "error": error and {"type": type(error).__name__, "message": str(error)},
    }
