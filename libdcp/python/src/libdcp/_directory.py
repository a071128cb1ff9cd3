"""A store that is one directory, and listing the steps of one."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping
from typing import Any

from . import _calls, _capi, _foreign, _options, _paths
from ._capi import lib
from ._comm import Comm
from ._paths import Path
from ._state import State


def step_path(directory: Path, step: int) -> str:
    """The folder of a step."""
    return os.path.join(os.fspath(directory), f"step-{step:08}")


def steps(directory: Path) -> list[int]:
    """The complete steps in a directory, ascending; none where there is no directory."""
    listed = c.POINTER(_capi.Step)()
    n = c.c_size_t()
    lib.steps_list(os.fsencode(_paths.given(directory, "directory")), c.byref(listed), c.byref(n))
    try:
        return [listed[i].step for i in range(n.value) if listed[i].kind == 0]
    finally:
        _capi.free(listed)


class _Flight:
    def __init__(self, handle: c.c_void_p) -> None:
        self._handle = handle

    def fence(self) -> None:
        lib.save_fence(self._handle)

    def progress(self) -> int:
        return int(lib.save_is_done(self._handle))

    def cancel(self) -> None:
        lib.save_cancel(self._handle)

    def wait(self, report: _capi.ReportStruct) -> None:
        handle, self._handle = self._handle, c.c_void_p()  # of which a signal's handler may ask
        lib.save_wait(handle, c.byref(report))


class Directory:
    """See :class:`libdcp.Store`."""

    ends_alone = True  # a thread may wait for a save in flight

    def __init__(self, comm: Comm, path: str, keep: int, replace: bool, take_over: bool, stripe_count: int,
                 stripe_bytes: int) -> None:
        self.path = path
        self._comm = comm
        self._handle = c.c_void_p()
        options = _capi.StoreOptions(keep=keep, replace=replace, tool=_options.TOOL, log=_options.LOG,
                                     take_over=take_over, stripe_count=stripe_count, stripe_bytes=stripe_bytes)
        lib.store_open(comm.handle, os.fsencode(path), c.byref(options), c.byref(self._handle))
        if comm.rank == 0 and not self.steps():
            _foreign.warn(path)

    def is_due(self, step: int) -> bool:
        return True

    def save(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions,
             report: _capi.ReportStruct) -> None:
        prepared.call(lib.save, self._handle, step, prepared.handle, prepared.text,
                      c.byref(options), c.byref(report))

    def begin(self, step: int, prepared: _calls.Prepared, options: _capi.SaveOptions) -> _Flight:
        handle = c.c_void_p()
        prepared.call(lib.save_async, self._handle, step, prepared.handle, prepared.text,
                      c.byref(options), c.byref(handle))
        return _Flight(handle)

    def load(self, state: Mapping[Any, Any] | State, step: int | None, options: dict[str, Any]) -> dict[str, Any]:
        path = self.path if step is None else step_path(self.path, step)
        members = _calls.load_path(self._comm, path, state, options)
        lib.store_mark_intact(self._handle, members["step"])
        return members

    def steps(self) -> list[int]:
        return steps(self.path)

    def continue_from(self, step: int) -> None:
        lib.store_continue_from(self._handle, step)

    def remove(self, step: int) -> None:
        lib.step_remove(self._handle, step)

    def close(self) -> None:
        lib.store_close(self._handle)
