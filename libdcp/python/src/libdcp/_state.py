"""A state in the form that saves and loads use: declared once for many of them, or made for one."""

from __future__ import annotations

import ctypes as c
import operator
from collections.abc import Callable, Mapping, Set
from typing import Any

from . import _arrays, _tree
from ._layout import Layout
from ._lookup import Lookup
from ._restore import Restoring
from .errors import of_program


class State:
    """A state's tensors, with the boxes that this rank holds, and everything else in the state. The memory of the
    tensors must keep its address; the contents of that memory may change. Objects with a state dict are queried at each
    save and load, so their tensors may change.

    Args:
        state: a (nested) mapping, see :func:`libdcp.save`.
        rank, size: this rank, and the number of ranks that save or load the state.
        stored: the checkpoint from which it is loaded.
        asked: see :class:`libdcp._tree.Flat`.
    """

    def __init__(self, state: Mapping[Any, Any], rank: int = 0, size: int = 1, stored: Lookup | None = None,
                 asked: Mapping[_tree.Trail, _tree.Object] | None = None) -> None:
        self._given = state
        self._rank, self._size, self._stored = rank, size, stored
        self.has_chosen_rank = size != 1  # by the program, and not by a store's group
        self._known = _tree.Known()
        self._apart: set[str] = set()  # paths of arrays that ranks have separately, without a common type and shape
        self._flat = self._flattened(asked)
        self._places: list[object] = []
        self.layout = self._laid()

    def _flattened(self, asked: Mapping[_tree.Trail, _tree.Object] | None = None) -> _tree.Flat:
        return of_program(lambda: _tree.Flat(self._given, self._known, _tree.Own(self._rank, self._apart, self._stored),
                                             asks_all=self._size > 1, asked=asked))

    def keep_apart(self, paths: set[str]) -> None:
        """Called before a save: the arrays at these paths, which ranks have separately, do not form one tensor."""
        self._apart |= paths
        self._known = _tree.Known()
        self._flat = self._flattened()
        old, self.layout = self.layout, self._laid()
        old.close()

    def _places_now(self) -> list[object]:
        """The memory of objects' tensors."""
        rows = self._flat.object_rows
        return [[row.path for row in rows], [_arrays.place(row.value) for row in rows]]

    def _laid(self) -> Layout:
        self._places = self._places_now()
        return Layout(self._flat.all_rows, len(self._flat.rows), self._rank, self._size, self._stored)

    @property
    def given(self) -> Mapping[Any, Any]:
        """The caller's mapping."""
        return self._given

    def is_of(self, rank: int, size: int) -> bool:
        """Returns true if the state was made for this rank of so many ranks, or the program has chosen another rank: what
        each rank has separately depends on both numbers."""
        return self.has_chosen_rank or (rank, size) == (self._rank, self._size)

    @property
    def handle(self) -> c.c_void_p:
        return self.layout.handle

    def renew(self) -> None:
        """Called before a save or load of a declared state: brings it up to date.

        Raises:
            ValueError: a tensor that does not belong to an object was replaced, or has moved, since the state was
                declared.
        """
        try:
            flat = self._flattened()
            if not flat.is_same(self._flat):
                self._refuse_others(flat)
        except BaseException:
            self._known = _tree.Known()  # the next save must not use what was examined and refused
            raise
        self._flat = flat
        if self._places_now() != self._places:
            old, self.layout = self.layout, self._laid()
            old.close()

    def _refuse_others(self, flat: _tree.Flat) -> None:
        then, now = self._flat.rows, flat.rows
        if len(now) != len(then):
            raise ValueError(f"the state has {len(now)} tensors, and had {len(then)} when it was declared; declare it anew")
        if not all(map(operator.is_, now, then)):
            for a, b in zip(now, then):
                if a.path != b.path or a.value is not b.value and _arrays.place(a.value) != _arrays.place(b.value):
                    raise ValueError(f"{a.keys} is another tensor than when the state was declared; declare it anew")

    @property
    def stays(self) -> bool:
        """Returns true if all saves have the same layout: no object has tensors."""
        return not self._flat.object_rows

    def as_stored(self, stored: Lookup) -> State:
        """The state for a load: this one; or, if ranks have something separately or the checkpoint may lack tensors, a
        new one with the checkpoint's rows, and without those tensors that a load then sets in another way.

        Raises:
            ValueError: a tensor has other memory, or another form, than when the state was declared, so the load would
                write elsewhere, or in another order.
        """
        if self.layout.follows_checkpoint or self._flat.owns or stored.may_lack:
            return State(self._given, self._rank, self._size, stored)
        self.renew()
        self.layout.look_for_reshaped(False)
        self.layout.refuse_moved()
        return self

    def anew(self, stored: Lookup) -> State:
        """A new state for a load of only this checkpoint. Its objects, which this load has asked, are not asked again:
        a rank may need a new state where others do not, and state_dict() may be collective."""
        return State(self._given, self._rank, self._size, stored, self._flat.objects)

    def json(self, given: Mapping[str, Any] | None) -> tuple[bytes, Callable[[], dict[str, Any]]]:
        """The JSON to save with the state, and a function that returns the JSON's members in the form in which they are
        united with other ranks' members. The thread of a save may call the function after the caller has changed
        ``given``."""
        flat = self._flat
        text = _tree.json_of(flat, given)
        return text.encode(), lambda: _tree.members_to_unite(flat, text)

    def restoring(self, stored: Lookup, selects: Callable[[str], bool], *, is_part: bool, is_strict: bool,
                  left_out: Set[str] = frozenset()) -> Restoring:
        """What a load changes besides the tensors of the state."""
        return Restoring(self._given, self._flat, stored, selects=selects, is_part=is_part, is_strict=is_strict,
                         left_out=left_out, rank=self._rank)

    def add(self, restoring: Restoring) -> None:
        """Called once before a load: adds the tensors that the load creates."""
        new = {row.path for row in restoring.new}
        kept = [row for row in self._flat.all_rows if row.path not in new]
        old = self.layout
        self.layout = Layout([*kept, *restoring.new], 0, self._rank, self._size, self._stored, restoring.unnamed)
        old.close()

    def hold(self) -> None:
        """After this call, a background save uses the state."""
        self.layout.hold()

    def release(self) -> None:
        """The background save has ended."""
        self.layout.release()

    def close(self) -> None:
        """Frees the state once no background save uses it; the arrays remain."""
        self._flat.end_load()
        self.layout.close()
