"""Locks that are renewed in a child of fork. Otherwise some of the inherited locks might be held forever, by threads
that the child does not have."""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import Any

# Not a WeakSet, which calls a Python function for each lock that is destroyed: a signal's exception would be lost in
# that function.
_made: dict[int, weakref.ref[Any]] = {}
_keys = itertools.count()
_most = 64  # the number of locks at which destroyed ones are next removed


def lock() -> Any:
    """A reentrant lock."""
    global _most
    made = threading.RLock()
    _made[next(_keys)] = weakref.ref(made)
    if len(_made) > _most:
        for key in [key for key, found in list(_made.items()) if found() is None]:
            _made.pop(key, None)
        _most = 2 * len(_made) + 64
    return made


def _renew() -> None:
    for found in list(_made.values()):
        made = found()
        if made is not None:
            made._at_fork_reinit()


os.register_at_fork(after_in_child=_renew)
