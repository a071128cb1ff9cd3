"""A tensor of a checkpoint that is read when it is indexed."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from . import _arrays
from .checkpoint import Checkpoint


@dataclass(frozen=True)
class _Box:
    """The elements to read, and the index that turns them into the result."""

    start: tuple[int, ...]
    count: tuple[int, ...]
    rest: tuple[Any, ...]

    def is_sparse(self) -> bool:
        return any(isinstance(item, slice) and item.step not in (None, 1, -1) for item in self.rest)


def _integer(item: Any) -> int:
    try:
        if not isinstance(item, (bool, np.bool_)):
            return operator.index(item)
    except TypeError:
        pass
    raise TypeError(f"a lazy array is indexed by integers, slices, ... and None, not by {type(item).__name__}; [...] "
                    "reads it as a whole, as an array that takes any index")


def _along(item: Any, n: int) -> tuple[int, int, Any]:
    """Start and count in a dimension of ``n`` elements, and the index into what was read."""
    if isinstance(item, slice):
        found = range(*item.indices(n))
        if not found:
            return 0, 0, slice(None)
        first, last = min(found[0], found[-1]), max(found[0], found[-1])
        return first, last + 1 - first, slice(None, None, found.step)
    i = _integer(item)
    if not -n <= i < n:
        raise IndexError(f"index {i} is out of bounds for a dimension of {n} elements")
    return i % n, 1, 0


def _box(index: Any, shape: tuple[int, ...]) -> _Box:
    items = list(index) if isinstance(index, tuple) else [index]
    gaps = [i for i, item in enumerate(items) if item is Ellipsis]
    n = sum(item is not None for item in items) - len(gaps)
    if len(gaps) > 1 or n > len(shape):
        raise IndexError(f"{index} does not index an array of {len(shape)} dimensions")
    at = gaps[0] if gaps else len(items)
    items[at:at + 1] = [slice(None)] * (len(shape) - n)
    axes = iter(shape)
    found = [(0, 0, None) if item is None else _along(item, next(axes)) for item in items]
    read = [(first, count) for (first, count, _), item in zip(found, items) if item is not None]
    return _Box(tuple(first for first, _ in read), tuple(count for _, count in read),
                (*(rest for _, _, rest in found), *([...] if gaps else [])))


class LazyArray:
    """A tensor of a checkpoint that was read with ``libdcp.read(path, lazy=True)``.

    Indexing with integers, slices, ``...`` and None reads the elements that are needed, and checks them:
    ``array[2:5]``, ``array[...]``. ``numpy.asarray`` reads the whole tensor. The result is a new array: numpy's, or
    torch's according to ``as_torch``. Nothing is kept, so each access reads anew. A slice with a step also reads
    what lies between its elements.

    Any number of threads can use an array at once. The step's files stay open, and no writer removes them, as long as
    any array of the same ``libdcp.read`` exists.

    Attributes:
        path: the tensor's path in the checkpoint.
        shape, dtype: the tensor's, as numpy's or torch's arrays have them.

    Raises:
        libdcp.Error: CORRUPT: bytes differ from what was saved; ``tensor`` is the path.
        IndexError, TypeError: an invalid index.
    """

    __slots__ = ("_checkpoint", "_torch", "path", "shape", "dtype")

    def __init__(self, checkpoint: Checkpoint, path: str, torch: Any = None) -> None:
        entry = checkpoint.entries[path]
        self._checkpoint = checkpoint
        self._torch = torch
        self.path = path
        self.shape: Any = entry.shape if torch is None else torch.Size(entry.shape)
        self.dtype: Any = (_arrays.numpy_dtype(entry.dtype) if torch is None
                           else _arrays.torch_dtype(_arrays.dtype_number(entry.dtype)))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return _arrays.n_bytes(self._checkpoint.dtype(self.path), tuple(self.shape))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a scalar has no length")
        return int(self.shape[0])

    def __getitem__(self, index: Any) -> Any:
        box = _box(index, tuple(self.shape))
        if self._torch is None:
            array: Any = self._checkpoint.read(self.path, box.start, box.count)[box.rest]
            return array.copy() if box.is_sparse() else array  # the copy frees the elements in between
        tensor = self._torch.empty(box.count, dtype=self.dtype, device="cpu")
        self._checkpoint.read_into(self.path, box.start, box.count, tensor.data_ptr())
        found = tensor[box.rest]
        return found.clone() if box.is_sparse() else found

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"{self.path} is not in memory: reading it makes a new array, so copy=False is impossible")
        array = self._checkpoint.read(self.path)
        return array if dtype is None else array.astype(dtype, copy=False)

    def __repr__(self) -> str:
        return f"<libdcp.LazyArray {self.path!r}: {self.dtype} {tuple(self.shape)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a libdcp.LazyArray can be neither copied nor pickled: read it, or open its checkpoint anew")
