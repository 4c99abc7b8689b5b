"""pyresolve check: try libraries, each in its own process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._output import exit_status, print_hidden, print_json, print_text

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("libraries", nargs="+", metavar="LIB", help="a path, or a name to search")
    parser.add_argument(
        "--mode",
        choices=("dlopen", "preload"),
        default="dlopen",
        help="opened by a process, or preloaded before it starts (default: %(default)s)",
    )
    parser.add_argument(
        "--after",
        action="append",
        default=[],
        metavar="LIB",
        help="opened before, as a program does; may be repeated",
    )
    parser.add_argument(
        "--python",
        metavar="PYTHON",
        help="the interpreter of a Python extension (default: the one that runs this)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check each library and print one line for it."""
    from .._check.check import check
    from .._document import plain

    reports = [
        check(
            library,
            mode=arguments.mode,
            after=arguments.after,
            python=arguments.python,
        )
        for library in arguments.libraries
    ]
    if arguments.json:
        print_json({"reports": [plain(report) for report in reports]})
    else:
        for report in reports:
            print_text(f"{report.verdict.name}\t{report.status.name}\t{report.message}")
    print_hidden()
    return exit_status(report.verdict for report in reports)
