"""The command line. Nothing outside this package prints.

stdout carries the answer alone, stderr the rest. Exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from .._errors import OverrideError, PyresolveError
from . import audit, check, doctor, env, exec as exec_, pick

if TYPE_CHECKING:
    from collections.abc import Sequence

_USAGE = 2
_INTERRUPTED = 130

_COMMANDS = {
    "pick": pick,
    "env": env,
    "exec": exec_,
    "check": check,
    "doctor": doctor,
    "audit": audit,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="pyresolve",
        description="Pick the build of a GPU hook library that will really load in the workers.",
        epilog="exit status: 0 OK, 1 FAIL, 2 usage, 3 UNKNOWN (no driver on this host)",
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, module in _COMMANDS.items():
        summary = (module.__doc__ or "").partition("\n")[0].partition(": ")[2].rstrip(".")
        command = subparsers.add_parser(name, help=summary, description=summary)
        module.add_arguments(command)
        command.add_argument("--json", action="store_true", help="one JSON document on stdout")
        command.set_defaults(run=module.run)
    words, behind = _split(list(sys.argv[1:] if argv is None else argv))
    arguments = parser.parse_args(words, argparse.Namespace(behind=behind))
    try:
        return int(arguments.run(arguments))
    except (OverrideError, ValueError) as error:
        return _refuse(arguments, error, _USAGE)
    except PyresolveError as error:
        return _refuse(arguments, error, 1)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of stdout went away: nothing is left to say, not even at exit.
        sys.stdout = None
        return 1


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Take what follows `--` off the words of exec: argparse would take it for ours."""
    if words[:1] == ["exec"] and "--" in words:
        at = words.index("--")
        return words[:at], words[at + 1 :]
    return words, []


def _refuse(arguments: argparse.Namespace, error: Exception, status: int) -> int:
    if arguments.json:
        from ._output import print_json

        remedy = getattr(error, "remedy", None)
        print_json({"error": type(error).__name__, "message": str(error), "remedy": remedy})
    print(f"pyresolve: {error}", file=sys.stderr)
    return status
