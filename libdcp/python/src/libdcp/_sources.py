"""States whose tensors are not in memory, but are read piece by piece by functions while they are saved."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _capi
from ._arrays import dtype_number
from ._capi import MAX_DIMS, lib
from ._layout import Layout
from ._state import State
from ._tree import Row
from .errors import status_of

Read = Callable[[int, memoryview], None]  # fills the memory with the box's dense bytes, starting at that offset


@dataclass(frozen=True)
class Box:
    """A part of a tensor that a function reads."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    read: Read


@dataclass(frozen=True)
class Source:
    """A tensor as the boxes of which it consists.

    Args:
        dtype: as named in the file, such as "F32".
        shape: the shape of the whole tensor.
        boxes: disjoint, and covering the tensor; empty if it has no elements.
    """

    dtype: str
    shape: tuple[int, ...]
    boxes: Sequence[Box]


def fail(err: Any, error: BaseException) -> int:
    """Reports an exception to the library, which has called us."""
    said = err.contents
    c.memset(c.addressof(said), 0, c.sizeof(said))
    said.status = int(status_of(error))
    said.rank, said.offset = -1, 2**64 - 1
    said.message = str(error).encode("utf-8", "replace")[:1023]
    return int(said.status)


class _SourceLayout(Layout):
    """Tensors that functions read."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self._boxes: list[Box] = []
        self._read = _capi.SOURCE(self._call)
        super().__init__([], 0, 0, 1, None)

    def _add_all(self, rows: Sequence[Row], n_fixed: int) -> None:
        for path, source in self._sources.items():
            if "\0" in path:
                raise ValueError(f"{path!r}: a name with a NUL")
            for box in source.boxes or (Box((0,) * len(source.shape), source.shape, lambda _offset, _into: None),):
                self._add(path, source, box)

    def _add(self, path: str, source: Source, box: Box) -> None:
        dims = c.c_uint64 * MAX_DIMS
        tensor = _capi.Tensor(path.encode(), dtype_number(source.dtype), len(source.shape), dims(*source.shape))
        place = _capi.Box(dims(*box.start), dims(*(box.count or (1,))))
        lib.state_add_source(self.handle, tensor, place, self._read, len(self._boxes), -1)
        self._boxes.append(box)

    def _call(self, number: int | None, offset: int, n: int, out: int, err: Any) -> int:
        """Called by the library; ctypes passes None for 0."""
        try:
            self._boxes[number or 0].read(offset, memoryview((c.c_char * n).from_address(out)).cast("B"))
        except BaseException as e:  # reported by the library
            return fail(err, e)
        return 0


class SourceState(State):
    """A state for saves only.

    Args:
        sources: tensors by their paths in the checkpoint.
        objects: what is not a tensor, nested, for the checkpoint's JSON.
    """

    def __init__(self, sources: Mapping[str, Source], objects: Mapping[Any, Any]) -> None:
        self._sources = sources
        super().__init__(objects)

    def _laid(self) -> Layout:
        return _SourceLayout(self._sources)
