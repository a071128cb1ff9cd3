"""The library's communicator for a group."""

from __future__ import annotations

import contextlib
import ctypes as c
import itertools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from . import _capi, _groups, _signals, _union
from ._capi import lib
from .errors import EarlierFailure, Error, Status, is_about_step, text_of

T = TypeVar("T")

log = logging.getLogger("libdcp")

_NONE = 2**64 - 1  # no rank has failed


class _Used:
    """A group that the library uses.

    Attributes:
        failed: the exceptions that the group and its duplicates raised.
    """

    def __init__(self, group: _groups.Group, failed: list[BaseException]) -> None:
        self.group = group
        self.failed = failed

    def duplicate(self) -> _Used:
        return _Used(self.group.duplicate(), self.failed)


_used: dict[int, _Used] = {}  # the library's ctx is the key
_keys = itertools.count(1)


def _new_key(used: _Used) -> int:
    key = next(_keys)
    _used[key] = used
    return key


def _bytes(address: int | None, n: int) -> _groups.Bytes:
    if not n:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array((c.c_uint8 * n).from_address(address or 0))


def _words(address: int | None, n: int) -> _groups.Words:
    return _bytes(address, 8 * n).view(np.uint64)


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    """Turns exceptions into the library's communication failure, from which :meth:`Comm.cause` recovers them."""
    def call(key: int, *arguments: Any) -> int:
        used = _used[key]
        try:
            function(used.group, *arguments)
            return 0
        except BaseException as e:  # including KeyboardInterrupt: the other ranks must learn of it
            used.failed.append(e)
            log.error("the group failed: %s: %s", type(e).__name__, e)
            return 1
    return call


def _broadcast(group: _groups.Group, data: int, n: int, root: int) -> None:
    group.broadcast(_bytes(data, n), root)


def _allreduce(group: _groups.Group, words: int, n: int, op: int) -> None:
    group.allreduce(_words(words, n), op)


def _gather(group: _groups.Group, send: int, n: int, receive: int | None, root: int) -> None:
    group.gather(_bytes(send, n), _bytes(receive, n * group.size) if group.rank == root else None, root)


def _alltoall(group: _groups.Group, send: int, send_sizes: Any, receive: int, receive_sizes: Any) -> None:
    out, into = send_sizes[:group.size], receive_sizes[:group.size]
    group.alltoall(_bytes(send, sum(out)), out, _bytes(receive, sum(into)), into)


def _barrier(group: _groups.Group) -> None:
    group.barrier()


def _duplicate(key: int, out: Any) -> int:
    used = _used[key]
    try:
        out[0] = _new_key(used.duplicate())
        return 0
    except BaseException as e:
        used.failed.append(e)
        return 1


def _free(key: int) -> None:
    try:
        _used.pop(key).group.close()
    except BaseException as e:
        log.error("the group failed at its end: %s: %s", type(e).__name__, e)


def _exchange(group: _groups.Group, sends: Any, n_sends: int, receives: Any, n_receives: int) -> None:
    def listed(messages: Any, n: int) -> list[tuple[int, _groups.Bytes]]:
        return [(m.peer, _bytes(m.data, m.bytes)) for m in messages[:n] if m.bytes]
    group.exchange(listed(sends, n_sends), listed(receives, n_receives))


def _table(threads: bool) -> _capi.CommOps:
    return _capi.CommOps(broadcast=_capi.BROADCAST(_guarded(_broadcast)), allreduce=_capi.ALLREDUCE(_guarded(_allreduce)),
                         gather=_capi.GATHER(_guarded(_gather)), alltoall=_capi.ALLTOALL(_guarded(_alltoall)),
                         barrier=_capi.BARRIER(_guarded(_barrier)), duplicate=_capi.DUPLICATE(_duplicate),
                         free=_capi.FREE(_free), threads=threads,
                         exchange=_capi.EXCHANGE(_guarded(_exchange)))


_tables = {threads: _table(threads) for threads in (False, True)}  # never freed, since the library calls them


def _status(failure: BaseException | None) -> int:
    found = failure.failure if isinstance(failure, EarlierFailure) else failure
    if isinstance(found, Error) and is_about_step(found):
        return found.status  # a status of the program's own error would say nothing about the group or the step
    return Status.ARG if found is None or isinstance(found, Exception) else Status.CANCELLED


_EARLIER = f"{EarlierFailure.__name__}: "


def _is_of_transport(failure: BaseException) -> bool:
    """Returns true if the exception means that torch or MPI could not reach a rank; otherwise the group's own code
    raised it."""
    trace = failure.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(failure, RuntimeError) and trace is not None and trace.tb_frame.f_code.co_filename == _groups.__file__


_ASKED = _capi.kept(_capi.STOP(lambda _ctx: _signals.pending() is not None))


@contextlib.contextmanager
def working(group: Any) -> Iterator[Comm]:
    """A communicator for one call: see :meth:`Comm.work`."""
    with _signals.Shield():
        comm = Comm(group)
        try:
            with comm.work():
                yield comm
        finally:
            comm.close()


class Comm:
    """A communicator; freed by :meth:`close`. ``alone``: for this process only, whatever groups exist. If ``group`` is
    a group of :mod:`libdcp._groups`, the caller closes that group afterwards.

    Calls that pass the communicator to the library must be inside a :class:`libdcp._signals.Shield`, since the library
    then calls Python functions."""

    def __init__(self, group: Any = None, *, alone: bool = False) -> None:
        found = None if alone else _groups.find(group)
        handle = c.c_void_p()
        self._process = os.getpid()
        self._key = 0
        self._owns_group = found is not group
        self._failed: list[BaseException] = []  # raised by the group and its duplicates
        self._has_told = False
        self.threads = found is None or found.threads  # whether threads other than this one can use it
        if found is None or found.size == 1:
            lib.comm_self(handle)
        else:
            self._key = _new_key(_Used(found, self._failed))
            lib.comm_from_ops(_tables[found.threads], self._key, found.rank, found.size, handle)
        self.handle: c.c_void_p = handle
        self._seldom = _capi.Seldom(stop=_ASKED, seconds=_signals.ASK_S)
        lib.comm_set_stop(handle, lib.stop_seldom, c.addressof(self._seldom))
        self.rank: int = lib.comm_rank(handle)
        self.size: int = lib.comm_size(handle)

    @property
    def is_of_this_process(self) -> bool:
        """Returns false in a child of fork."""
        return self._process == os.getpid()

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Surrounds collective work: exceptions of signal handlers are raised at its end, and exceptions of the group
        reach the caller."""
        with _signals.Shield():
            try:
                yield
            except Error as e:
                cause = self.cause(e)
                raise cause from cause.__cause__

    def cause(self, error: Error) -> BaseException:
        """The exception to raise instead of an error of the library. The first time, that is the exception that the
        group's own code raised, if it raised one; otherwise it is the error itself."""
        if error.status != Status.COMM or not self._failed:
            return error
        if self._has_told or _is_of_transport(self._failed[0]):
            error.__cause__ = self._failed[0]
            return error
        self._has_told = True
        return self._failed[0]

    def _check(self, code: int) -> None:
        if code:
            raise Error("the group failed; end this rank and start again", status=Status.COMM)

    def _broadcast(self, data: _groups.Bytes, root: int) -> None:
        self._check(_guarded(lambda group: group.broadcast(data, root))(self._key))

    def agree_on(self, parts: list[_union.Part], n: int, failure: BaseException | None) -> None:
        """Unites n parts over the ranks, unless a rank has failed before. Collective.

        Raises:
            BaseException: this rank's failure.
            EarlierFailure: on all ranks, if the first rank that failed had an earlier failure to report.
            libdcp.Error: the failure of another rank, or of the union, which is the same on all ranks.
        """
        try:
            failed = None
            if self._key:
                failed = _union.agree(_used[self._key].group, None if failure else parts, n)
            said, status = ("", Status.ARG) if failed is None else self.told(failure, failed)
        except Error:
            raise
        except BaseException as e:
            self._failed.append(e)
            log.error("the group failed: %s: %s", type(e).__name__, e)
            raise Error("the group failed; end this rank and start again", status=Status.COMM) from e
        if failed is None and failure is None:
            return
        elsewhere = Error(f"rank {failed}: {said.removeprefix(_EARLIER)}", status=status, rank=failed or 0,
                          ranks=(failed or 0,))
        if said.startswith(_EARLIER) or failed is None and isinstance(failure, EarlierFailure):
            raise failure if isinstance(failure, EarlierFailure) else EarlierFailure(elsewhere)
        if failure is not None:
            raise failure.failure if isinstance(failure, EarlierFailure) else failure
        raise elsewhere

    def first(self, number: int, rank: int) -> int:
        """Sends a rank's number, of 64 bits with a sign, to all ranks. Collective."""
        words = np.array([number], np.int64)
        if self._key:
            self._broadcast(words.view(np.uint8), rank)
        return int(words[0])

    def text(self, text: str, rank: int) -> str:
        """Sends a rank's text to all ranks. Collective."""
        if not self._key:
            return text
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).copy()
        length = np.array([len(data)], np.int64)
        self._broadcast(length.view(np.uint8), rank)
        if rank != self.rank:
            data = np.empty(int(length[0]), np.uint8)
        self._broadcast(data, rank)
        return data.tobytes().decode("utf-8", "replace")

    def numbers(self, numbers: Sequence[int]) -> list[int]:
        """Sends rank 0's numbers, of any size, to all ranks. Collective."""
        return [int(word) for word in self.text(f"numbers {' '.join(map(str, numbers))}", 0).split()[1:]]

    def told(self, failure: BaseException | None, rank: int) -> tuple[str, Status]:
        """Sends a rank's failure and its status to all ranks. Collective."""
        said = self.text(text_of(failure), rank)
        return said, Status(self.first(_status(failure), rank))

    def agree_on_same(self, what: str, value: str) -> None:
        """Checks that all ranks have the same value. Collective.

        Raises:
            libdcp.Error: MISMATCH, on all ranks, if the value of some rank differs from that of rank 0.
        """
        other = self._other(value)
        if other is not None:
            first, rank, its = other
            raise Error(f"ranks differ in {what}: rank 0 has {first}, rank {rank} {its}", status=Status.MISMATCH, rank=rank,
                        ranks=(rank,))

    def warn_of_paths(self, path: str) -> None:
        """Warns, on rank 0, if ranks pass different paths. Collective."""
        other = self._other(path)
        if other is not None and self.rank == 0:
            log.warning("%s is used on all ranks, but rank %d passed %s: threads that use libdcp at the same time need "
                        "a group each", path, other[1], other[2])

    def _other(self, value: str) -> tuple[str, int, str] | None:
        """Rank 0's value, the first rank whose value differs, and its value; None if all ranks have the same value.
        Collective."""
        first = self.text(value, 0)
        rank = self._least(_NONE if value == first else self.rank)
        return None if rank == _NONE else (first, rank, self.text(value, rank))

    def all(self, is_so: bool) -> bool:
        """Returns true if ``is_so`` is true on all ranks. Collective."""
        return bool(self._least(int(is_so)))

    def _least(self, word: int) -> int:
        """The smallest of all ranks' words. Collective."""
        words = np.array([word], np.uint64)
        if self._key:
            self._check(_guarded(lambda group: group.allreduce(words, _groups.MIN))(self._key))
        return int(words[0])

    def agree(self, failure: BaseException | None) -> None:
        """Returns if no rank has failed; otherwise raises an exception on all ranks. Collective.

        Args:
            failure: this rank's exception; None: it has not failed.

        Raises:
            BaseException: this rank's failure, even if the group fails, too.
            libdcp.Error: on ranks that have not failed: names the first rank that has, with the text and the status of
                its failure.
        """
        try:
            self.agree_on([], 0, failure)
        except BaseException:
            if failure is not None:
                raise failure
            raise

    def close(self) -> None:
        """In a child of fork, the group stays in memory: it has threads and connections of the parent's."""
        if self.handle:
            lib.comm_destroy(self.handle)
            self.handle = c.c_void_p()
        if self._key and self.is_of_this_process:
            used = _used.pop(self._key)
            self._key = 0
            if self._owns_group:
                used.group.close()


def attempted(comm: Comm, function: Callable[[], T], *, may_be_collective: bool = False) -> T:
    """Returns the function's result on this rank, if no rank's function has raised an exception; otherwise fails on all
    ranks, as :meth:`Comm.agree` does. Collective, and to be called inside a :class:`libdcp._signals.Shield`.

    Args:
        may_be_collective: the function calls functions of the program that may need all ranks, so no signal handler
            interrupts it if there are others.
    """
    made: list[T] = []
    failure = None
    try:
        if may_be_collective and comm.size > 1:
            made.append(function())
            failure = _signals.pending()
        else:
            made.append(_signals.interruptible(function))
    except BaseException as e:
        failure = e
    comm.agree(failure)
    return made[0]
