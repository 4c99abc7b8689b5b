"""pyresolve ray: what is true of the nodes of a Ray cluster."""

from __future__ import annotations

import importlib
import os
import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .._errors import PyresolveError
from ._output import STEM, STEM_HELP, exit_status, print_answer, print_json, print_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from ..ray import Node

_HEADINGS = ("host", "GPU", "driver", "torch", "runtimes", "build", "verdict", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands and their arguments."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, summary, add, run in (
        ("survey", "ask every node what it would do", _survey_arguments, _survey),
        (
            "start",
            "print the line that starts a worker with the hook, for runtime_env()",
            _start_arguments,
            _start,
        ),
    ):
        command = commands.add_parser(name, help=summary, description=summary)
        command.add_argument(
            "--package",
            default="torch_memory_saver",
            metavar="P",
            help="the package that ships it (default: %(default)s)",
        )
        add(command)
        command.set_defaults(act=run)


def run(arguments: argparse.Namespace) -> int:
    """Run one of the commands, which need Ray."""
    try:
        importlib.import_module("..ray", __package__)
    except ImportError as error:
        raise PyresolveError(str(error)) from None
    return int(arguments.act(arguments))


def _start_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stem", default=STEM, metavar="STEM", help=STEM_HELP)
    parser.add_argument("--cuda", metavar="N", help="the CUDA version of the workers: 12, 12.8")
    parser.add_argument("--timeout", type=float, default=10.0, metavar="S", help="seconds")
    parser.add_argument(
        "command", metavar="COMMAND", help="a py_executable as Ray takes it; empty: this Python"
    )


def _start(arguments: argparse.Namespace) -> int:
    """Print the shell line that starts the worker, or the one that has it end with the reason."""
    from ..ray import _refuse, _start
    from ..ray._options import Options

    options = Options(
        stem=arguments.stem,
        package=arguments.package,
        cuda=arguments.cuda,
        timeout=arguments.timeout,
    )
    own = shlex.quote(sys.executable)
    command = arguments.command or own
    try:
        start = _start.prepare(command, options, environ=os.environ)
    except (PyresolveError, ValueError) as error:
        reason = _start.refusal(error)
        print_text(f"pyresolve: {reason}", to_stderr=True)
        line = _start.hooked(own, _refuse.environment(reason))
    else:
        for warning in start.warnings:
            print_text(f"pyresolve: warning: {warning}", to_stderr=True)
        line = _start.hooked(command, start.change)
    print_answer(f"exec {line}")
    return 0


def _survey_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stem", nargs="?", default=STEM, metavar="STEM", help=STEM_HELP)
    parser.add_argument("--address", metavar="A", help="of the cluster (default: as Ray finds it)")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds for all")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")


def _survey(arguments: argparse.Namespace) -> int:
    """Ask the nodes and print a row for each."""
    from ..ray import survey

    with _progress() as progress:
        result = survey(
            arguments.address,
            stem=arguments.stem,
            package=arguments.package,
            timeout=arguments.timeout,
            progress=progress,
        )
    if arguments.json:
        print_json(result.to_dict())
    else:
        for line in _table([list(_HEADINGS), *map(_row, result.nodes)]):
            print_text(line)
    return exit_status(node.verdict for node in result.nodes)


def _row(node: Node) -> list[str]:
    """Return the cells of one node; a star stands at what most of the others have otherwise."""
    build = Path(node.build).name if node.build else None
    cells = {
        "gpu": node.gpu,
        "driver": node.driver,
        "torch": node.torch,
        "runtimes": " ".join(node.runtimes),
        "build": build,
        "verdict": node.verdict.name,
    }
    starred = [f"{v or '-'}{'*' if k in node.differs else ''}" for k, v in cells.items()]
    return [node.host, *starred, node.message]


def _table(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on a terminal, if rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield None
        return
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("asking the nodes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
