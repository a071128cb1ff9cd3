"""A checkpoint as torch.distributed.checkpoint sees it: the names that it uses, and their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata,
                                                   TensorProperties, TensorStorageMetadata)

from . import _arrays, _dcp_nested
from ._dcp_nested import At, Nested, is_tensor, name_of
from .checkpoint import Checkpoint, Entry


def _metadata_of(entry: Entry) -> TensorStorageMetadata:
    size = torch.Size(entry.shape)
    dtype = _arrays.torch_dtype(_arrays.dtype_number(entry.dtype))
    chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
    return TensorStorageMetadata(TensorProperties(dtype=dtype), size, [chunk])


class _Known(dict[str, Any]):
    """Metadata by name; also finds a tensor or object by its other names."""

    def __init__(self, listed: Mapping[str, Any], also: Mapping[str, Any]) -> None:
        super().__init__(listed)
        self._also = also

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._also

    def __missing__(self, name: str) -> Any:
        return self._also[name]


class Stored:
    """The names that a checkpoint's tensors and objects have in a state dict: keys joined by dots.

    Names below ``/model`` are known both with and without the prefix "model.": so a model's own state dict can be
    loaded from a step that was saved as {"model": ...}, and vice versa.

    Attributes:
        paths: the paths of tensors, by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._entries = checkpoint.entries
        found = Nested(checkpoint.stored, list(self._entries))
        self._keys = {name_of(keys): keys for keys in found.leaves}
        self._objects = {name_of(keys): value for keys, value in _dcp_nested.nodes(found.state)}
        self.paths: dict[str, str] = {name: value.path for name, value in self._objects.items() if is_tensor(value)}
        for path in self._entries:
            section, _, name = path[1:].partition("/")
            if section == "model" and name not in self._objects:
                self.paths.setdefault(name, path)
            if section == "model" and "model." + name not in self._objects:
                self.paths.setdefault("model." + name, path)

    def has_object(self, name: str) -> bool:
        return name in self._objects and name not in self.paths

    def entry(self, path: str) -> Entry:
        return self._entries[path]

    def arrays_of(self, name: str) -> dict[str, str]:
        """The paths of the tensors that are, or are inside, an object, with their kinds."""
        return {at.path: at.kind or "torch" for _, at in _dcp_nested.arrays_in(
            self._objects[name], lambda value: type(value) is At)}

    def object(self, name: str, arrays: Mapping[str, Any]) -> Any:
        """A copy of an object in which the arrays, given by path, are in their places."""
        return _dcp_nested.with_arrays(self._objects[name], arrays)

    def metadata(self) -> Metadata:
        """The metadata in the form that torch's planners require, with one chunk per tensor."""
        def of(name: str) -> Any:
            return _metadata_of(self._entries[self.paths[name]]) if name in self.paths else BytesStorageMetadata()
        also = {name: of(name) for name in [*self._objects, *self.paths] if name not in self._keys}
        return Metadata(_Known({name: of(name) for name in self._keys}, also), planner_data=dict(self._keys))
