"""Calls the program's function for steps that have become durable."""

from __future__ import annotations

import collections
import logging
import threading
from collections.abc import Callable

log = logging.getLogger("libdcp")

OnPublished = Callable[[int, str], None]


class Published:
    """The steps for which the program's function is still to be called.

    Args:
        function: gets a step's number and its folder; None: nothing is called.
    """

    def __init__(self, function: OnPublished | None) -> None:
        self._function = function
        self._waiting: collections.deque[tuple[int, str]] = collections.deque()
        self._failure: BaseException | None = None
        self._inside: set[int] = set()  # the threads that are inside the function

    @property
    def is_used(self) -> bool:
        return self._function is not None

    def note(self, step: int, path: str) -> None:
        """Records that the step is in that folder. Any thread can call this, even from inside the library."""
        if self._function and (step, path) not in self._waiting:
            self._waiting.append((step, path))

    def report(self) -> None:
        """Calls the function; raises its exceptions, and those that :meth:`report_quietly` has kept."""
        self._call()
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # which would keep itself alive, through the frames of its traceback, and with them the store

    def _call(self) -> None:
        thread = threading.get_ident()
        while self._function and thread not in self._inside:  # the function may use the store, which reports
            try:
                step, path = self._waiting.popleft()
            except IndexError:  # none are left, perhaps because another thread took the last one
                return
            self._inside.add(thread)
            try:
                self._function(step, path)
            finally:
                self._inside.discard(thread)

    def report_quietly(self) -> None:
        """Calls the function where nobody can catch its exceptions: logs them, and keeps the first one."""
        try:
            self._call()
        except BaseException as e:
            log.error("on_published has raised an exception: %r", e)
            self._failure = self._failure or e
