"""Reads Hugging Face's safetensors through the library, which checks the files' headers."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _arrays
from ._capi import lib
from .checkpoint import parts_of

_RUN_BYTES = 64 << 10  # shorter runs that lie apart in the file are read together with what lies between
BITS = {1: "i1", 2: "i2", 4: "i4", 8: "i8", 16: "c16"}  # for each size in bytes: a type that numpy and torch have


class Stored(NamedTuple):
    """What the files say about a tensor."""

    dtype: int
    shape: tuple[int, ...]

    @property
    def said(self) -> str:
        return f"{_arrays.DTYPES[self.dtype - 1]} {self.shape}"


class Folder:
    """The tensors of a Hugging Face folder, of a .safetensors file, or of an index with its files.

    Raises:
        libdcp.Error: NOT_FOUND; CORRUPT or UNSUPPORTED, whose message says what is wrong and where.
    """

    def __init__(self, path: str) -> None:
        self._handle = c.c_void_p()
        lib.st_open_incomplete(os.fsencode(path), self._handle)
        self.tensors: dict[str, Stored] = {}
        for i in range(lib.st_tensors(self._handle)):
            t = lib.st_tensor(self._handle, i).contents
            self.tensors[t.path.decode()] = Stored(t.dtype, tuple(t.shape[:t.ndim]))

    def boxes(self, name: str, start: Sequence[int], count: Sequence[int],
              ) -> Iterator[tuple[Sequence[int], npt.NDArray[Any]]]:
        """Yields a box in parts of bounded size: each part's start, and an array of its elements' bits."""
        shape = self.tensors[name].shape
        size = _arrays.n_bytes(_arrays.DTYPES[self.tensors[name].dtype - 1], ())
        if 0 in count:
            return
        spread = -(-prod(shape[1:]) // prod(count[1:]))  # bytes read per byte needed
        for first, n in parts_of(start, count, size * spread):
            yield first, self._box(name, size, first, n)

    def _box(self, name: str, size: int, start: Sequence[int], count: Sequence[int]) -> npt.NDArray[Any]:
        shape = self.tensors[name].shape
        strides = [size * prod(shape[d + 1:]) for d in range(len(shape))]
        inner = next((d for d in reversed(range(len(shape))) if count[d] != shape[d]), 0)  # those after it are whole
        run = size * prod(count[inner:])
        if run == size * prod(count) or run >= _RUN_BYTES:
            found = np.empty(tuple(count), BITS[size])
            for i, outer in enumerate(np.ndindex(*count[:inner])):
                at = sum((s + o) * stride for s, o, stride in zip(start, (*outer, *[0] * len(shape)), strides))
                self._read(name, at, run, found.ctypes.data + i * run)
            return found
        at = sum(s * stride for s, stride in zip(start, strides))
        raw = np.empty(sum((n - 1) * stride for n, stride in zip(count, strides)) + size, np.uint8)
        self._read(name, at, raw.nbytes, raw.ctypes.data)
        return np.ndarray(tuple(count), BITS[size], raw, strides=tuple(strides))

    def read_into(self, name: str, offset: int, into: memoryview) -> None:
        """Fills ``into`` with a tensor's bytes from ``offset`` on."""
        self._read(name, offset, into.nbytes, c.addressof(c.c_char.from_buffer(into)))

    def _read(self, name: str, at: int, n: int, address: int) -> None:
        lib.st_read(self._handle, name.encode(), at, n, address)

    def close(self) -> None:
        lib.st_close(self._handle)
        self._handle = c.c_void_p()
