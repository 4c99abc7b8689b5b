"""pyresolve env: print the variables that must change, for eval."""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING

from .._model import Verdict
from ._output import (
    add_pick_arguments,
    exit_status,
    pick_from,
    print_answer,
    print_json,
    print_notes,
)

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_pick_arguments(parser)
    parser.add_argument(
        "--shell",
        choices=("sh", "fish", "json", "dotenv"),
        default="sh",
        help="the language to print in (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Pick, and print the change of the environment."""
    choice = pick_from(arguments)
    change = choice.env()
    if arguments.json:
        print_json(choice.to_dict())
    elif choice.verdict is Verdict.FAIL:
        pass  # an environment that is known not to work is no answer
    elif arguments.shell == "json":
        print_answer(json.dumps(change))
    else:
        for name, value in change.items():
            print_answer(_line(arguments.shell, name, value))
    print_notes(choice)
    return exit_status([choice.verdict])


def _line(shell: str, name: str, value: str) -> str:
    if shell == "fish":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"set -gx {name} '{escaped}'"
    if shell == "dotenv":
        if re.fullmatch(r"[\w/.:+@%,-]*", value):
            return f"{name}={value}"
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"{name}='{escaped}'"
    return f"export {name}={shlex.quote(value)}"
