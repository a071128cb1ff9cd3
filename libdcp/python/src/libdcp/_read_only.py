"""Finds memory that a load could not write to."""

from __future__ import annotations

import bisect
import contextlib
import functools
import math

import numpy as np

from ._arrays import DTYPES, Piece, is_torch_tensor, n_bytes


class ReadOnly:
    """Read-only memory, as the process has it mapped when the first torch tensor is examined: torch tensors, unlike
    numpy's arrays, don't say that their memory is read-only. For one load, whose tensors exist by then."""

    @functools.cached_property
    def _mapped(self) -> tuple[list[int], list[int]]:
        """The first and the last address, plus 1, of each read-only mapping, in ascending order."""
        begins: list[int] = []
        ends: list[int] = []
        with contextlib.suppress(OSError), open("/proc/self/maps", "rb") as file:
            for line in file:
                where, mode = line.split(b" ", 2)[:2]
                if mode.startswith(b"r-"):
                    begin, _, end = where.partition(b"-")
                    begins.append(int(begin, 16))
                    ends.append(int(end, 16))
        return begins, ends

    def has(self, piece: Piece) -> bool:
        """Returns true if a part of the piece's memory is read-only."""
        if isinstance(piece.owner, np.ndarray):
            return not piece.owner.flags.writeable
        if piece.device is not None or 0 in piece.extent or not is_torch_tensor(piece.owner):
            return False
        begins, ends = self._mapped
        before = bisect.bisect_left(begins, piece.address + _length(piece))
        return before > 0 and ends[before - 1] > piece.address


@functools.cache
def _item_bytes(dtype: int) -> int:
    return n_bytes(DTYPES[dtype - 1], ())


def _length(piece: Piece) -> int:
    """The number of bytes from a piece's first element to its last one; torch's strides are not negative."""
    item = _item_bytes(piece.dtype)
    if piece.strides is None:
        return math.prod(piece.extent) * item
    return item + sum((n - 1) * stride for n, stride in zip(piece.extent, piece.strides))
