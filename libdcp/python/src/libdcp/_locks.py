"""Locks that a child of fork has anew: of those that it inherits, threads that it lacks may hold some for ever."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

_made: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> Any:
    """A lock that its thread may take again."""
    made = threading.RLock()
    _made.add(made)
    return made


def _renew() -> None:
    for made in list(_made):
        made._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
