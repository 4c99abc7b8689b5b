"""The text and the plain data of choices and reports. JSON keys are part of the interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._pick import Choice
    from ._types import Driver, LoadReport, Runtime

SCHEMA = 1
"""The number of the JSON layout: it changes where a key changes its meaning or goes."""


def dotted(version: int | None) -> str | None:
    """Return `12.8` for 12080."""
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def runtime_dict(runtime: Runtime | None) -> dict[str, Any] | None:
    """Return a runtime as plain data."""
    if runtime is None:
        return None
    return {
        "path": str(runtime.path),
        "major": runtime.major,
        "version": dotted(runtime.version),
        "origin": runtime.origin.value,
        "distribution": runtime.distribution,
        "problem": runtime.problem,
    }


def driver_dict(driver: Driver) -> dict[str, Any]:
    """Return a driver as plain data."""
    return {
        "present": driver.present,
        "path": None if driver.path is None else str(driver.path),
        "version": dotted(driver.version),
        "problem": driver.problem,
    }


def report_dict(report: LoadReport) -> dict[str, Any]:
    """Return a report as plain data."""
    return {
        "path": str(report.path),
        "mode": report.mode.value,
        "verdict": report.verdict.value,
        "status": report.status.value,
        "message": report.message,
        "detail": report.detail,
        "remedy": report.remedy,
        "missing": [
            {
                "name": missing.name,
                "needed_by": missing.needed_by,
                "searched": list(missing.searched),
                "elsewhere": [str(path) for path in missing.elsewhere],
                "unusable": list(missing.unusable),
                "supplier": missing.supplier,
            }
            for missing in report.missing
        ],
        "undefined": list(report.undefined),
        "loaded": [str(path) for path in report.loaded],
        "runtime": runtime_dict(report.runtime),
        "driver": driver_dict(report.driver),
        "elapsed": round(report.elapsed, 6),
    }


def choice_dict(choice: Choice) -> dict[str, Any]:
    """Return a choice as plain data."""
    launch = choice._context.launch
    return {
        "schema": SCHEMA,
        "path": str(choice.path),
        "cuda_major": choice.cuda_major,
        "source": choice.source.value,
        "verdict": choice.verdict.value,
        "env": dict(launch.change) if launch else None,
        "runtime": runtime_dict(choice.runtime),
        "driver": driver_dict(choice.driver),
        "evidence": [
            {
                "source": evidence.source.value,
                "major": evidence.major,
                "decided": evidence.decided,
                "text": evidence.text,
            }
            for evidence in choice.evidence
        ],
        "warnings": list(choice.warnings),
        "report": None if choice.report is None else report_dict(choice.report),
    }


def choice_text(choice: Choice) -> str:
    """Return a choice as text: the build, the sources that led to it, the verdict."""
    major = "unknown" if choice.cuda_major is None else choice.cuda_major
    lines = [f"{choice.path}", f"  CUDA {major}, from {choice.source.value}"]
    for evidence in choice.evidence:
        mark = "*" if evidence.decided else " "
        lines.append(f"  {mark} {evidence.source.value}: {evidence.text}")
    message = choice.report.message if choice.report else "not verified"
    lines.append(f"  {choice.verdict.name}: {message}")
    lines += [f"  warning: {warning}" for warning in choice.warnings]
    return "\n".join(lines)
