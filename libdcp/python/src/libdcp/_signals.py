"""Signals while the library works.

Python runs signal handlers on the main thread between any two of its instructions. Their exceptions, such as
KeyboardInterrupt, would be lost in a function that the library has called, and would skip a collective for which other
ranks wait. So while a :class:`Shield` is up, handlers run as usual, but their exceptions are kept: the library is
requested to give up, on all ranks, and the exception is raised after it has returned.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar

from .errors import of_program

T = TypeVar("T")

ASK_S = 0.05  # during a wait, the seconds between two checks whether to give up

_signal: Any = importlib.import_module("_signal")  # signal's own functions look up an enum's member at each call
_NUMBERS = sorted(int(number) for number in signal.valid_signals())
_up: Shield | None = None  # the main thread's current shield


class _Handler:
    """Replaces a handler. If it remains installed after its shield has ended, it only calls the original handler."""

    def __init__(self, shield: Shield, original: Callable[[int, FrameType | None], Any]) -> None:
        self.shield = shield
        self.original = original

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        if not self.shield.is_up:
            return self.original(number, frame)
        try:
            of_program(self.original, number, frame)
        except BaseException as e:
            if self.shield.may_raise:
                self.shield.may_raise = False  # once: a second exception could be raised while this one is being caught
                self.shield.keep_if_ignored(e)
                raise
            if self.shield.first is None:
                self.shield.first = e
        return None


class Shield:
    """Inside ``with Shield():``, exceptions of signal handlers are not raised but kept; the first one is raised at the
    end. An inner shield leaves that to the outer one. On threads other than the main one, a shield does nothing.

    Attributes:
        first: the exception that a handler has raised.
    """

    def __init__(self) -> None:
        self.first: BaseException | None = None
        self.is_up = False
        self.may_raise = False
        self._outer: Shield | None = None
        self._outer_may_raise = False
        self._handlers: list[tuple[int, _Handler]] = []
        self._hooks: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None  # the old hook, and this shield's

    def keep_if_ignored(self, failure: BaseException) -> None:
        """Until :meth:`ignore_again`, keeps the exception if Python would only report it as ignored, because it appears
        in a destructor or in a callback of a weak reference."""
        before = sys.unraisablehook

        def keep(unraisable: Any) -> None:
            if unraisable.exc_value is not failure:
                before(unraisable)
            elif self.first is None:
                self.first = failure
        self._hooks = before, keep
        sys.unraisablehook = keep

    def ignore_again(self) -> None:
        hooks, self._hooks = self._hooks, None
        if hooks and sys.unraisablehook is hooks[1]:
            sys.unraisablehook = hooks[0]

    def __enter__(self) -> Shield:
        global _up
        if threading.get_ident() != threading.main_thread().ident:
            return self
        if _up is not None:
            self._outer = _up
            self._outer_may_raise, _up.may_raise = _up.may_raise, False
            return self
        for number in _NUMBERS:
            found = _signal.getsignal(number)
            if isinstance(found, _Handler):
                found = found.original
            if callable(found):
                handler = _Handler(self, found)
                self._handlers.append((number, handler))
                _signal.signal(number, handler)
        self.is_up = True
        _up = self
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        global _up
        if self._outer is not None:
            self._outer.may_raise = self._outer_may_raise
        if _up is not self:
            return
        _up = None
        self.is_up = False
        self._put_back()
        first, self.first = self.first, None  # it would keep itself alive, through the frames of its traceback
        try:
            if first is not None and first is not value:
                raise first from first.__cause__  # and not from the library's error about it
        finally:
            del first, value

    def _put_back(self) -> None:
        """Restores the handlers, except those that were replaced in the meantime."""
        for number, handler in self._handlers:
            if _signal.getsignal(number) is handler:
                _signal.signal(number, handler.original)


def _lower() -> None:
    """In a child of fork: the call that has the shield up belongs to the parent, and never ends here."""
    global _up
    shield, _up = _up, None
    if shield is not None:
        shield.is_up = False
        shield.ignore_again()
    for number in _NUMBERS:
        found = _signal.getsignal(number)
        if isinstance(found, _Handler):
            _signal.signal(number, found.original)


os.register_at_fork(after_in_child=_lower)


def pending() -> BaseException | None:
    """The exception of a handler on this thread that will be raised at its shield's end."""
    if _up is None or threading.get_ident() != threading.main_thread().ident:
        return None
    return _up.first


def interruptible(function: Callable[[], T]) -> T:
    """Calls a function in which handlers may raise their exceptions: it is not part of a collective, and the caller
    catches BaseException around this call. At most one exception is raised; others are kept."""
    shield = _up if threading.get_ident() == threading.main_thread().ident else None
    if shield is None:
        return function()
    shield.may_raise = shield.first is None
    try:
        return function()
    finally:
        shield.may_raise = False
        shield.ignore_again()
