"""Converts a step to a torch.distributed.checkpoint directory, piece by piece. torch writes it."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from . import _arrays, _dcp_nested, _names, _paths, _tree
from ._dcp_rename import Renames
from ._options import Progress
from ._tree import Stored
from .checkpoint import Checkpoint, Entry

PIECE_BYTES = 32 << 20
_DATA = "__0_0.distcp"

Keys = tuple[str | int, ...]


def _flat(keys: Keys, flat: bool) -> Keys:
    return keys[1:] if flat and keys[0] == "model" and len(keys) > 1 else keys


def _fqn(keys: Keys) -> str:
    return ".".join(map(str, keys))


def _chunks(shape: tuple[int, ...], item: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(start, count) of boxes of at most PIECE_BYTES that cover a tensor."""
    count = list(shape)
    for dim in range(len(shape)):
        below = item * prod(shape[dim + 1:])
        count[dim] = max(1, min(shape[dim], PIECE_BYTES // max(below, 1)))
        if below <= PIECE_BYTES:
            break
    for start in product(*(range(0, max(whole, 1), max(n, 1)) for whole, n in zip(shape, count))):
        yield start, tuple(min(n, whole - s) for s, n, whole in zip(start, count, shape))


@dataclass
class _Written:
    """The future contents of the metadata."""

    described: dict[str, Any]
    places: dict[Any, Any]
    keys: dict[str, Keys]


class _Writer:
    def __init__(self, checkpoint: Checkpoint, folder: str, progress: Progress | None) -> None:
        # Imported here, since only this conversion needs torch.
        import torch
        from torch.distributed.checkpoint import filesystem, metadata
        self._torch: Any = torch
        self._metadata: Any = metadata
        self._info: Any = filesystem._StorageInfo
        self._checkpoint = checkpoint
        self._folder = folder
        self._progress = progress
        self._done = 0
        self._total = sum(map(_bytes, checkpoint.entries.values()))
        self._written = _Written({}, {}, {})

    def _tell(self, n: int) -> None:
        self._done += n
        if self._progress:
            self._progress(self._done, self._total)

    def _place(self, stream: io.BufferedWriter, value: Any, index: Any) -> None:
        """Appends a tensor or an object."""
        begin = stream.tell()
        self._torch.save(value, stream)
        self._written.places[index] = self._info(_DATA, begin, stream.tell() - begin)

    def _tensor(self, stream: io.BufferedWriter, path: str, keys: Keys) -> None:
        entry, fqn = self._checkpoint.entries[path], _fqn(keys)
        dtype = _arrays.torch_dtype(_arrays.dtype_number(entry.dtype))
        chunks = []
        for i, (start, count) in enumerate(_chunks(entry.shape, _item(entry))):
            read = self._checkpoint.read(path, start, count)
            self._place(stream, self._torch_tensor(read, entry), self._metadata.MetadataIndex(fqn, start, i))
            chunks.append(self._metadata.ChunkStorageMetadata(self._torch.Size(start), self._torch.Size(count)))
            self._tell(read.nbytes)
        self._add(fqn, keys, self._metadata.TensorStorageMetadata(
            self._metadata.TensorProperties(dtype=dtype), self._torch.Size(entry.shape), chunks))

    def _whole(self, value: Any) -> Any:
        """An object with its arrays in their places."""
        arrays = {at.path: self._array(at) for _, at in _dcp_nested.arrays_in(value, lambda v: type(v) is _dcp_nested.At)}
        return _dcp_nested.with_arrays(value, arrays)

    def _array(self, at: _dcp_nested.At) -> Any:
        entry, read = self._checkpoint.entries[at.path], self._checkpoint.read(at.path)
        self._tell(read.nbytes)
        return read if at.kind == "numpy" else self._torch_tensor(read, entry)

    def _torch_tensor(self, read: Any, entry: Entry) -> Any:
        made = self._torch.empty(read.shape, dtype=_arrays.torch_dtype(_arrays.dtype_number(entry.dtype)), device="cpu")
        made.view(-1).view(self._torch.uint8).numpy()[...] = read.reshape(-1).view(np.uint8)
        return made

    def _object(self, stream: io.BufferedWriter, value: Any, keys: Keys) -> None:
        self._place(stream, value, self._metadata.MetadataIndex(_fqn(keys)))
        self._add(_fqn(keys), keys, self._metadata.BytesStorageMetadata())

    def _add(self, fqn: str, keys: Keys, described: Any) -> None:
        if fqn in self._written.described:
            raise ValueError(f"two tensors or objects would both be {fqn}")
        self._written.described[fqn] = described
        self._written.keys[fqn] = keys

    def write(self, flat: bool, renames: Renames) -> None:
        leaves = _dcp_nested.Nested(self._checkpoint.stored, list(self._checkpoint)).leaves
        keys = renames.of_all({value.path: _flat(keys, flat) for keys, value in leaves.items() if _dcp_nested.is_tensor(value)})
        with open(os.path.join(self._folder, _DATA), "wb") as stream:
            for path, where in keys.items():
                self._tensor(stream, path, where)
            for where, value in leaves.items():
                if not _dcp_nested.is_tensor(value):
                    self._object(stream, self._whole(value), renames.of(where))
            _paths.sync(stream)
        made = self._metadata.Metadata(self._written.described, self._written.keys, self._written.places,
                                       self._metadata.StorageMeta())
        with open(os.path.join(self._folder, ".metadata"), "wb") as stream:
            pickle.dump(made, stream)
            _paths.sync(stream)


def _item(entry: Entry) -> int:
    return _arrays.numpy_dtype(entry.dtype).itemsize


def _bytes(entry: Entry) -> int:
    return prod(entry.shape) * _item(entry)


def convert(source: str, directory: str, *, flat: bool = False, renames: Renames = Renames(()),
            progress: Progress | None = None) -> list[str]:
    """Makes a torch.distributed.checkpoint directory from a step.

    Args:
        source: a step's folder, or a directory of steps, whose newest step is converted.
        directory: the directory to create; it must not exist. It gets its name once it is complete and durable.
        flat: ``/model/a`` becomes "a", as for a state with its tensors at the top level, instead of "model.a".
        renames: other keys for the checkpoint's sections, such as "optimizer".
        progress: called with the number of bytes done and the total.

    Returns:
        The members of the step's JSON that have no place in a state: they are omitted.

    Raises:
        libdcp.Error: the step is damaged.
        ImportError: torch is not installed.
    """
    directory = os.path.abspath(directory)
    with Checkpoint(source) as checkpoint:
        with _paths.published(directory) as made:
            _Writer(checkpoint, made, progress).write(flat, renames)
            if os.path.lexists(directory):
                raise FileExistsError(f"{directory} exists; nothing is overwritten")
        return sorted(set(checkpoint.json) - {_names.OBJECTS, _tree.TREE, _dcp_nested.TORCH, "format", "step", "shard"})
