"""A checkpoint as torch.distributed.checkpoint sees it: what its names are there, and their metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (BytesStorageMetadata, ChunkStorageMetadata, Metadata,
                                                   TensorProperties, TensorStorageMetadata)

from . import _arrays, _dcp_bytes, _names
from ._dcp_state import TORCH
from .checkpoint import Checkpoint, Entry


Key = tuple[Any, ...]  # the keys that lead to a value


def _metadata_of(entry: Entry) -> TensorStorageMetadata:
    size = torch.Size(entry.shape)
    dtype = _arrays.torch_dtype(_arrays.dtype_number(entry.dtype))
    chunk = ChunkStorageMetadata(offsets=torch.Size([0] * len(size)), sizes=size)
    return TensorStorageMetadata(TensorProperties(dtype=dtype), size, [chunk])


def _nodes(value: Any, keys: Key) -> Iterator[tuple[Key, Any]]:
    """All objects below, and those in them."""
    if keys:
        yield keys, value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _nodes(inner, (*keys, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _nodes(inner, (*keys, i))


class _Known(dict[str, Any]):
    """Metadata by name, that also knows a tensor or object by its other names."""

    def __init__(self, listed: Mapping[str, Any], also: Mapping[str, Any]) -> None:
        super().__init__(listed)
        self._also = also

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._also

    def __missing__(self, name: str) -> Any:
        return self._also[name]


class _Hints:
    """What the writer has noted of the state dict, as paths don't tell it; hostile until checked.

    Attributes:
        inside: which tensors are or lie within objects, and as what.
        bytes: what objects are or have in them that is base64, and of what.
    """

    def __init__(self, members: Mapping[str, Any]) -> None:
        found = members.get(TORCH)
        hints: Mapping[str, Any] = found if isinstance(found, dict) else {}
        top, inside = hints.get("top"), hints.get("inside")
        self._all_at_top = top == "*"
        self._top = {name for name in top if isinstance(name, str)} if isinstance(top, list) else set()
        self.inside: dict[str, str] = {name: kind for name, kind in inside.items() if kind in ("numpy", "torch")} if (
            isinstance(inside, dict)) else {}
        self._nested = {**_prefixes(hints.get("nested"), False), **_prefixes(hints.get("lists"), True)}
        self.bytes = _dcp_bytes.hints_of(hints)
        stored = members.get(_names.OBJECTS)
        self.objects: dict[str, Any] = stored if isinstance(stored, dict) else {}

    def keys_of(self, path: str) -> Key:
        """That have led to the tensor; as good as can be told."""
        section, _, name = path[1:].partition("/")
        if section == "model" and (self._all_at_top or name in self._top):
            return (name,)
        keys = _names.keys_of(path, self.objects)
        if len(keys) > 2:
            return keys
        end = len(section) + len(name) + 1
        text = f"{section}.{name}"
        while (end := text.rfind(".", 0, end)) >= 0:
            if text[:end] in self._nested:
                around, is_list = self._nested[text[:end]]
                last = text[end + 1:]
                return (*around, int(last) if is_list and _is_index(last) else last)
        return keys


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdigit() and int(text) < _LONGEST_LIST


_LONGEST_LIST = 1 << 20  # so that a hostile file can't have torch's planners make a longer one


def _prefixes(listed: Any, are_lists: bool) -> dict[str, tuple[Key, bool]]:
    found = {}
    for keys in listed if isinstance(listed, list) else []:
        if isinstance(keys, list) and keys and isinstance(keys[0], str) and all(
                isinstance(key, str) or (type(key) is int and 0 <= key < _LONGEST_LIST) for key in keys):
            found[_name(tuple(keys))] = tuple(keys), are_lists
    return found


def _name(keys: Key) -> str:
    return ".".join(map(str, keys))


class Stored:
    """The names that a checkpoint's tensors and objects have in a state dict, joined by dots.

    Those below ``/model`` are known with and without "model." before the name: so a model's own state dict can be
    loaded from where it was saved as {"model": ...}, and the other way round.

    Attributes:
        paths: of tensors, by name.
        objects: values that are no tensors, by name.
        inside: "numpy" or "torch", what a tensor was that is or lies within an object, by name.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._entries = checkpoint.entries
        hints = _Hints(checkpoint.json)
        self.inside = hints.inside
        self._bytes = hints.bytes
        self.objects: dict[str, Any] = {_name(keys): value for keys, value in _nodes(hints.objects, ())}
        keys = {path: hints.keys_of(path) for path in self._entries}
        self.paths: dict[str, str] = {_name(found): path for path, found in keys.items()}
        self._keys = {name: found for name, found in self._listed(keys, hints.objects)}
        for path in self._entries:
            section, _, name = path[1:].partition("/")
            if section == "model":
                self.paths.setdefault(name, path)
                self.paths.setdefault("model." + name, path)

    def _listed(self, keys: Mapping[str, Key], tree: Any) -> Iterator[tuple[str, Key]]:
        """What torch's planners would save as an item each."""
        for found in keys.values():
            if _name(found) not in self.inside or _name(found) not in self.objects:
                yield _name(found), found
        yield from self._leaves(tree, ())

    def _leaves(self, value: Any, keys: Key) -> Iterator[tuple[str, Key]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from self._leaves(inner, (*keys, key))
        elif isinstance(value, list) and self._is_taken_apart(value, keys):
            for i, inner in enumerate(value):
                yield from self._leaves(inner, (*keys, i))
        elif _name(keys) not in self.paths:
            yield _name(keys), keys

    def _is_taken_apart(self, value: list[Any], keys: Key) -> bool:
        """torch does so with lists that have mappings or tensors in them."""
        for i, inner in enumerate(value):
            name = _name((*keys, i))
            if isinstance(inner, dict) or (name in self.paths and name not in self.inside):
                return True
            if isinstance(inner, list) and self._is_taken_apart(inner, (*keys, i)):
                return True
        return False

    def is_tensor(self, name: str) -> bool:
        """Whether it is one in the state dict, too."""
        return name in self.paths and name not in self.inside

    def entry(self, name: str) -> Entry:
        return self._entries[self.paths[name]]

    def arrays_of(self, name: str) -> dict[str, str]:
        """The tensors that are or lie within an object, with their kinds."""
        return {inner: kind for inner, kind in self.inside.items()
                if inner in self.paths and (inner == name or inner.startswith(name + "."))}

    def object(self, name: str, arrays: Mapping[str, Any]) -> Any:
        """A copy of an object, with its bytes, and its arrays, by their names, in their places."""
        if name in arrays:
            return arrays[name]
        return _dcp_bytes.restored(name, self.objects[name], self._bytes, arrays)

    def metadata(self) -> Metadata:
        """As torch's planners want it; of each tensor, one chunk."""
        def of(name: str) -> Any:
            return _metadata_of(self.entry(name)) if self.is_tensor(name) else BytesStorageMetadata()
        also = {name: of(name) for name in [*self.objects, *self.paths] if name not in self._keys}
        return Metadata(_Known({name: of(name) for name in self._keys}, also), planner_data=dict(self._keys))

