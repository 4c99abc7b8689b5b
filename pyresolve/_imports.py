"""Imports that a fork in another thread does not interrupt.

A child inherits the locks of the modules that were being imported when it was forked, and nobody
is left who would release them: the same import waits there for ever. What is imported when it is
first used, and so in any thread, is imported as

    with importing:
        from .explain import explain

and a fork waits for the end of that.
"""

from __future__ import annotations

import os
from _thread import RLock  # that of threading, which need not be imported for it

# A fork holds the locks of others meanwhile (logging has one), for which the import may wait.
_PATIENCE = 5.0  # seconds


class _Importing:
    def __init__(self) -> None:
        self._lock = RLock()
        self._registered = self._waited = False

    def __enter__(self) -> None:
        self._lock.acquire()
        if not self._registered:
            # Not before the first use: who registers last waits first, and holds nothing then.
            self._registered = True
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._in_child
            )

    def __exit__(self, *error: object) -> None:
        self._lock.release()

    def _before(self) -> None:
        self._waited = self._lock.acquire(timeout=_PATIENCE)

    def _after(self) -> None:
        if self._waited:
            self._lock.release()

    def _in_child(self) -> None:
        if self._waited:
            self._lock.release()
        else:
            self._lock = RLock()


importing = _Importing()
