"""The library's state dict for a Python state's tensors."""

from __future__ import annotations

import contextlib
import ctypes as c
import functools
import itertools
import logging
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _arrays, _capi, _devices, _locks, _union
from ._capi import MAX_DIMS, lib
from ._lookup import Lookup
from ._read_only import ReadOnly
from ._tree import Row
from ._words import Keys
from .errors import Error, Status, call_all
from .ranks import Loader, PerRank, Shape

log = logging.getLogger("libdcp")

# struct dcp_tensor and dcp_box
_TENSOR = np.dtype([("path", np.uint64), ("dtype", np.int32), ("ndim", np.uint32), ("shape", np.uint64, MAX_DIMS)])
_BOX = np.dtype([("start", np.uint64, MAX_DIMS), ("count", np.uint64, MAX_DIMS)])
assert _TENSOR.itemsize == c.sizeof(_capi.Tensor) and _BOX.itemsize == c.sizeof(_capi.Box)

_UNNAMED = "?"  # precedes the path of a tensor that the rank's own state does not name
_TABLES, _FILES = "/dcp/", "/files/"  # what the library writes, and what an import stores for an export
_OWN = "the sections dcp and files are reserved for libdcp; choose another name"


def _padded(numbers: tuple[int, ...]) -> list[int]:
    return [*numbers, *[0] * (MAX_DIMS - len(numbers))]


def _fill(rows: npt.NDArray[np.uint64], numbers: list[tuple[int, ...]]) -> None:
    """Writes each tuple to the beginning of its row."""
    lengths = np.fromiter(map(len, numbers), np.int64, len(numbers))
    flat = np.fromiter(itertools.chain.from_iterable(numbers), np.uint64, int(lengths.sum()))
    rows[np.arange(MAX_DIMS) < lengths[:, None]] = flat


class _Own(NamedTuple):
    """What a rank saves separately, and this state's memory for it."""

    path: str
    name: str
    value: PerRank | Loader
    part: _arrays.Shard
    place: object


def _place_in(value: PerRank | Loader) -> object:
    """The memory of what a rank saves separately, which the caller may replace."""
    return _arrays.place(value.value) if isinstance(value, PerRank) else None


def _first(told: Any) -> str:
    """The value of the first rank that saves something separately."""
    return str(next(iter(told.values()))) if isinstance(told, dict) else str(told)


class _Owned:
    """The library's states, until they are freed. Once the owner of a state no longer exists, the next call of
    :meth:`make` frees the state. Python would lose an exception of a signal handler in a function that it calls when an
    object is destroyed, so that function is a list's append, during which no handlers run."""

    def __init__(self) -> None:
        self._handles: dict[weakref.ref[Layout], c.c_void_p] = {}
        self._gone: list[weakref.ref[Layout]] = []

    def make(self, owner: Layout) -> tuple[c.c_void_p, weakref.ref[Layout]]:
        with contextlib.suppress(IndexError):  # none are left, perhaps because another thread took the last one
            while True:
                self.free(self._gone.pop())
        handle = c.c_void_p()
        lib.state_create(handle)
        reference = weakref.ref(owner, self._gone.append)
        self._handles[reference] = handle
        return handle, reference

    def free(self, reference: weakref.ref[Layout]) -> None:
        lib.state_destroy(self._handles.pop(reference, None))


_owned = _Owned()


class Layout:
    """Tensors by path, with the boxes that this rank holds, in the library's form.

    Args:
        rows: the tensors.
        n_fixed: the first ``n_fixed`` tensors must keep their addresses.
        rank, size: this rank, and the number of ranks that save or load the tensors.
        stored: the checkpoint from which the tensors are loaded.
        unnamed: paths of tensors that are loaded if no rank's state has them.
    """

    def __init__(self, rows: Sequence[Row], n_fixed: int, rank: int, size: int, stored: Lookup | None,
                 unnamed: Set[str] = frozenset()) -> None:
        self._rank, self._size, self._stored = rank, size, stored
        self._unnamed = unnamed
        self._own: list[_Own] = []
        self._counts: list[tuple[str, Any, int]] = []  # tensors that a load sets to a number, after their paths
        self._described: dict[str, _arrays.Piece] = {}  # a piece of each tensor, by path
        self._mark: int | None = None  # a number that is equal for equal paths, types and shapes
        self._reserved: Keys | None = None  # the keys of a tensor in a section that callers may not use
        self._users = 0  # the number of background saves that use it
        self._is_closed = False
        self._lock = _locks.lock()
        self._placed: list[tuple[Row, _arrays.Piece]] = []  # all pieces
        self._places = _arrays.Places([])
        self._reshaped: object | None = None  # one of the reshaped tensors
        self._storages: list[Any] = []  # of the owners of memory
        self._torches: tuple[list[str], list[Any]] = [], []  # the paths of all torch tensors, and these tensors
        self.handle, self._reference = _owned.make(self)
        try:
            self._add_all(rows, n_fixed)
        except BaseException:
            self.close()
            raise

    def _add_all(self, rows: Sequence[Row], n_fixed: int) -> None:
        torch: Any = sys.modules.get("torch")
        with torch.no_grad() if torch else contextlib.nullcontext():  # makes local tensors of DTensors cheap
            fixed = {row.path for row in rows[:n_fixed]} if n_fixed < len(rows) else None
            self._placed = [(row, piece) for row in self._stored_ones(rows) for piece in self._pieces(row)]
            self._places = _arrays.Places((row.keys, piece) for row, piece in self._placed
                                          if fixed is None or row.path in fixed)
            self._storages = [_arrays.storage(piece.owner) for _, piece in self._placed]
        torches = [(row.path, tensor) for row, piece in self._placed
                   for tensor in (row.value, piece.owner)  # a DTensor, and its local tensor
                   if _arrays.is_torch_tensor(tensor)]
        self._torches = [path for path, _ in torches], [tensor for _, tensor in torches]
        self._described = {row.path: piece for row, piece in self._placed}
        for row, _ in self._placed:
            if row.path.startswith((_TABLES, _FILES)):
                self._reserved = row.keys
                if row.path.startswith(_TABLES):  # these can be neither saved nor loaded
                    self.refuse_reserved()
        self._add_pieces((row.path, piece) for row, piece in self._placed)

    def _add_pieces(self, found: Iterable[tuple[str, _arrays.Piece]]) -> None:
        dense: list[tuple[bytes, _arrays.Piece]] = []
        for path, piece in found:
            if piece.device is None and piece.strides is None:
                dense.append((path.encode(), piece))
            else:
                self._add_alone(path.encode(), piece)
        if dense:
            self._add_dense(dense)

    def _stored_ones(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows without those that a load fills in another way: counts of updates, and tied tensors of which the
        checkpoint has only one."""
        stored = self._stored
        if stored is None or not stored.may_lack:
            return rows
        self._counts = [(row.path, row.value, n) for row in rows
                        if (n := stored.updates(row.path)) is not None and _arrays.has_fill(row.value)]
        lacking = {row.path for row in rows if stored.shape(row.path) is None}
        memory = {_arrays.memory(row.value) for row in rows if row.path not in lacking} if lacking else set()
        left_out = {path for path, _, _ in self._counts}
        left_out |= {row.path for row in rows if row.path in lacking and _arrays.memory(row.value) in memory - {None}}
        return [row for row in rows if row.path not in left_out]

    def _pieces(self, row: Row) -> list[_arrays.Piece]:
        value = row.value
        if isinstance(value, (PerRank, Loader)):
            part = value.part(self._rank, self._size, self._shape(row.path))
            self._own.append(_Own(row.path, str(row.keys), value, part, _place_in(value)))
            value = part
        return _arrays.pieces(value, row.keys)

    def _add_alone(self, path: bytes, piece: _arrays.Piece) -> None:
        """Adds a piece that is not dense, or is on a GPU."""
        dims = c.c_uint64 * MAX_DIMS
        tensor = _capi.Tensor(path, piece.dtype, len(piece.shape), dims(*_padded(piece.shape)))
        box = _capi.Box(dims(*_padded(piece.start)), dims(*_padded(piece.extent or (1,))))
        if piece.device is not None:
            lib.state_add_device(self.handle, tensor, box, _devices.device(piece.device), piece.address)
            return
        assert piece.strides
        lib.state_add_strided(self.handle, tensor, box, piece.address,
                              (c.c_int64 * len(piece.strides))(*piece.strides))

    def _add_dense(self, dense: list[tuple[bytes, _arrays.Piece]]) -> None:
        """Adds the pieces in one call, since thousands of tensors are common."""
        lengths = np.array([len(path) + 1 for path, _ in dense], np.uint64)
        text = b"".join(path + b"\0" for path, _ in dense)
        held = c.create_string_buffer(text, len(text))
        tensors = np.zeros(len(dense), _TENSOR)
        boxes = np.zeros(len(dense), _BOX)
        tensors["path"] = c.addressof(held) + np.cumsum(lengths) - lengths
        tensors["dtype"] = [piece.dtype for _, piece in dense]
        tensors["ndim"] = [len(piece.shape) for _, piece in dense]
        _fill(tensors["shape"], [piece.shape for _, piece in dense])
        _fill(boxes["start"], [piece.start for _, piece in dense])
        _fill(boxes["count"], [piece.extent or (1,) for _, piece in dense])  # a scalar's box has one dimension
        data = np.array([piece.address for _, piece in dense], np.uint64)
        lib.state_add_many(self.handle, len(dense), tensors.ctypes.data, boxes.ctypes.data, data.ctypes.data)

    def names(self) -> _union.Part:
        """The layout's tensors, for other ranks."""
        if self._mark is None:
            numbers = [(piece.dtype, len(piece.shape), *piece.shape) for piece in self._described.values()]
            flat = np.fromiter(itertools.chain.from_iterable(numbers), np.uint64)
            self._mark = _union.mark_of("\0".join(map(self._name, self._described)).encode() + flat.tobytes())
        return _union.Part(self._told, self._mark, everywhere=True)

    def _name(self, path: str) -> str:
        """A tensor's name for other ranks, which also says whether this rank's state names the tensor."""
        return f"{_UNNAMED}{path}" if path in self._unnamed else path

    def _told(self) -> dict[str, Any]:
        """The type and shape for each path, and the rank for what each rank saves separately."""
        each = set() if self._stored else {own.path for own in self._own if isinstance(own.value, PerRank)}
        return {self._name(path): {str(self._rank): _arrays.described(piece)} if path in each else _arrays.described(piece)
                for path, piece in self._described.items()}

    def named_by_others(self, names: _union.Part) -> set[str]:
        """After the exchange with other ranks: paths of tensors that some ranks' states name, and that other ranks
        would load without naming them."""
        return {path for path in names.united or () if f"{_UNNAMED}{path}" in names.united}

    def apart(self, names: _union.Part, size: int) -> set[str]:
        """Paths of arrays that ranks save separately, because they do not have the same type and shape on all ranks."""
        if names.united is None:
            return set()
        return {path for path, told in names.united.items()
                if isinstance(told, dict) and (len(told) < size or len(set(told.values())) > 1)}

    def add_others(self, described: Mapping[str, Any]) -> None:
        """Adds the tensors of which only other ranks hold something."""
        described = {path.removeprefix(_UNNAMED): _first(text) for path, text in described.items()}
        new = {path: _arrays.described_piece(text) for path, text in described.items() if path not in self._described}
        self._add_pieces(new.items())
        self._described = {path: self._described.get(path) or new[path] for path in described}
        self._mark = None

    def _shape(self, path: str) -> Shape | None:
        return self._stored.shape(path) if self._stored else None

    @property
    def follows_checkpoint(self) -> bool:
        """Returns true if a load needs a layout that is made for its checkpoint."""
        return bool(self._own)

    def refresh(self) -> None:
        """Called before a save: stores its loaders' current states."""
        call_all((functools.partial(own.value.refresh, own.part.array, own.name) for own in self._own
                  if isinstance(own.value, Loader)), self._size > 1)

    def refuse_moved(self) -> None:
        """Called before a save, and before a load into a declared state.

        Raises:
            ValueError: a tensor that must keep its address has moved since the state was declared, or was found
                reshaped.
        """
        found = self._places.moved()
        moved = found[0] if found and found[1] else next(
            (own.name for own in self._own if _place_in(own.value) != own.place), None)
        if moved is not None:
            raise ValueError(f"{moved} has other memory than when the state was declared; declare it anew")
        if found:
            self._reshaped = found[0]
        if self._reshaped is not None:  # what an earlier save saw may have been undone
            self._reshaped = self._places.reshaped()
        if self._reshaped is not None:
            raise ValueError(f"{self._reshaped} has another shape, type or strides than when the state was declared; "
                             f"declare it anew")

    def look_for_reshaped(self, is_copied: bool) -> None:
        """Checks tensors for :meth:`refuse_moved`.

        Args:
            is_copied: the call of the save has already copied the memory, because it should not wait for this check. So
                a tensor may have been reshaped after the copy.
        """
        self._reshaped = self._places.reshaped()
        if is_copied and self._reshaped is not None:
            log.warning("%s has another shape, type or strides than when the state was declared. If that was already "
                        "so when the save copied it, the step has its memory in the declared shape and type",
                        self._reshaped)

    def refuse_reserved(self) -> None:
        """Called before a save.

        Raises:
            ValueError: a tensor is in a section that the caller may not write.
        """
        if self._reserved is not None:
            raise ValueError(f"{self._reserved}: {_OWN}")

    def paths(self) -> set[str]:
        """The paths of all tensors that the library fills, on any rank."""
        return set(self._described)

    def refuse_read_only(self, is_loaded: Callable[[str], bool]) -> None:
        """Called before a load."""
        found = ReadOnly()
        for name, piece in self._written(is_loaded):
            if found.has(piece):
                raise ValueError(f"{name}: a read-only array, which can't be loaded into")

    def _written(self, is_loaded: Callable[[str], bool]) -> Iterator[tuple[object, _arrays.Piece]]:
        """The memory that a load writes to, either directly or at its end."""
        for row, piece in self._placed:
            if is_loaded(row.path) and (self._stored is None or self._shape(row.path) is not None):
                yield row.keys, piece
        others = [(own.path, own.name, own.value.overwritten) for own in self._own if isinstance(own.value, PerRank)]
        others += [(path, path, value) for path, value, _ in self._counts]
        for path, name, value in others:
            if value is not None and is_loaded(path):
                with contextlib.suppress(TypeError):  # a lazily conjugated view, for example, can be written to
                    yield from [(name, piece) for piece in _arrays.pieces(value, name)]

    def filled(self, is_loaded: Callable[[str], bool]) -> set[str]:
        """The paths of the tensors into whose memory a load from this checkpoint writes. A value of
        :class:`libdcp.PerRank` changes only after a load."""
        own = {own.path for own in self._own}
        return {row.path for row, _ in self._placed
                if row.path not in own and is_loaded(row.path) and self._shape(row.path) is not None}

    def refuse_mixed(self, written: Mapping[str, int], step: int) -> None:
        """Called before a load, if a load of a damaged step has failed.

        Args:
            written: the tensors that such a load has written into, by path, with the number of the damaged step.

        Raises:
            libdcp.Error: the checkpoint does not have such a tensor, so that the damaged step's elements would remain.
        """
        for row, _ in self._placed:
            if row.path in written and self._shape(row.path) is None:
                raise Error(f"{row.keys} contains elements of step {written[row.path]}, which is damaged, and step {step} has no "
                            f"such tensor to replace them: set it anew, and load step {step} by its number", status=Status.STATE)

    def restore(self, is_loaded: Callable[[str], bool]) -> None:
        """Called after a load: sets what the library has not filled, and what each rank has separately."""
        paths, tensors = self._torches
        _arrays.count_writes(itertools.compress(tensors, map(is_loaded, paths)))
        for path, value, n in self._counts:
            if is_loaded(path):
                _arrays.fill(value, n)
        call_all((functools.partial(self._restore, own, self._shape(own.path) if is_loaded(own.path) else None)
                  for own in self._own), self._size > 1)

    def _restore(self, own: _Own, stored: Shape | None) -> None:
        if isinstance(own.value, PerRank):
            own.value.end_load(stored is not None and self._rank < stored[0])
        elif stored:
            own.value.restore(own.part.array, self._rank, self._size, own.name)

    def hold(self) -> None:
        """After this call, a background save uses the layout."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """The background save has ended."""
        with self._lock:
            self._users -= 1
            if self._is_closed and not self._users:
                self._free()

    def close(self) -> None:
        """Frees the layout once no background save uses it; the arrays remain."""
        with self._lock:
            self._is_closed = True
            if not self._users:
                self._free()

    def _free(self) -> None:
        _owned.free(self._reference)
        self.handle = c.c_void_p()
        self._placed = []
        self._places = _arrays.Places([])
        self._storages = []
        self._torches = [], []
