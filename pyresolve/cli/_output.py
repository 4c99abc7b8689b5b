"""What the commands share: exit statuses, JSON, the options of pick."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from .._document import SCHEMA
from .._model import Verdict

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from .._pick.pick import Choice

STEM = "torch_memory_saver_hook_mode_preload"
STEM_HELP = "file name of the hook up to _cuNN (default: %(default)s)"

_STATUS = {Verdict.OK: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}


def exit_status(verdicts: Iterable[Verdict]) -> int:
    """Return the exit status for several verdicts: one FAIL fails, else one UNKNOWN counts."""
    statuses = {_STATUS[verdict] for verdict in verdicts}
    return next((status for status in (1, 3) if status in statuses), 0)


def print_json(document: dict[str, Any]) -> None:
    """Print one JSON document on stdout, with the number of its schema first."""
    import json

    print(json.dumps({"schema": SCHEMA, **document}, indent=2, ensure_ascii=True))


def print_answer(text: str) -> None:
    """Print what another program is to read: the bytes that a path is, whatever the locale."""
    sys.stdout.flush()
    sys.stdout.buffer.write(os.fsencode(text) + b"\n")


def print_text(text: str, *, to_stderr: bool = False) -> None:
    """Print text for people; a path may hold what no locale encodes."""
    stream = sys.stderr if to_stderr else sys.stdout
    encoding = stream.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)


def pick_from(arguments: argparse.Namespace, *, verify: str = "auto") -> Choice:
    """Pick with the arguments that add_pick_arguments added."""
    from .._pick.pick import pick

    return pick(
        arguments.stem,
        package=arguments.package,
        python=arguments.python,
        cuda=arguments.cuda,
        verify=verify,
    )


def print_hidden() -> None:
    """Say on stderr which directories in variables this user may not look into."""
    from .._disk.cuda import hidden

    for text in hidden(os.environ):
        print_text(f"pyresolve: warning: {text}", to_stderr=True)


def print_notes(choice: Choice) -> None:
    """Say on stderr what a person should know about a choice."""
    for warning in choice.warnings:
        print_text(f"pyresolve: warning: {warning}", to_stderr=True)
    if choice.verdict is Verdict.UNKNOWN and choice.report:
        print_text(f"pyresolve: unknown: {choice.report.message}", to_stderr=True)


def add_pick_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say which hook is wanted and for what."""
    parser.add_argument("stem", nargs="?", default=STEM, metavar="STEM", help=STEM_HELP)
    parser.add_argument(
        "--package",
        default="torch_memory_saver",
        metavar="P",
        help="the package that ships it (default: %(default)s)",
    )
    parser.add_argument(
        "--python", metavar="EXE", help="the interpreter of the workers (default: this one)"
    )
    parser.add_argument("--cuda", metavar="N", help="the CUDA version of the workers: 12, 12.8")
