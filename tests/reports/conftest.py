"""What a user reads in each case: recorded by `says`, printed by `make messages`.

A test that answers a report is named after it, `test_r17_…`, has the symptom as its docstring, and
carries the marker `report` with the public sources. Its neighbours are named `test_like_r17_…`: the
same kind of fault as nobody has reported it yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.compile import workshop

_NAME = re.compile(r"test_(?P<like>like_)?(?P<id>[rn]\d\d[ab]?)_")
_KEY = pytest.StashKey["dict[str, _Case]"]()


@dataclass
class _Case:
    """One test: the report it belongs to, its kind, and what was said."""

    report: str
    like: bool
    kind: str
    symptom: str
    sources: str
    said: list[str] = field(default_factory=list)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two ways to read the messages."""
    parser.addoption("--messages", action="store_true", help="print what a user reads in each case")
    parser.addoption(
        "--table", type=Path, metavar="FILE", help="write the table of reports to FILE"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Prepare the record."""
    config.stash[_KEY] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Enter every case, so that one that says nothing is in the table as well."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        match = _NAME.match(name)
        if not match or not isinstance(item, pytest.Function):
            continue
        marker = item.get_closest_marker("report")
        config.stash[_KEY].setdefault(
            name,
            _Case(
                report=match["id"].upper(),
                like=match["like"] is not None,
                kind=(item.module.__doc__ or "").partition("\n")[0].rstrip("."),
                symptom=(item.function.__doc__ or "").partition("\n")[0].rstrip("."),
                sources=", ".join(marker.args) if marker else "",
            ),
        )


@pytest.fixture
def says(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[object], str]:
    """Return a function that records a message to a user, holds it to the rules and returns it.

    One sentence, without a full stop at its end, in one line, and no Python in it.
    """

    def record(message: object) -> str:
        text = str(message)
        assert text
        assert "\n" not in text, text
        assert not text.endswith("."), text
        assert "Traceback" not in text, text
        case = request.config.stash[_KEY].get(request.node.originalname)
        shown = _shortened(text, tmp_path)
        if case and shown not in case.said:
            case.said.append(shown)
        return text

    return record


def _shortened(text: str, tmp_path: Path) -> str:
    """Replace what differs from run to run, so that the table does not."""
    places = {
        f"{tmp_path}/site-packages": "P",
        str(tmp_path): "/tmp",
        str(workshop()): "/tmp",
        sys.prefix: "/venv",
        sys.base_prefix: "/usr",
    }
    for place, short in places.items():
        text = text.replace(place, short)
    text = re.sub(r"/tmp/tmp\w{8}/", "/tmp/", text)
    text = re.sub(r"/tmp/driver-\w{8}/", "/tmp/driver/", text)
    text = re.sub(r"\bprocess \d+", "process 4711", text)
    text = re.sub(r"/proc/\d+/", "/proc/4711/", text)
    return re.sub(r"/[\w./-]*/pytest-of-\w+/pytest-\d+/[\w-]+\d+/", "/tmp/", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the messages, and write the table, where that was asked for."""
    config = terminalreporter.config
    cases = sorted(
        config.stash[_KEY].values(), key=lambda case: (case.kind, case.like, case.report)
    )
    if config.getoption("--messages"):
        for case in cases:
            near = "like " if case.like else ""
            terminalreporter.write_line(f"\n{near}{case.report}  {case.symptom}")
            for said in case.said:
                terminalreporter.write_line(f"    {said}")
    if target := config.getoption("--table"):
        target.write_text(_table(cases))


def _table(cases: list[_Case]) -> str:
    lines = ["# Public reports, and what pyresolve says", ""]
    lines += [
        "Written by `make messages` from `tests/reports`. P is the site-packages directory.",
        "",
    ]
    for kind in dict.fromkeys(case.kind for case in cases):
        lines += [f"## {kind}", "", "| report | symptom | what pyresolve says |", "|---|---|---|"]
        for case in cases:
            if case.kind == kind:
                said = (
                    "<br>".join(text.replace("|", "\\|") for text in case.said)
                    or "nothing: it works"
                )
                name = (
                    f"like {case.report}" if case.like else f"{case.report} {case.sources}".strip()
                )
                lines.append(f"| {name} | {case.symptom} | {said} |")
        lines.append("")
    return "\n".join(lines)
