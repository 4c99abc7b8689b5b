"""Ctrl-C, which loses nothing."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Interrupted(Exception):  # noqa: N818  (asked for)
    """The user wants no more samples."""


class Interrupt:
    """Ctrl-C as a wish: the first lets what is measured end in order, the second is the usual one.

    So no sample is torn apart, and no child is left between its start and its wait.
    """

    def __init__(self) -> None:
        self.wished = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        here = threading.current_thread() is threading.main_thread()
        if here and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._wish)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _wish(self, _number: int, _frame: object) -> None:
        self.wished = True
        signal.signal(signal.SIGINT, self._before)

    def heed(self) -> None:
        """Raise Interrupted where the user wants an end."""
        if self.wished:
            raise Interrupted
