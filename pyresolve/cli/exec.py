"""pyresolve exec: run a command with the hook."""

from __future__ import annotations

import argparse
import os
import sys

from .._types import Verdict
from ._output import add_pick_arguments, exit_status, pick_from, print_notes, print_text

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127  # as a shell says it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_pick_arguments(parser)
    parser.add_argument(
        "--force", action="store_true", help="run the command although the hook does not load here"
    )
    parser.usage = "%(prog)s [options] [STEM] -- COMMAND ..."


def run(arguments: argparse.Namespace) -> int:
    """Pick, apply the change, and become the command; return only where that did not happen."""
    if not arguments.behind:
        raise ValueError("nothing to run: put the command behind --")
    choice = pick_from(arguments, verify="never" if arguments.force else "auto")
    if choice.verdict is not Verdict.OK and not arguments.force:
        # Without the driver the loader would end the command at once, with status 127.
        message = choice.report.message if choice.report else "not verified"
        print_text(f"pyresolve: not run: {message} (--force runs it all the same)", to_stderr=True)
        return exit_status([choice.verdict])
    print_notes(choice)
    command = arguments.behind
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, {**os.environ, **choice.env()})  # noqa: S606
    except OSError as error:
        print_text(f"pyresolve: {command[0]}: {error.strerror}", to_stderr=True)
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE
