"""Calls the program's function for steps that have become durable."""

from __future__ import annotations

import collections
import logging
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

    @property
    def is_used(self) -> bool:
        return self._function is not None

    def note(self, step: int, path: str) -> None:
        """Records that the step is in that folder. Any thread may call it, even from inside the library."""
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
        while self._function:
            try:
                step, path = self._waiting.popleft()
            except IndexError:  # another thread may call it at the same time
                return
            self._function(step, path)

    def report_quietly(self) -> None:
        """Calls the function where nobody can catch its exceptions: logs them, and keeps the first one."""
        try:
            self._call()
        except BaseException as e:
            log.error("on_published has raised an exception: %r", e)
            self._failure = self._failure or e
