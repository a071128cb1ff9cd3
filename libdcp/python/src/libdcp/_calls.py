"""The arguments of one call of the library, made from a Python state, for saves and loads."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, TypeVar

from . import _capi, _checked, _foreign, _names, _options, _signals, _union, _values
from ._capi import lib
from ._comm import Comm
from ._layout import Layout
from ._lookup import Lookup
from ._options import LoadKeywords, SaveKeywords
from ._restore import Restoring
from ._state import State
from ._tree import Stored
from .errors import EarlierFailure, Error, Status, has_status, of_program

T = TypeVar("T")


class Loaded(dict[str, Any]):
    """A checkpoint's JSON object, with "step"; and the differences that a load with ``strict=False`` tolerated.

    Attributes:
        missing: paths of the state that the checkpoint lacks, and that were not changed.
        unexpected: paths of the checkpoint for which the state has no place, except what an import stores in /files.
    """

    def __init__(self, members: Mapping[str, Any], missing: Sequence[str] = (), unexpected: Sequence[str] = ()) -> None:
        super().__init__(members)
        self.missing = list(missing)
        self.unexpected = list(unexpected)


FILES = "/files/"  # what an import stores for an export
_NO_STATE = ": a state is needed"  # the library's message about a rank that passes no state


def _taken(comm: Comm, state: Mapping[Any, Any] | State, stored: Lookup | None) -> State:
    if not isinstance(state, State):
        return State(state, comm.rank, comm.size, stored)
    if not state.is_of(comm.rank, comm.size):  # its rows are those of other ranks
        return State(state.given, comm.rank, comm.size, stored)
    return state.as_stored(stored) if stored else state


class Prepared:
    """The arguments of one call of the library. After an error on this rank, the library gets no state from this rank,
    so its call fails on all ranks. Only then is the error raised here.

    Args:
        earlier: a failure of an earlier call, which :meth:`unite` reports. Until then, this rank does what all ranks
            do: an object's state_dict() may be collective.
    """

    def __init__(self, comm: Comm, state: Mapping[Any, Any] | State, stored: Lookup | None = None,
                 earlier: BaseException | None = None, owner: object = None) -> None:
        self._comm = comm
        self.failures = _options.Failures(owner)
        self._earlier = EarlierFailure(earlier) if earlier is not None else None
        self.text = b"{}"
        self.missing: list[str] = []  # paths of tensors that a load tolerated as missing
        self._state = self._together(lambda: _taken(comm, state, stored), None)
        self._owns = self._state is not state
        self._is_copied = False  # the caller may change the memory that is saved
        self._is_released = False  # a background save has the state; from then on, the save reports failures
        self._stored = stored
        self._restoring: Restoring | None = None
        self._is_strict, self._is_part = True, False
        self._globs: Sequence[str] = ()
        self._options: _capi.LoadOptions | None = None  # of a load
        self._selects: Callable[[str], bool] = lambda path: True
        self._layout: Layout | None = None
        self._members: Callable[[], dict[str, Any]] = dict
        self._given: Mapping[str, Any] | None = None  # the caller's part of the JSON

    def _try(self, function: Callable[[], T], otherwise: T) -> T:
        """Returns the function's result, or ``otherwise`` if this call or an earlier one raised an exception."""
        if self.failures.first is None:
            try:
                return _signals.interruptible(function)
            except BaseException as e:
                self.failures.note(e)
        return otherwise

    def _together(self, function: Callable[[], T], otherwise: T) -> T:
        """Does the same for a function that calls functions of the program, such as an object's state_dict(), which may
        be collective: if there are other ranks, it is called whatever this rank has to report, and no signal handler
        interrupts it. Otherwise the other ranks would wait for this one."""
        if self._comm.size == 1:
            return self._try(function, otherwise)
        try:
            return function()
        except BaseException as e:
            self.failures.note(e)
        return otherwise

    @property
    def has_failed(self) -> bool:
        """Returns true if this rank has an error, or an earlier failure, to report."""
        return self._earlier is not None or self.failures.first is not None

    @property
    def handle(self) -> c.c_void_p | None:
        layout = self._used_layout
        return layout.handle if layout and self.failures.first is None else None

    @property
    def _used_layout(self) -> Layout | None:
        return self._layout or (self._state.layout if self._state else None)

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Calls the library. If a rank had no state to pass, the others learn why."""
        try:
            function(*arguments)
        except Error as e:
            if not str(e).endswith(_NO_STATE) or e.rank < 0:
                raise
            said, status = self._comm.told(self.failures.first, e.rank)
            raise Error(f"rank {e.rank}: {said}", status=status, rank=e.rank, ranks=e.ranks) from None

    def step(self, step: Any) -> int:
        """The step's number as an int."""
        return self._try(lambda: _checked.step(step), 0)

    def unite(self, replicas: int | None = None) -> None:
        """Called before :meth:`call`: makes all ranks name the same tensors, and gives rank 0 what all ranks have
        besides tensors. Collective.

        Args:
            replicas: the number of the rule for differences in what is not a tensor; None: such values are not
                collected.

        Raises:
            Exception: an error on this rank.
            EarlierFailure: on all ranks, if one of them has not learned of an earlier failure.
            libdcp.Error: an error on another rank; or MISMATCH if ranks have different types or shapes for one tensor,
                or, if the rule forbids that, different values besides tensors.
        """
        rule = None if replicas is None else _options.REPLICAS[replicas]
        none: list[_union.Part] = []
        parts = none if self._earlier else self._try(lambda: self._parts(rule), none)
        try:
            self._comm.agree_on(parts, 2 if rule or self._stored else 1, self._earlier or self.failures.first)
        except BaseException as e:
            self.failures.first = e
            raise
        apart = self._used_layout.apart(parts[0], self._comm.size) if self._used_layout else set()
        others = self._used_layout.named_by_others(parts[0]) if self._used_layout else set()
        if apart:
            self._together(lambda: self._keep_apart(apart, rule is not None), None)
            self.unite(replicas)
        elif others:
            self._try(lambda: self._leave_to(others), None)
            self.unite(replicas)
        else:
            self._use(parts, rule)

    def _keep_apart(self, paths: set[str], is_saved: bool) -> None:
        """Stores these arrays separately for each rank, since they do not form one tensor."""
        assert self._state
        self._state.keep_apart(paths)
        self._layout = self._state.layout
        self._layout.refresh()
        if is_saved:
            self.text, self._members = self._state.json(self._given)

    def _leave_to(self, others: Set[str]) -> None:
        """Leaves these tensors of objects to the ranks that have them."""
        assert self._state and self._stored
        self._begin_restoring(self._state, self._stored, others)

    def _parts(self, rule: _options.Replicas | None) -> list[_union.Part]:
        layout, state = self._used_layout, self._state
        assert layout and state
        if self._stored:
            claims = self._restoring.claims(self._globs) if self._restoring else None
            return [layout.names(), _union.part_of(claims, everywhere=True)]
        if rule is None:
            return [layout.names()]
        if not self._owns:
            layout.look_for_reshaped(self._is_copied)
            if not self._is_copied:
                layout.refuse_moved()
        return [layout.names(), _values.part_of(self.text, rule, self._members)]

    def _use(self, parts: list[_union.Part], rule: _options.Replicas | None) -> None:
        names, *others = parts
        _values.refuse_other_tensors(names)
        if rule:
            _values.settle(others[0], rule, self._comm.rank)
        layout, restoring = self._used_layout, self._restoring
        if names.united is not None and layout:
            self._try(lambda: layout.add_others(names.united), None)
        if rule and others[0].united is not None:
            self.text = self._try(lambda: _values.text_of(others[0], names.value), self.text)
        if restoring:
            self._try(lambda: restoring.settle(others[0].value), None)
            self._settle_globs(others[0].value)  # even after a failure, since the library compares the ranks' globs
            if self._is_strict:
                self._try(restoring.refuse_differences, None)

    def save_options(self, json: Mapping[str, Any] | None, options: SaveKeywords) -> _capi.SaveOptions:
        """After this call, :attr:`text` is the JSON to save."""
        self.refresh()

        def make() -> _capi.SaveOptions:
            _checked.checked("save", {"json": json}, _checked.SAVES)
            if self._state:
                self._state.layout.refuse_reserved()
                self._given = json
                self.text, self._members = self._state.json(json)
            return _options.save_options(self.failures, options)
        return self._try(make, _capi.SaveOptions())

    def _renew(self, state: State) -> None:
        """Called before the state is read."""
        if not self._owns:
            state.renew()
        self._layout = state.layout
        self._layout.refresh()

    def copy_first(self, options: _capi.SaveOptions, copy: bool, copy_bytes: int | None) -> None:
        """Makes the call of an asynchronous save copy what the save reads, unless the caller disables that."""
        options.copy_bytes = self._try(lambda: _options.copy_bytes(copy, copy_bytes), 1)

    def copy_now(self, copy: Callable[[c.c_void_p], bool]) -> bool:
        """Copies what is saved if that needs no other rank, and returns whether it did.

        Args:
            copy: copies the library's state.
        """
        layout = self._used_layout
        assert layout

        def copied() -> bool:
            layout.refuse_moved()
            return copy(layout.handle)
        self._is_copied = self._try(copied, False)
        return self._is_copied

    def load_options(self, options: LoadKeywords) -> _capi.LoadOptions:
        """Uses the caller's options even if the state is invalid, so that all ranks have the same options. After
        :meth:`unite`, the globs are those that the library gets."""
        def check() -> None:
            if self._state and self._stored:
                self._selects = _options.selects(options.get("only"))
                only = options.get("only")
                self._is_part, self._globs = only is not None, () if only is None else _options.globs(only)
                self._is_strict = options.get("strict", True)
                self._begin_restoring(self._state, self._stored, frozenset())
                self._state.layout.refuse_read_only(self._selects)
        self._together(check, None)
        try:
            self._options = _options.load_options(self.failures, options, self.missing)
            if self._restoring and self._is_part and self._restoring.is_of_others(self._globs):
                self._layout = Layout([], 0, 0, 1, None)  # so ranks' tensors, which are not loaded, are not compared
            return self._options
        except Exception as e:
            self.failures.note(e)
            return _capi.LoadOptions()

    def _begin_restoring(self, state: State, stored: Lookup, left_out: Set[str]) -> None:
        """Determines what a load changes besides tensors.

        Args:
            left_out: paths of tensors that this rank's objects do not get, because other ranks' states name them.
        """
        def restoring() -> Restoring:
            return state.restoring(stored, self._selects, is_part=self._is_part, is_strict=self._is_strict, left_out=left_out)
        made = restoring()
        if made.new and not self._owns:  # the layout of a declared state does not change
            self._state = state = state.anew(stored)
            self._owns, made = True, restoring()
        if made.new or left_out:
            state.add(made)
        self._restoring = made

    def differences(self, paths: Sequence[str], lookup: Lookup, options: LoadKeywords) -> tuple[list[str], list[str]]:
        """Called after a load: returns the paths in the state that the checkpoint lacks, and the paths in the
        checkpoint for which the state has no place.

        Args:
            paths: the paths of the checkpoint's tensors.
        """
        selected = _options.selects(options.get("only"))
        filled = {lookup.stored(path) for path in self._used_layout.paths()} if self._used_layout else set()
        unexpected = [path for path in paths
                      if path not in filled and not path.startswith(FILES) and any(map(selected, lookup.names(path)))]
        others = self._restoring
        if others is None:
            return self.missing, unexpected
        return ([*self.missing, *map(_names.object_path, others.missing)],
                [*unexpected, *map(_names.object_path, others.unexpected)])

    def _settle_globs(self, claims: Mapping[str, Any]) -> None:
        """Determines the globs to pass to the library: all except those that match something of a rank's state, but no
        tensor of any rank's, which the library would refuse.

        Args:
            claims: the claims of all ranks.
        """
        if self._options is None or not self._is_part:
            return
        found = [glob for i, glob in enumerate(self._globs)
                 if str(i) in claims["of_tensors"] or str(i) not in claims["of_others"]]
        if not found:
            self._layout = Layout([], 0, 0, 1, None)
        _options.set_only(self._options, found)

    @property
    def filled(self) -> set[str]:
        """The paths of the tensors that a load writes into."""
        return self._used_layout.filled(self._selects) if self._used_layout else set()

    def refuse_mixed(self, written: Mapping[str, int], step: int) -> None:
        """Called before a load of this step; see Layout.refuse_mixed."""
        layout = self._used_layout
        if layout and written:
            self._try(lambda: layout.refuse_mixed(written, step), None)

    def refuse_unmatched(self, rename: Mapping[str, str]) -> None:
        """Called after :meth:`unite`. Collective.

        Raises:
            ValueError: on all ranks, if a name on the state's side of ``rename`` is not below any part of the state.
        """
        if not rename or not self._state or not self._used_layout:
            return
        parts = {path.split("/")[1] for path in self._used_layout.paths()} | {str(key) for key in self._state.given}
        others = [here for here in rename if not here.startswith("*") and "*" not in (part := here.split("/")[1])
                  and part not in parts]
        if self._comm.all(bool(others)):
            raise ValueError(f"rename: nothing of the state is named {others[0]}; each pair is the state's name and then the "
                             "checkpoint's")

    def refresh(self) -> None:
        """Called before the state is read."""
        if self._state:
            state = self._state
            self._together(lambda: self._renew(state), None)

    def restore(self, comm: Comm, is_loaded: Callable[[str], bool]) -> None:
        """Called after a load. Succeeds, or fails, on all ranks."""
        if self._state and self._restoring:
            layout, restoring = self._state.layout, self._restoring
            self._together(lambda: layout.restore(is_loaded), None)
            self._together(lambda: of_program(restoring.put, comm.size > 1), None)
        comm.agree(self.failures.first)

    def release(self) -> tuple[Layout, bool]:
        """Returns what is saved, and whether the receiver must close it."""
        assert self._state
        owned, self._owns, self._is_released = self._owns, False, True
        return self._state.layout, owned

    @property
    def layout(self) -> Layout | None:
        """The layout that all saves of the declared state share; None if the next save may have another one."""
        return self._layout if self._state and self._state.stays and not self._owns else None

    def __enter__(self) -> Prepared:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._owns and self._state:
            self._state.close()
        if not self._is_released:
            self.failures.raise_first()


def load_open(checkpoint: c.c_void_p, comm: Comm, state: Mapping[Any, Any] | State, options: LoadKeywords,
              written: dict[str, int] | None = None) -> Loaded:
    """Fills a state from an open checkpoint, and returns its JSON.

    Args:
        written: the tensors, by path, into which loads of damaged steps have written, and these steps' numbers; if this
            load fails, its tensors are added.
    """
    written = {} if written is None else written
    def shape(path: str) -> tuple[int, ...] | None:
        found = lib.checkpoint_find(checkpoint, path.encode())
        return tuple(found.contents.shape[:found.contents.ndim]) if found else None
    def dtype(path: str) -> int | None:
        found = lib.checkpoint_find(checkpoint, path.encode())
        return int(found.contents.dtype) if found else None
    lookup = Lookup(shape, Stored(lib.checkpoint_json(checkpoint)), options.get("rename"), dtype,
                    lambda: _tensor_paths(checkpoint))
    try:
        return _fill(checkpoint, comm, state, options, lookup, written)
    except BaseException as e:
        if has_status(e, Status.COMM) or lookup.may_lack:
            raise
        comm.agree(None if has_status(e, Status.NOT_FOUND) else e)  # a rank may have raised a different exception
        lookup.may_lack = True  # the second try tolerates that the checkpoint has only one of two tied tensors
        return _fill(checkpoint, comm, state, options, lookup, written)


def _fill(checkpoint: c.c_void_p, comm: Comm, state: Mapping[Any, Any] | State, options: LoadKeywords,
          lookup: Lookup, written: dict[str, int]) -> Loaded:
    step = int(lib.checkpoint_step(checkpoint))
    with Prepared(comm, state, lookup) as prepared:
        made = prepared.load_options(options)
        prepared.refuse_mixed(written, step)
        prepared.unite()
        prepared.refuse_unmatched(options.get("rename") or {})
        prepared.failures.follow_cancel(made)
        try:
            prepared.call(lib.load_with, checkpoint, prepared.handle, made, None)
        except Error:
            written.update(dict.fromkeys(prepared.filled, step))
            raise
        prepared.restore(comm, _options.selects(options.get("only")))
        if options.get("strict", True):
            return Loaded(lookup.members, [], [])
        return Loaded(lookup.members, *prepared.differences(_tensor_paths(checkpoint), lookup, options))


def _tensor_paths(checkpoint: c.c_void_p) -> list[str]:
    """The paths of all tensors."""
    return [lib.checkpoint_tensor(checkpoint, i).contents.path.decode() for i in range(lib.checkpoint_tensors(checkpoint))]


def load_path(comm: Comm, path: str, state: Mapping[Any, Any] | State, options: LoadKeywords,
              written: dict[str, int] | None = None) -> Loaded:
    """Like :func:`load_open`, for a step's folder, or for the newest step of a directory."""
    checkpoint = c.c_void_p()
    try:
        lib.checkpoint_open(comm.handle, os.fsencode(path), checkpoint)
    except Error as e:
        if e.status == Status.COMM:
            raise
        raise e.saying(comm.text(_foreign.told(e, path), 0)) from None
    try:
        return load_open(checkpoint, comm, state, options, written)
    finally:
        lib.checkpoint_close(checkpoint)
