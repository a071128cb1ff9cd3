"""A store that is a single directory, and the list of its steps."""

from __future__ import annotations

import contextlib
import ctypes as c
import os
import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from . import _calls, _capi, _checked, _foreign, _options, _paths, _signals
from ._capi import lib
from ._calls import Loaded
from ._comm import Comm
from ._options import LoadKeywords
from ._paths import Path
from ._state import State
from .errors import Error, Status, has_status


def step_path(directory: Path, step: int) -> str:
    """The folder of a step."""
    return os.path.join(os.fsdecode(directory), f"step-{_checked.step(step):08}")


def steps(directory: Path) -> list[int]:
    """The complete steps in a directory, ascending; empty if the directory does not exist."""
    listed = c.POINTER(_capi.Step)()
    n = c.c_size_t()
    lib.steps_list(os.fsencode(_paths.given(directory, "directory")), listed, n)
    try:
        return [listed[i].step for i in range(n.value) if listed[i].kind == 0]
    finally:
        _capi.free(listed)


class _Pinned:
    """Pins a step for as long as this object exists."""

    def __init__(self, path: str) -> None:
        self._handle = c.c_void_p()
        lib.step_pin(os.fsencode(path), self._handle)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # at the end of the process, lib may be gone, and the step is released anyway
            lib.step_unpin(self._handle)


class Pin:
    """A step that no writer removes until :meth:`release`, the end of its ``with``, or the end of the process.

    Attributes:
        step: its number.
        path: its folder.
    """

    def __init__(self, directory: str, step: int) -> None:
        self.step = step
        self.path = step_path(directory, step)
        self._pinned: _Pinned | None = None
        with _signals.Shield():
            self._pinned = _Pinned(self.path)

    def release(self) -> None:
        with _signals.Shield():
            self._pinned = None

    def __enter__(self) -> Pin:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


def load(comm: Comm, path: str, state: Mapping[Any, Any] | State, step: int | None, fall_back: bool,
         options: LoadKeywords) -> Loaded:
    """Fills a state from a step's folder, or from a step of a directory: by default the newest. Collective.

    Args:
        fall_back: if the newest step is damaged, use the next older one.
    """
    if step is not None:
        return _calls.load_path(comm, step_path(path, step), state, options)
    found = _newest_first(comm, path)
    written: dict[str, int] = {}
    while found:
        number, *older = found
        try:
            return _calls.load_path(comm, step_path(path, number), state, options, written)
        except BaseException as e:
            if has_status(e, Status.COMM):
                raise
            if comm.all(has_status(e, Status.NOT_FOUND)):
                now = _newest_first(comm, path)
                if number in now:  # the step lacks a tensor
                    raise
                older = now  # a writer has removed it, and has saved newer ones
            elif not fall_back or not older or not comm.all(has_status(e, Status.CORRUPT)):
                raise
            elif comm.rank == 0:
                _options.log.warning("step %d is damaged (%s): falling back to step %d", number, e, older[0])
        found = older
    return _calls.load_path(comm, path, state, options)  # if the path is not a step's folder, the error says what it is


def _newest_first(comm: Comm, path: str) -> list[int]:
    """The complete steps that rank 0 sees; empty if it cannot read the directory."""
    found: list[int] = []
    if comm.rank == 0:
        with contextlib.suppress(Error):  # the attempt to open the newest step reports why
            found = steps(path)[::-1]
    return comm.numbers(found)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class _Flight:
    def __init__(self, comm: Comm, handle: c.c_void_p, folder: str) -> None:
        self._comm = comm
        self._handle = handle
        self._folder = folder

    def folders(self) -> list[str]:
        return [self._folder]

    def fence(self) -> None:
        while not lib.save_fence_within(self._handle, _signals.ASK_S) and _signals.pending() is None:
            pass  # a signal handler's exception is raised here

    def progress(self) -> int:
        return int(lib.save_is_done(self._handle))

    def cancel(self) -> None:
        lib.save_cancel(self._handle)

    def wait(self, report: _capi.ReportStruct) -> None:
        handle, self._handle = self._handle, c.c_void_p()  # a signal handler may use the handle, too
        try:
            lib.save_wait(handle, report)
        except Error as e:
            raise self._comm.cause(e) from None


class Directory:
    """See :class:`libdcp.Store`."""

    ends_alone = True  # a thread waits for a background save, so no caller has to

    def __init__(self, comm: Comm, path: str, keep_metric: str, **options: Any) -> None:
        self._given, self._folder = path, _paths.here()
        self._comm = comm
        self._handle = c.c_void_p()
        struct = _capi.StoreOptions(tool=_options.TOOL, log=_options.LOG, keep_metric=keep_metric.encode() or None, **options)
        lib.store_open(comm.handle, os.fsencode(path), struct, self._handle)
        self._opened: tuple[int, int] | None = None

    def look(self) -> None:
        """What rank 0 does when the store is opened."""
        if self._comm.rank == 0:
            self._opened = _identity(self.path)
            if not self.steps():
                _foreign.warn(self._given)

    @property
    def path(self) -> str:
        return _paths.anchored(self._given, self._folder)

    def is_due(self, step: int) -> bool:
        return True

    def folders(self, step: int) -> list[str]:
        """The folders of a step that was saved."""
        return [step_path(self.path, step)]

    def save(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions,
             report: _capi.ReportStruct) -> None:
        prepared.failures.follow_cancel(options)
        prepared.call(lib.save, self._handle, step, prepared.handle, prepared.text,
                      options, report)

    def copy(self, state: c.c_void_p, options: _capi.SaveOptions) -> bool:
        """Copies the state's memory for the next save if that needs no other rank, and returns whether it did."""
        is_copied = c.c_int()
        lib.save_copy(self._handle, state, options, is_copied)
        return bool(is_copied.value)

    def begin(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions) -> _Flight:
        handle = c.c_void_p()
        if not self._comm.threads or options.engine == _options.MPIO:  # the caller's thread saves, when it waits
            prepared.failures.follow_cancel(options)
        prepared.call(lib.save_async, self._handle, step, prepared.handle, prepared.text,
                      options, handle)
        return _Flight(self._comm, handle, step_path(self.path, step))

    def load(self, state: Mapping[Any, Any] | State, step: int | None, fall_back: bool, options: LoadKeywords) -> Loaded:
        """Loads a step.

        Args:
            fall_back: if the newest step is damaged, use the next older one.
        """
        self._refuse(self._comm.text(self._moved(), 0))
        loaded = load(self._comm, self.path, state, step, fall_back, options)
        lib.store_mark_intact(self._handle, loaded["step"])
        return loaded

    def steps(self) -> list[int]:
        self._refuse(self._moved())
        return steps(self.path)

    def _refuse(self, moved: str) -> None:
        if moved:
            raise Error(moved, status=Status.IO, path=self.path)

    def _moved(self) -> str:
        """The error's message if the path now names another directory; otherwise empty."""
        if self._opened is None or self._opened == _identity(self.path):
            return ""
        return (f"{self.path} was moved, removed or replaced while it was open: put its directory back, or open the store "
                "anew at the directory's new path")

    def continue_from(self, step: int) -> None:
        lib.store_continue_from(self._handle, step)

    def remove(self, step: int) -> None:
        lib.step_remove(self._handle, step)

    def close(self) -> None:
        lib.store_close(self._handle)
