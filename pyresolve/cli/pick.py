"""pyresolve pick: print the path of the build to preload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._output import (
    add_pick_arguments as add_arguments,
    exit_status,
    pick_from,
    print_answer,
    print_json,
    print_notes,
)

if TYPE_CHECKING:
    import argparse

__all__ = ["add_arguments", "run"]


def run(arguments: argparse.Namespace) -> int:
    """Pick, print the path, and say on stderr what a person should know."""
    choice = pick_from(arguments)
    if arguments.json:
        print_json(choice.to_dict())
    else:
        print_answer(str(choice))
    print_notes(choice)
    return exit_status([choice.verdict])
