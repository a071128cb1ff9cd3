"""Saving and loading: stores of steps, and calls for one save or load."""

from __future__ import annotations

import ctypes as c
import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from . import _capi, _options
from ._capi import lib
from ._comm import Comm
from ._options import Engine, Progress, Report
from ._state import State
from .saving import Saving

Path = str | os.PathLike[str]
Stored = Callable[[str], tuple[int, ...] | None]  # a tensor's shape in a checkpoint
T = TypeVar("T")


def step_path(directory: Path, step: int) -> str:
    """The folder of a step."""
    return os.path.join(os.fspath(directory), f"step-{step:08}")


def _encode(path: Path) -> bytes:
    return os.fsencode(path)


class Store:
    """A directory of steps, held for writing until it is closed. Collective; all of its methods are, too.

    Args:
        directory: where the steps are; rank 0's counts.
        group: a torch.distributed group, an mpi4py communicator, or None: torch's default group where that is
            initialized, else this process alone.
        keep: how many complete steps stay after a save; 0: all.
        replace: a save of a step that exists replaces it, and older steps than the newest can be saved.
        take_over: on file systems without locks, take the store also where its last writer may still run.
        stripe_count: on Lustre, over how many object servers a file goes; -1: all.
        stripe_bytes: on Lustre, the bytes of a stripe.

    Raises:
        libdcp.Error: BUSY, another writer has it; IO, it can't be written.
    """

    def __init__(self, directory: Path, *, group: Any = None, keep: int = 0, replace: bool = False,
                 take_over: bool = False, stripe_count: int = 0, stripe_bytes: int = 0) -> None:
        self.directory = os.fspath(directory)
        self._handle = c.c_void_p()
        self._states: dict[int, State] = {}
        self._saving: Saving | None = None
        self._laid_out: State | None = None  # declared, and what the last save was an asynchronous one of
        self._comm = Comm(group)
        options = _capi.StoreOptions(keep=keep, replace=replace, tool=b"libdcp (Python)", log=_options.LOG,
                                     take_over=take_over, stripe_count=stripe_count, stripe_bytes=stripe_bytes)
        try:
            lib.store_open(self._comm.handle, _encode(directory), c.byref(options), c.byref(self._handle))
        except BaseException:
            self._comm.close()
            raise

    def declare(self, state: Mapping[Any, Any]) -> State:
        """Looks at a state's tensors once, for many saves of the same memory: pass what this returns in its place. Not
        collective. The arrays' places in memory, shapes and types must stay; their contents may change."""
        return State(state, self._comm.rank, self._comm.size)

    def save(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
             **options: Any) -> Report:
        """Saves a step; see :func:`libdcp.save`."""
        self._settle()
        self._laid_out = None
        report = _capi.ReportStruct()
        with _Prepared(self._comm, state) as prepared:
            made = prepared.save_options(json, options)
            lib.save(self._handle, step, prepared.handle, prepared.text, c.byref(made), c.byref(report))
        return _options.report_of(report)

    def save_async(self, step: int, state: Mapping[Any, Any] | State, *, json: Mapping[str, Any] | None = None,
                   **options: Any) -> Saving:
        """Begins to save a step beside what the program does, and returns at once; see :func:`libdcp.save_async`.

        From the second save of a declared state on, all but its JSON is a thread's work. The first one lays the files
        out, and makes groups for the threads."""
        self._settle()
        with _Prepared(self._comm, state) as prepared:
            made = prepared.save_options(json, options)

            def begin() -> c.c_void_p:
                handle = c.c_void_p()
                lib.save_async(self._handle, step, prepared.handle, prepared.text, c.byref(made), c.byref(handle))
                return handle
            beside = state is self._laid_out and self._comm.threads and prepared.failures.first is None
            handle = None if beside else begin()
            self._saving = Saving(begin, handle, *prepared.release(), prepared.failures)
            self._laid_out = state if isinstance(state, State) else None
        return self._saving

    def load(self, state: Mapping[Any, Any], *, step: int | None = None, **options: Any) -> dict[str, Any]:
        """Loads a step, the newest one unless it is named, and goes on from it: later steps are set aside by the next
        save. See :func:`libdcp.load`."""
        self._settle()
        path = self.directory if step is None else self.path(step)
        members = load_from(self._comm, path, state, options)
        lib.store_continue_from(self._handle, members["step"])
        lib.store_mark_intact(self._handle, members["step"])
        return members

    def steps(self) -> list[int]:
        """The complete steps, ascending. Not collective."""
        return steps(self.directory)

    def newest(self) -> int | None:
        """The newest complete step, the same on all ranks; None: there is none."""
        if self._saving is not None:
            self._saving.await_begin()
        found = max(self.steps(), default=-1) if self._comm.rank == 0 else -1
        found = self._comm.first(found)
        return None if found < 0 else found

    def path(self, step: int) -> str:
        """The folder of a step. Not collective."""
        return step_path(self.directory, step)

    def fence(self) -> None:
        """Returns once the memory of the last asynchronous save may change; at once where none is in flight."""
        if self._saving is not None:
            self._saving.fence()

    def continue_from(self, step: int) -> None:
        """Says that the run goes on from that step: later ones are set aside by the next save. :meth:`load` says it,
        too."""
        self._settle()
        lib.store_continue_from(self._handle, step)

    def remove(self, step: int) -> None:
        """Removes a step, durably."""
        self._settle()
        lib.step_remove(self._handle, step)

    def _settle(self) -> None:
        if not self._handle:
            raise ValueError("the store is closed")
        saving, self._saving = self._saving, None
        if saving is None:
            return
        try:
            saving.settle()
        finally:
            if saving.has_failed:
                self._laid_out = None

    def close(self) -> None:
        """Waits for a save in flight and gives the store back. Every rank calls it."""
        if not self._handle:
            return
        try:
            self._settle()
        finally:
            lib.store_close(self._handle)
            self._handle = c.c_void_p()
            self._comm.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def _taken(comm: Comm, state: Mapping[Any, Any] | State, stored: Stored | None) -> State:
    if not isinstance(state, State):
        return State(state, comm.rank, comm.size, stored or (lambda path: None))
    return state.as_stored(stored) if stored else state


class _Prepared:
    """What one call of the library takes. What is wrong with it on this rank is raised once all ranks know: the library is
    given no state then, and fails on all of them."""

    def __init__(self, comm: Comm, state: Mapping[Any, Any] | State, stored: Stored | None = None) -> None:
        self.failures = _options.Failures()
        self.text = b"{}"
        self._state = self._try(lambda: _taken(comm, state, stored), None)
        self._owns = self._state is not state

    def _try(self, function: Callable[[], T], otherwise: T) -> T:
        """What the function returns; otherwise where it, or one before it, has raised something."""
        if self.failures.first is None:
            try:
                return function()
            except Exception as e:
                self.failures.first = e
        return otherwise

    @property
    def handle(self) -> c.c_void_p | None:
        return self._state.handle if self._state and self.failures.first is None else None

    def save_options(self, json: Mapping[str, Any] | None, options: dict[str, Any]) -> _capi.SaveOptions:
        """With them :attr:`text` is the JSON to save."""
        def make() -> _capi.SaveOptions:
            if self._state:
                self._state.refresh()
                self.text = self._state.json(json)
            return _options.save_options(self.failures, **options)
        return self._try(make, _capi.SaveOptions())

    def load_options(self, options: dict[str, Any]) -> _capi.LoadOptions:
        return self._try(lambda: _options.load_options(self.failures, **options), _capi.LoadOptions())

    def restore(self, is_loaded: Callable[[str], bool], members: Mapping[str, Any]) -> None:
        """After a load."""
        if self._state:
            self._state.restore(is_loaded, members)

    def release(self) -> tuple[State, bool]:
        """The state, and whether its receiver has to close it."""
        assert self._state
        owned, self._owns = self._owns, False
        return self._state, owned

    def __enter__(self) -> _Prepared:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._owns and self._state:
            self._state.close()
        self.failures.raise_first()


def load_from(comm: Comm, path: Path, state: Mapping[Any, Any] | State, options: dict[str, Any]) -> dict[str, Any]:
    """:func:`load` over a communicator."""
    checkpoint = c.c_void_p()
    lib.checkpoint_open(comm.handle, _encode(path), c.byref(checkpoint))
    try:
        def stored(path: str) -> tuple[int, ...] | None:
            found = lib.checkpoint_find(checkpoint, path.encode())
            return tuple(found.contents.shape[:found.contents.ndim]) if found else None
        with _Prepared(comm, state, stored) as prepared:
            made = prepared.load_options(options)
            members: dict[str, Any] = json.loads(lib.checkpoint_json(checkpoint))
            lib.load_with(checkpoint, prepared.handle, c.byref(made), None)
            prepared.restore(_options.selects(options.get("only")), members)
        return members
    finally:
        lib.checkpoint_close(checkpoint)


def save(directory: Path, step: int, state: Mapping[Any, Any], *, group: Any = None,
         json: Mapping[str, Any] | None = None, keep: int = 0, replace: bool = False, **options: Any) -> Report:
    """Saves a state as a step of a directory: complete and durable when it returns. Collective.

    Args:
        directory: of the steps; ``directory/step-00000120`` is step 120.
        step: its number.
        state: a (nested) mapping to numpy arrays, torch tensors, DTensors and :class:`libdcp.Shard`. A top-level key
            whose value is a mapping is a section: ``{"model": {"a.b": t}}`` and ``{"model": {"a": {"b": t}}}`` are both
            ``/model/a.b`` in the file; tensors at the top level are in ``/model``. A section as torch's
            ``get_state_dict`` gives an optimizer's becomes ``/optimizer/exp_avg/<parameter>`` and so on. Numbers, texts
            and lists of them go into the checkpoint's JSON; nothing is ever pickled. A top-level value that has
            ``state_dict()`` and ``load_state_dict()``, such as a module, stands for what they give and take.
        group: see :class:`Store`.
        json: members of the checkpoint's JSON object.
        keep, replace: see :class:`Store`.
        layout: "global", one HDF5 file; or "sharded", a file a rank.
        replicas: what happens where ranks hold different bytes of the same elements: "warn" logs it, and the lowest
            rank's are saved; "check" fails; "trust" does not look.
        engine, shards, staging_bytes, make_room, about: as in ``dcp/save.h``.
        progress: called now and then with the bytes that are done and those of all; what it raises ends the save on
            all ranks.

    Raises:
        libdcp.Error: the same on all ranks; older steps are as they were.
        TypeError: an object that is no tensor and that JSON has no word for; it names the key.
    """
    with Store(directory, group=group, keep=keep, replace=replace) as store:
        return store.save(step, state, json=json, **options)


def save_async(directory: Path, step: int, state: Mapping[Any, Any], *, group: Any = None,
               json: Mapping[str, Any] | None = None, keep: int = 0, replace: bool = False, **options: Any) -> Saving:
    """Begins a save as :func:`save` does it and returns at once; a thread of the library does the work.

    The state's memory must not change before the ``fence()`` of what is returned; ``wait()`` returns its report once
    the step is durable. For saves at many steps a :class:`Store` costs less, as it keeps the plan.
    """
    store = Store(directory, group=group, keep=keep, replace=replace)
    try:
        saving = store.save_async(step, state, json=json, **options)
    except BaseException:
        store.close()
        raise
    saving.add_done_callback(lambda _: _close_quietly(store))
    return saving


def _close_quietly(store: Store) -> None:
    """After the outcome was told."""
    store._saving = None
    store.close()


def load(path: Path, state: Mapping[Any, Any], *, group: Any = None, only: str | Sequence[str] | None = None,
         rename: Mapping[str, str] | None = None, cast: bool = False, strict: bool = True, engine: Engine = "auto",
         progress: Progress | None = None) -> dict[str, Any]:
    """Fills the memory of a state's tensors from a checkpoint, on any number of ranks. Collective.

    Args:
        path: a step's folder, or a directory of steps, meaning the newest one.
        state: as in :func:`save`; its tensors are written in place, what is no tensor is replaced in its mapping.
        group: see :class:`Store`.
        only: globs of paths, such as ``"/model/*"``: nothing else is loaded.
        rename: names in the state to those in the checkpoint; a ``*`` in both stands for the same text.
        cast: tensors of another dtype are converted; else they are an error.
        strict: tensors that only one side has are an error; else they are left as they are.
        progress: called now and then with the bytes that have arrived and those of all.

    Returns:
        The checkpoint's JSON object, with "step".

    Raises:
        libdcp.Error: the same on all ranks: NOT_FOUND, MISMATCH, or CORRUPT, which names tensor and block.
    """
    comm = Comm(group)
    try:
        return load_from(comm, path, state, {"only": only, "rename": rename, "cast": cast, "strict": strict,
                                         "engine": engine, "progress": progress})
    finally:
        comm.close()


def steps(directory: Path) -> list[int]:
    """The complete steps in a directory, ascending; none where there is no directory."""
    listed = c.POINTER(_capi.Step)()
    n = c.c_size_t()
    lib.steps_list(_encode(directory), c.byref(listed), c.byref(n))
    try:
        return [listed[i].step for i in range(n.value) if listed[i].kind == 0]
    finally:
        _capi.free(listed)
