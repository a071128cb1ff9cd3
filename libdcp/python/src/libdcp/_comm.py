"""The library's communicator of a group."""

from __future__ import annotations

import ctypes as c
import logging
from collections.abc import Callable
from typing import Any

import numpy as np

from . import _capi, _groups, _union
from ._capi import lib
from .errors import EarlierFailure, Error, Status, status_of

log = logging.getLogger("libdcp")

_NONE = 2**64 - 1  # no rank has failed
_groups_by_key: dict[int, _groups.Group] = {}  # the library's ctx is a key
_last_key = 0


def _new_key(group: _groups.Group) -> int:
    global _last_key
    _last_key += 1
    _groups_by_key[_last_key] = group
    return _last_key


def _bytes(address: int | None, n: int) -> _groups.Bytes:
    if not n:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((c.c_uint8 * n).from_address(address or 0))


def _words(address: int | None, n: int) -> _groups.Words:
    return _bytes(address, 8 * n).view(np.uint64)


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    """Exceptions become the library's communication failure; they are logged, since it can't carry them."""
    def call(*arguments: Any) -> int:
        try:
            function(*arguments)
            return 0
        except BaseException as e:  # also KeyboardInterrupt: the other ranks have to learn of it
            log.error("the group failed in %s: %s: %s", function.__name__.strip("_"), type(e).__name__, e)
            return 1
    return call


def _broadcast(key: int, data: int, n: int, root: int) -> None:
    _groups_by_key[key].broadcast(_bytes(data, n), root)


def _allreduce(key: int, words: int, n: int, op: int) -> None:
    _groups_by_key[key].allreduce(_words(words, n), op)


def _gather(key: int, send: int, n: int, receive: int | None, root: int) -> None:
    group = _groups_by_key[key]
    group.gather(_bytes(send, n), _bytes(receive, n * group.size) if group.rank == root else None, root)


def _alltoall(key: int, send: int, send_sizes: Any, receive: int, receive_sizes: Any) -> None:
    group = _groups_by_key[key]
    out, into = send_sizes[:group.size], receive_sizes[:group.size]
    group.alltoall(_bytes(send, sum(out)), out, _bytes(receive, sum(into)), into)


def _barrier(key: int) -> None:
    _groups_by_key[key].barrier()


def _duplicate(key: int, out: Any) -> None:
    out[0] = _new_key(_groups_by_key[key].duplicate())


def _free(key: int) -> None:
    _groups_by_key.pop(key).close()


def _exchange(key: int, sends: Any, n_sends: int, receives: Any, n_receives: int) -> None:
    def listed(messages: Any, n: int) -> list[tuple[int, _groups.Bytes]]:
        return [(m.peer, _bytes(m.data, m.bytes)) for m in messages[:n] if m.bytes]
    _groups_by_key[key].exchange(listed(sends, n_sends), listed(receives, n_receives))


def _table(threads: bool) -> _capi.CommOps:
    return _capi.CommOps(broadcast=_capi.BROADCAST(_guarded(_broadcast)), allreduce=_capi.ALLREDUCE(_guarded(_allreduce)),
                         gather=_capi.GATHER(_guarded(_gather)), alltoall=_capi.ALLTOALL(_guarded(_alltoall)),
                         barrier=_capi.BARRIER(_guarded(_barrier)), duplicate=_capi.DUPLICATE(_guarded(_duplicate)),
                         free=_capi.FREE(lambda key: None if _guarded(_free)(key) else None), threads=threads,
                         exchange=_capi.EXCHANGE(_guarded(_exchange)))


_tables = {threads: _table(threads) for threads in (False, True)}  # kept: the library calls them


def _status(failure: BaseException | None) -> int:
    found = failure.failure if isinstance(failure, EarlierFailure) else failure
    return found.status if isinstance(found, Error) else Status.ARG


_EARLIER = f"{EarlierFailure.__name__}: "


class Comm:
    """A communicator; freed by :meth:`close`. ``alone``: of this process, whatever groups there are."""

    def __init__(self, group: Any = None, *, alone: bool = False) -> None:
        found = None if alone else _groups.find(group)
        handle = c.c_void_p()
        self._key = 0
        self.threads = found is None or found.threads  # whether other threads than this one can use it
        if found is None or found.size == 1:
            lib.comm_self(c.byref(handle))
        else:
            self._key = _new_key(found)
            lib.comm_from_ops(c.byref(_tables[found.threads]), self._key, found.rank, found.size, c.byref(handle))
        self.handle: c.c_void_p = handle
        self.rank: int = lib.comm_rank(handle)
        self.size: int = lib.comm_size(handle)

    def agree_on(self, parts: list[_union.Part], n: int, failure: BaseException | None) -> None:
        """Unites n parts over the ranks, unless one has failed before. Collective.

        Raises:
            BaseException: this rank's failure.
            EarlierFailure: on all ranks, where the first one that failed had an earlier failure to tell.
            libdcp.Error: that of another rank, or of the union, which is the same on all ranks.
        """
        try:
            failed = None
            if self._key:
                failed = _union.agree(_groups_by_key[self._key], None if failure else parts, n)
            said = "" if failed is None else self.text(f"{type(failure).__name__}: {failure}", failed)
            status = Status.ARG if failed is None else self.first(_status(failure), failed)
        except Error:
            raise
        except Exception as e:
            log.error("the group failed: %s: %s", type(e).__name__, e)
            raise Error("the group failed; end this rank and start again", status=Status.COMM) from e
        if failed is None and failure is None:
            return
        elsewhere = Error(f"rank {failed}: {said.removeprefix(_EARLIER)}", status=Status(status), rank=failed or 0,
                          ranks=(failed or 0,))
        if said.startswith(_EARLIER) or failed is None and isinstance(failure, EarlierFailure):
            raise failure if isinstance(failure, EarlierFailure) else EarlierFailure(elsewhere)
        if failure is not None:
            raise failure.failure if isinstance(failure, EarlierFailure) else failure
        raise elsewhere

    def first(self, number: int, rank: int = 0) -> int:
        """Rank 0's number, or another one's. Collective."""
        words = np.array([number], np.int64)
        if self._key:
            _groups_by_key[self._key].broadcast(words.view(np.uint8), rank)
        return int(words[0])

    def text(self, text: str, rank: int) -> str:
        """A rank's text, on all ranks. Collective."""
        if not self._key:
            return text
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).copy()
        length = np.array([len(data)], np.int64)
        group = _groups_by_key[self._key]
        group.broadcast(length.view(np.uint8), rank)
        if rank != self.rank:
            data = np.empty(int(length[0]), np.uint8)
        group.broadcast(data, rank)
        return data.tobytes().decode("utf-8", "replace")

    def all(self, is_so: bool) -> bool:
        """Whether it is so on all ranks. Collective."""
        words = np.array([is_so], np.uint64)
        if self._key:
            _groups_by_key[self._key].allreduce(words, _groups.MIN)
        return bool(words[0])

    def agree(self, failure: BaseException | None) -> None:
        """Raises this rank's failure, and on the other ranks that it has failed. Collective.

        Raises:
            libdcp.Error: with the status of the first rank that failed.
        """
        word = _NONE if failure is None else self.rank << 8 | -status_of(failure)
        words = np.array([word], np.uint64)
        if self._key and _guarded(_groups_by_key[self._key].allreduce)(words, _groups.MIN) and failure is None:
            raise Error("the group failed; end this rank and start again", status=Status.COMM)
        if failure is not None:
            raise failure
        if words[0] != _NONE:
            first, status = divmod(int(words[0]), 256)
            raise Error(f"rank {first} failed by an exception of its own, which it has raised", status=Status(-status),
                        rank=first, ranks=(first,))

    def close(self) -> None:
        if self.handle:
            lib.comm_destroy(self.handle)
            self.handle = c.c_void_p()
        if self._key:
            _groups_by_key.pop(self._key).close()
            self._key = 0
