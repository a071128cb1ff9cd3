"""The keywords of calls, converted to the library's structs; and the calls' reports."""

from __future__ import annotations

import ctypes as c
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

from . import _capi, _checked, _signals
from ._capi import lib
from .errors import of_program

log = logging.getLogger("libdcp")

Layout = Literal["global", "sharded"]
Engine = Literal["auto", "direct", "mpio"]
Replicas = Literal["check", "warn", "trust"]
Progress = Callable[[int, int], None]


class SaveKeywords(TypedDict, total=False):
    """Keywords of saves; :func:`libdcp.save` documents them."""

    layout: Layout
    engine: Engine
    shards: int
    about: str | Mapping[str, Any] | None
    staging_bytes: int
    replicas: Replicas
    make_room: bool
    progress: Progress | None


class LoadKeywords(TypedDict, total=False):
    """Keywords of loads; :func:`libdcp.load` documents them."""

    only: str | Sequence[str] | None
    rename: Mapping[str, str] | None
    cast: bool
    strict: bool
    engine: Engine
    progress: Progress | None


class ProveKeywords(TypedDict, total=False):
    """Keywords of :func:`libdcp.prove`."""

    replicas: Replicas


MPIO = 2
REPLICAS: tuple[Replicas, ...] = ("check", "warn", "trust")  # by number


@dataclass(frozen=True)
class Report:
    """The size of a save or load, and how long its parts took, in seconds on this rank.

    Attributes:
        bytes: the size of all ranks' tensors.
        cloned_bytes: the part of these that was not written, but shared with the last step's file.
        unchanged: the number of tensors with the same bytes as in the store's previous save.
        slow_rank: the rank for which all others waited; None if none was slow.
        slow_ratio: that rank's time per byte, divided by the median rank's.
        slow_host: that rank's host; known only on rank 0.
    """

    bytes: int
    cloned_bytes: int
    unchanged: int
    engine: str
    total_s: float
    plan_s: float
    gather_s: float
    copy_s: float
    write_s: float
    sync_s: float
    publish_s: float
    slow_rank: int | None
    slow_ratio: float
    slow_host: str


def report_of(r: _capi.ReportStruct) -> Report:
    slow = r.slow_ratio > 0
    return Report(r.bytes, r.cloned_bytes, r.unchanged, _checked.ENGINES[r.engine], r.total_s, r.plan_s, r.gather_s, r.copy_s,
                  r.write_s, r.sync_s, r.publish_s, r.slow_rank if slow else None, r.slow_ratio,
                  r.slow_host.decode("utf-8", "replace"))


_within = threading.local()  # .owners: the owners of the functions that the library has called on this thread


def calls_back(owner: object) -> bool:
    """Returns true if this thread is in a function that the library has called for the owner."""
    return any(one is owner for one in getattr(_within, "owners", ()))


class Failures:
    """Exceptions that the caller's functions and signal handlers raise while the library is working, to be raised again
    after it has returned.

    Args:
        owner: the object that these functions may not use.
    """

    def __init__(self, owner: object = None) -> None:
        self.owner = owner
        self._first: BaseException | None = None
        self.is_cancelled = False

    @property
    def first(self) -> BaseException | None:
        """The exception that ends the call. Once read, it no longer changes, so the whole call uses the same one."""
        if self._first is None:
            self._first = _signals.pending()
        return self._first

    @first.setter
    def first(self, failure: BaseException) -> None:
        self._first = failure

    @property
    def raised(self) -> BaseException | None:
        """The same exception; but reading this, unlike :attr:`first`, does not make it final."""
        return self._first

    def note(self, failure: BaseException | None) -> None:
        """Stores the failure, if it is the first one."""
        if self._first is None:
            self._first = failure

    def guard(self, function: Callable[..., Any]) -> Callable[..., None]:
        def call(_ctx: Any, *arguments: Any) -> None:
            if self.first is not None:
                return
            owners = _within.owners = getattr(_within, "owners", [])
            owners.append(self.owner)
            try:
                of_program(function, *arguments)
            except BaseException as e:  # raised again by the library's caller
                self.note(e)
            finally:
                owners.pop()
        return call

    def follow(self, options: Any, progress: Progress | None) -> None:
        """Makes the library report its progress, and give up on all ranks if ``progress`` has raised an exception."""
        if progress:
            options.on_progress = _capi.PROGRESS(self.guard(progress))
            options.stop = _capi.STOP(self._is_over)

    def follow_cancel(self, options: Any) -> None:
        """Makes the library give up, on all ranks, if an exception was raised or the call is cancelled."""
        if not options.stop:
            self._seldom = _capi.Seldom(stop=_capi.STOP(self._is_over), seconds=_signals.ASK_S)
            options.stop, options.stop_ctx = lib.stop_seldom, c.addressof(self._seldom)

    def _is_over(self, _ctx: Any) -> bool:
        return self.first is not None or self.is_cancelled

    def raise_first(self) -> None:
        """Raises the exception and forgets it: otherwise it would keep itself alive, through the frames of its
        traceback."""
        failure, self._first = self._first, None
        if failure is not None:
            try:
                raise failure from failure.__cause__  # and not from the library's error about it
            finally:
                del failure


def _write_log(_ctx: Any, level: int, line: bytes) -> None:
    log.log(logging.WARNING if level else logging.INFO, "%s", line.decode("utf-8", "replace"))


LOG = _capi.kept(_capi.LOG(_write_log))
TOOL = b"libdcp (Python)"


def save_options(failures: Failures, options: SaveKeywords) -> _capi.SaveOptions:
    return _save_options(failures, **_checked.checked("save", options, _checked.SAVES))


def _members(about: str | Mapping[str, Any] | None) -> bytes | None:
    if not about:
        return None
    return (about if isinstance(about, str) else json.dumps(dict(about))).encode()


def _save_options(failures: Failures, *, layout: Layout = "global", engine: Engine = "auto", shards: int = 0,
                 about: str | Mapping[str, Any] | None = None, staging_bytes: int = 0, replicas: Replicas = "warn",
                 make_room: bool = False, progress: Progress | None = None) -> _capi.SaveOptions:
    options = _capi.SaveOptions(layout=layout_number(layout), engine=_checked.ENGINES.index(engine),
                                shards=shards, about_json=_members(about),
                                staging_bytes=staging_bytes, replicas=REPLICAS.index(replicas),
                                make_room=make_room)
    failures.follow(options, progress)
    return options


def copy_bytes(copy: bool, limit: int | None) -> int:
    """The number to pass to the library; 0 means that nothing is copied first."""
    given = _checked.checked("save_async", {"copy": copy, "copy_bytes": limit}, _checked.SAVES)
    limit = given["copy_bytes"]
    if not given["copy"]:
        if limit is not None:
            raise ValueError(f"copy_bytes: {limit} bounds a copy, and copy=False makes none")
        return 0
    if limit is None:
        return 2**64 - 1
    return min(max(limit, 1), 2**64 - 2)


def globs(only: str | Sequence[str]) -> Sequence[str]:
    return [only] if isinstance(only, str) else only


def selects(only: str | Sequence[str] | None) -> Callable[[str], bool]:
    """Returns a function that is true for paths that are loaded."""
    if only is None:
        return lambda path: True
    encoded = [glob.encode() for glob in globs(only)]

    def is_selected(path: str) -> bool:
        text = _capi.path_bytes(path)
        return any(_capi.matches(glob, text) for glob in encoded)
    return is_selected


def checked_load(options: Mapping[str, Any]) -> LoadKeywords:
    """Converts the keywords of a load to the form that :func:`load_options` requires.

    Raises:
        TypeError, ValueError: one of them is invalid.
    """
    found = _checked.checked("load", options, _checked.LOADS)
    return cast(LoadKeywords, {name: value for name, value in found.items() if name not in ("step", "fall_back")})


def load_options(failures: Failures, options: LoadKeywords, missing: list[str]) -> _capi.LoadOptions:
    """The library's options for a load.

    Args:
        missing: receives the paths of tensors that a non-strict load tolerates as missing.
    """
    return _load_options(failures, missing, **options)


def _load_options(failures: Failures, missing: list[str], *, only: str | Sequence[str] | None = None,
                 rename: Mapping[str, str] | None = None, cast: bool = False, strict: bool = True,
                 engine: Engine = "auto", progress: Progress | None = None) -> _capi.LoadOptions:
    options = _capi.LoadOptions(cast=cast, missing_keys=not strict, unexpected_keys=strict and only is None,
                                engine=_checked.ENGINES.index(engine))
    if only is not None:
        set_only(options, globs(only))
    if rename:
        pairs = [_capi.Rename(name.encode(), stored.encode()) for name, stored in rename.items()]
        options.renames = (_capi.Rename * len(pairs))(*pairs)
        options.n_renames = len(pairs)
    if not strict:
        options.on_missing = _capi.LINE(failures.guard(lambda path: missing.append(path.decode())))
    failures.follow(options, progress)
    return options


def set_only(options: _capi.LoadOptions, only: Sequence[str]) -> None:
    """Sets the globs of a load; without any, the load selects all tensors."""
    encoded = [glob.encode() for glob in only]
    options.only = (c.c_char_p * len(encoded))(*encoded)
    options.n_only = len(encoded)


def layout_of(number: int) -> Layout:
    return "sharded" if number else "global"


def layout_number(layout: Layout) -> int:
    return _checked.LAYOUTS.index(layout)


def prove_options(options: ProveKeywords) -> _capi.ProveOptions:
    rule = _checked.checked("prove", options, _checked.PROVES).get("replicas", "warn")
    return _capi.ProveOptions(replicas=REPLICAS.index(rule), log=LOG)
