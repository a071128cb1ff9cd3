"""A store that is a list of directories, fastest first."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _calls, _capi, _checked, _foreign, _locks, _options, _paths, _signals
from ._capi import lib
from ._calls import Loaded
from ._comm import Comm, attempted
from ._directory import step_path, steps
from ._options import Layout, LoadKeywords
from ._sources import fail
from ._state import State
from .errors import Error, Status, has_status, is_about_step, text_of


@dataclass(frozen=True)
class Tier:
    """One directory of a list, such as memory for every step, a disk for some steps, and the shared file system for a
    few. All attributes except path and domain must be the same on all ranks.

    Attributes:
        path: for a private one, "{rank}" represents this rank's number, "{host}" its host's name (DCP_HOST, if
            that is set) and "{env:NAME}" a variable of its environment.
        every: the store is due at the multiples of this number; 0: at no step.
        keep: how many complete steps remain after a save; 0: all.
        keep_every, keep_seconds, keep_best, keep_metric, keep_highest: see :class:`libdcp.Store`.
        private: each host has its own directory, which only its ranks see: in memory, for example.
        redundancy: for a private one, what its saves add so that steps survive the loss of hosts: "none", "partner" or
            "rs(K)".
        layout: for a shared one; a private one is "sharded".
        domain: for a private one, the failure domain of this rank, with braces as in the path; "": its host.
        stripe_count, stripe_bytes: see :class:`libdcp.Store`.
    """

    path: str | os.PathLike[str]
    every: int = 1
    keep: int = 0
    private: bool = False
    redundancy: str = "none"
    layout: Layout = "global"
    domain: str = ""
    stripe_count: int = 0
    stripe_bytes: int = 0
    keep_every: int = 0
    keep_seconds: int = 0
    keep_best: int = 0
    keep_metric: str = ""
    keep_highest: bool = False

    def __post_init__(self) -> None:
        _paths.given(self.path, "path of a libdcp.Tier")
        _checked.checked("libdcp.Tier", {name: getattr(self, name) for name in _checked.TIERS}, _checked.TIERS)

    def struct(self, folder: str) -> _capi.TierStruct:
        """The library's struct.

        Args:
            folder: the working directory when the list was opened.
        """
        return _capi.TierStruct(path=os.fsencode(_paths.anchored(os.fsdecode(self.path), folder)), every=self.every,
                                keep=self.keep, is_private=self.private,
                                redundancy=self.redundancy.encode(), layout=_options.layout_number(self.layout),
                                domain=self.domain.encode() or None, stripe_count=self.stripe_count,
                                stripe_bytes=self.stripe_bytes, keep_every=self.keep_every,
                                keep_seconds=self.keep_seconds, keep_best=self.keep_best,
                                keep_metric=self.keep_metric.encode() or None, keep_highest=self.keep_highest)


def _filled_in(path: str, rank: int) -> str:
    """The path of a private store on this rank."""
    def value(found: re.Match[str]) -> str:
        word = found[1]
        if word.startswith("env:"):
            return os.environ[word[4:]]
        return str(rank) if word == "rank" else os.environ.get("DCP_HOST") or socket.gethostname()
    return re.sub(r"\{([^}]*)\}", value, path)


Inside = Callable[[], contextlib.AbstractContextManager[None]]


class _OlderStep(Error):
    """The newest step is damaged, and no older one may be used."""


class _Flight:
    """A save in the background. Unless a thread does its work, a fence or a wait does, and signal handlers then run
    inside the library."""

    def __init__(self, tiers: Tiers, step: int, failures: _options.Failures) -> None:
        self._tiers = tiers
        self._step = step
        self._failures = failures
        self._saved_into: list[int] = []

    def fence(self) -> None:
        with self._tiers.inside() if self.progress() < 0 else contextlib.nullcontext():
            while not lib.tiers_fence_within(self._tiers.handle, _signals.ASK_S) and _signals.pending() is None:
                pass  # unless it is inside, a handler may close the list here

    def progress(self) -> int:
        return int(lib.tiers_is_done(self._tiers.handle))

    def cancel(self) -> None:
        self._failures.is_cancelled = True

    def wait(self, report: _capi.ReportStruct) -> None:
        self._saved_into = self._tiers.end_background(self._step, self.progress() < 0, report)

    def folders(self) -> list[str]:
        return [self._tiers.folder_of(i, self._step) for i in self._saved_into]


class Tiers:
    """See :class:`libdcp.Store`."""

    def __init__(self, comm: Comm, tiers: Sequence[Tier], replace: bool, take_over: bool,
                 on_filled: Callable[[int, str], None], inside: Inside) -> None:
        """Opens the stores.

        Args:
            on_filled: called, inside the library, with a step and its folder once a store was filled with it.
            inside: returns a context for calls of the library; meanwhile, signal handlers cannot use the list.
        """
        self._comm = comm
        self.ends_alone = comm.threads  # a thread waits for a background save, so no caller has to
        self.inside = inside

        def check() -> None:
            for tier in tiers:
                if not isinstance(tier, Tier):
                    raise TypeError(f"{tier!r} in a list of stores is no libdcp.Tier")
        attempted(comm, check)
        self._n = len(tiers)
        self._given, self._folder = tiers, _paths.here()
        self.handle = c.c_void_p()
        self._on_filled = on_filled
        self._ending = _locks.lock()  # held while a save is being ended, which begins to fill stores
        self._filled = _capi.FILLED(self._note_filled)  # kept alive
        options = _capi.TiersOptions(replace=replace, tool=_options.TOOL, log=_options.LOG, take_over=take_over,
                                     on_filled=self._filled, loads_only=True)
        lib.tiers_open(comm.handle, self._list(), self._n, options, self.handle)

    def look(self) -> None:
        """What rank 0 does when the list is opened."""
        for tier in self._given if self._comm.rank == 0 else ():
            if not tier.private and not steps(tier.path):
                _foreign.warn(os.fspath(tier.path))

    def _list(self) -> c.Array[_capi.TierStruct]:
        return (_capi.TierStruct * self._n)(*[tier.struct(self._folder) for tier in self._given])

    def is_due(self, step: int) -> bool:
        return bool(lib.tiers_is_due(self.handle, step))

    def _note_filled(self, _ctx: Any, i: int, step: int, _begin: float, _end: float) -> None:
        if lib.tiers_has(self.handle, i, step):
            self._on_filled(step, self.folder_of(i, step))

    def folders(self, step: int) -> list[str]:
        """The folders of a step that was saved."""
        return [self.folder_of(i, step) for i in self._holders(step)]

    def _holders(self, step: int) -> list[int]:
        return [i for i in range(self._n) if lib.tiers_has(self.handle, i, step)]

    def folder_of(self, i: int, step: int) -> str:
        given = self._given[i]
        path = os.fsdecode(given.path)
        return step_path(_paths.anchored(_filled_in(path, self._comm.rank) if given.private else path, self._folder), step)

    def save(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions,
             report: _capi.ReportStruct) -> None:
        prepared.failures.follow_cancel(options)
        prepared.call(lib.tiers_save, self.handle, step, prepared.handle, prepared.text,
                      options, True, report)

    def begin(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions) -> _Flight:
        prepared.failures.follow_cancel(options)
        prepared.call(lib.tiers_save_async, self.handle, step, prepared.handle, prepared.text,
                      options)
        return _Flight(self, step, prepared.failures)

    def end_background(self, step: int, is_left: bool, report: _capi.ReportStruct) -> list[int]:
        """Waits for the end of the background save of a step, and begins to fill the stores that wait for it. Returns
        the stores that got the step.

        Args:
            is_left: nobody does the save before this call. Then, or if only one thread can use the group, the call must
                be made on all ranks. Otherwise any thread can make it at any time.
        """
        is_left = is_left or not self.ends_alone
        is_main = threading.current_thread() is threading.main_thread()  # in which signal handlers run
        store = c.c_size_t()
        try:
            with self._ending, self.inside() if is_left or is_main else contextlib.nullcontext():
                if is_left:
                    lib.tiers_wait(self.handle, report)
                    return self._holders(step)
                lib.tiers_wait_in_thread(self.handle, store, report)
                return [store.value] if store.value < self._n else []
        except Error as e:
            raise self._comm.cause(e) from None

    def load(self, state: Mapping[Any, Any] | State, step: int | None, fall_back: bool, options: LoadKeywords) -> Loaded:
        """Loads a step.

        Args:
            fall_back: if the newest step is damaged in all stores that have it, use the next older one.
        """
        newest = None if fall_back or step is not None else max(self.steps(), default=None)
        loaded: list[Loaded] = []
        failed: list[BaseException] = []
        written: dict[str, int] = {}

        def load(_ctx: Any, checkpoint: int, err: Any) -> int:
            try:
                self._refuse_older(lib.checkpoint_step(c.c_void_p(checkpoint)), newest)
                loaded.append(_calls.load_open(c.c_void_p(checkpoint), self._comm, state, options, written))
            except BaseException as e:
                failed.append(e)
                return fail(err, e if self._may_go_on(e) else Error(text_of(e), status=Status.STATE))
            return 0
        try:
            if step is None:
                lib.tiers_load(self.handle, _capi.TIERS_LOAD(load), None, None)
            else:
                lib.tiers_load_step(self.handle, step, _capi.TIERS_LOAD(load), None)
        except Error as e:
            if failed and isinstance(failed[-1], _OlderStep):
                raise self._damage_of(failed) from None
            if failed and e.status not in (Status.CORRUPT, Status.NOT_FOUND) and not self._is_of_other(failed[-1], e):
                raise failed[-1] from None
            raise
        return loaded[-1]

    def _is_of_other(self, failure: BaseException, error: Error) -> bool:
        """Returns true if the library's error is about a copy that it could not read, other than the copy whose load
        raised ``failure``."""
        return error.status in (Status.IO, Status.NO_MEMORY) and not has_status(failure, error.status)

    def _may_go_on(self, failure: BaseException) -> bool:
        """Returns true if the failure's status may make the library try another copy or step: no rank's failure is an
        exception of the program's own functions. The ranks decide together, since the library uses the status of the
        first rank that failed. Collective, unless the group has failed."""
        if has_status(failure, Status.COMM):
            return True  # with this status, the library tries no further steps
        try:
            return self._comm.all(is_about_step(failure))
        except BaseException:  # the group has failed, which the library will notice, too
            return False

    def _damage_of(self, failed: list[BaseException]) -> BaseException:
        """The reason for refusing the first copy of the newest step that could be opened. The log reports copies that
        could not be opened."""
        first = failed[0]
        if isinstance(first, _OlderStep):
            return Error(str(first), status=Status.CORRUPT)
        return first

    def _refuse_older(self, step: int, newest: int | None) -> None:
        """Raises an error for a step older than ``newest``. The error's status is not that of damage, so that the
        library tries no further steps."""
        if newest is not None and step < newest:
            raise _OlderStep(f"step {newest} is whole in none of the {self._n} stores; the log says why. Load step {step} by "
                             "its number, or with fall_back=True", status=Status.STATE)

    def _found(self) -> list[_capi.TiersStep]:
        """The steps of all stores, newest first. If several stores have a step, the faster store comes first."""
        listed = c.POINTER(_capi.TiersStep)()
        n = c.c_size_t()
        lib.tiers_steps(self._comm.handle, self._list(), self._n, listed, n)
        try:
            return [_capi.TiersStep(listed[i].step, listed[i].tier) for i in range(n.value)]
        finally:
            if listed:
                _capi.free(listed)

    def steps(self) -> list[int]:
        return sorted({found.step for found in self._found()})

    def continue_from(self, step: int) -> None:
        lib.tiers_continue_from(self.handle, step)

    def is_filled(self) -> bool:
        """Returns true if no thread of this rank is filling a store."""
        with self._ending:
            return bool(lib.tiers_is_filled(self.handle))

    def close(self) -> None:
        lib.tiers_close(self.handle)
        self.handle.value = None  # a flight, or a thread that has ended a save, may still use the object
