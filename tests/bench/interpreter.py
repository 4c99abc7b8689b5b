"""A fresh interpreter that does one thing when told to, and says how long it took.

    python -m bench.interpreter [--resident BYTES] [--site DIRECTORY]

A command is a line: what to do, and words of its own. The answer is a line of JSON: nanoseconds,
and what came out.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.process import maps, rss_kib

import pyresolve

_PAGE = mmap.PAGESIZE


class Interpreter:
    """The caller's end."""

    def __init__(
        self, *options: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = ()
    ) -> None:
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", __name__, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            cwd=Path(__file__).parents[1],
        )

    def __enter__(self) -> Interpreter:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=60)

    def ask(self, *words: str) -> tuple[int, Any]:
        """Have one command done; return its nanoseconds and its outcome."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin
        assert stdout
        stdin.write(" ".join(words) + "\n")
        stdin.flush()
        answer = stdout.readline()
        if not answer:
            raise RuntimeError(f"the interpreter ended at {words}: {self._process.wait(60)}")
        nanoseconds, outcome = json.loads(answer)
        return nanoseconds, outcome

    def side(self, *words: str, outcome: object) -> Callable[[], int]:
        """Return the side that is this command, which must come out as it is said."""

        def side() -> int:
            nanoseconds, actual = self.ask(*words)
            assert actual == outcome, f"{words} came out as {actual}, not as {outcome}"
            return nanoseconds

        return side


def _resident(size: int) -> mmap.mmap:
    """Return memory that is really there, in small pages: what a fork would have to copy."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    memory[::_PAGE] = b"\1" * (size // _PAGE)
    assert rss_kib() >= size // 1024
    return memory


def _check(path: str) -> str:
    return pyresolve.check(path).status.value


def _pick() -> str:
    return pyresolve.pick().verdict.value


def _fork() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return os.waitpid(pid, 0)[1]


def _foreign(site: str) -> list[str]:
    """Return what is imported or mapped here and should not be."""
    files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
    files += maps()
    names = ("/libcudart.so", "/libcuda.so", "/libc10")
    return sorted({f for f in files if f.startswith(site) or any(name in f for name in names)})


def main() -> None:
    """Obey until the end of stdin."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--resident", type=int, default=_PAGE)
    parser.add_argument("--site")
    options = parser.parse_args()
    memory = _resident(options.resident)
    if options.site:
        sys.path.insert(0, options.site)
        choice = pyresolve.pick()
    for line in sys.stdin:
        match line.split():
            case ["check", path]:
                action = lambda path=path: _check(path)  # noqa: E731
            case ["pick"]:
                action = _pick
            case ["env", pin]:
                action = lambda pin=pin: sorted(choice.env(pin=pin))  # noqa: E731
            case ["fork"]:
                action = _fork
            case ["foreign"]:
                action = lambda: _foreign(options.site)  # noqa: E731
            case words:
                raise ValueError(f"unknown command: {words}")
        begin = time.perf_counter_ns()
        outcome = action()
        print(json.dumps((time.perf_counter_ns() - begin, outcome)), flush=True)
    memory.close()


if __name__ == "__main__":
    main()
