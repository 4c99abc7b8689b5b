"""The end of the benchmark that asks: it starts the processes that measure, and ends them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from ._interrupt import Interrupt
from ._methods import Unmeasurable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._sampling import Side

_START = (
    "import sys; sys.path[:1] == [''] and sys.path.pop(0);"
    " from pyresolve.bench._worker import main; main()"
)
_TIMEOUT = 180.0  # seconds for one request, more than the longest that a method grants
_ALLOCATION = 256 << 20  # bytes in a second, on a very slow machine


class Caller:
    """A fresh interpreter that measures what it is told.

    `resident` is how much memory it holds in all, in bytes, as soon as it is entered. It gets a
    session of its own: a Ctrl-C on the terminal is for the benchmark to act upon.
    """

    resident = 0

    def __init__(
        self, library: str, *, environ: Mapping[str, str], interrupt: Interrupt, extra: int = 0
    ) -> None:
        self._interrupt = interrupt
        self._extra = extra
        self._lines = b""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", _START, library, str(extra)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )

    def __enter__(self) -> Caller:
        try:
            answer = self._answer(_TIMEOUT + self._extra / _ALLOCATION)
            self.resident = answer["resident"]
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        try:
            process.wait(5)  # it ends what it is at, and waits for what it has started
        except BaseException as error:  # in vain, or another Ctrl-C
            # What it waits for may hang, and is in its session; a helper ends with who started it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        process.stdout.close()  # type: ignore[union-attr]

    def ask(self, **request: Any) -> dict[str, Any]:  # noqa: ANN401
        """Have it do one thing; return what it says.

        Raises Unmeasurable where it could not, Interrupted where the user wants an end.
        """
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Unmeasurable("the process that measures has ended") from None
        return self._answer(_TIMEOUT)

    def side(self, method: str) -> Side:
        """Return the side that is this method."""
        return lambda: int(self.ask(method=method)["taken"])

    def _answer(self, timeout: float) -> dict[str, Any]:
        assert self._process.stdout
        fd = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        end = time.monotonic() + timeout
        while b"\n" not in self._lines:
            self._interrupt.heed()
            if time.monotonic() > end:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                raise Unmeasurable(f"it did not end within {timeout:.0f} s")
            if poll.poll(100):  # milliseconds; it answers at once, this is for the interrupt
                part = os.read(fd, 65536)
                if not part:
                    raise Unmeasurable("the process that measures has ended")
                self._lines += part
        line, _, self._lines = self._lines.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "problem" in answer:
            raise Unmeasurable(answer["problem"])
        return answer
