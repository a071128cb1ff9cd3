"""Reads a checkpoint as the nested mapping that was saved, without a state to load into."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _arrays, _capi, _checked, _names
from ._decoding import Decoder
from ._lazy import LazyArray
from ._paths import Path
from ._restore import Selects
from ._tree import Stored, Trail, tensors_in
from ._words import Keys
from .checkpoint import Checkpoint, Entry
from .errors import Error, Status


class _Reading(Decoder):
    """Decodes what is selected, with the tensors in their places."""

    def __init__(self, stored: Stored, selects: Selects | None, tensors: Mapping[str, Any]) -> None:
        super().__init__(stored.is_tagged)
        self._stored = stored
        self._selects = selects
        self._tensors = tensors
        self.placed: set[str] = set()

    def tensor(self, path: Any, keys: Trail, hint: Any) -> Any:
        if path not in self._tensors:
            raise Error(f"{Keys(keys)}: the checkpoint's JSON has the tensor {path} here, and the checkpoint has no such tensor",
                        status=Status.UNSUPPORTED)  # not CORRUPT: the JSON's checksum is right
        self.placed.add(path)
        return self._tensors[path]

    def mapping(self, word: dict[str, Any], keys: Trail, hint: Any) -> Any:
        return super().mapping({key: inner for key, inner in word.items() if self._keeps(inner, (*keys, key))}, keys, hint)

    def pairs(self, content: Any, keys: Trail, hint: Any) -> list[tuple[Any, Any]]:
        return super().pairs([(key, inner) for key, inner in content if self._keeps(inner, (*keys, self.value(key)))],
                             keys, hint)

    def value(self, word: Any, keys: Trail = (), hint: Any = None) -> Any:
        if word is None and not self._is_tagged and keys and _names.path_of(keys) in self._tensors:
            return self.tensor(_names.path_of(keys), keys, hint)  # older versions wrote null for a tensor in a list
        if self._selects is None or self._stored.children(word, self) is not None:
            return super().value(word, keys, hint)
        selects, self._selects = self._selects, None  # what is not a mapping is read as a whole
        try:
            return super().value(word, keys, hint)
        finally:
            self._selects = selects

    def _keeps(self, word: Any, keys: Trail) -> bool:
        if self._selects is None:
            return True
        children = self._stored.children(word, self)
        if children:
            return any(self._keeps(inner, (*keys, key)) for key, inner in children)
        return self._has_tensor(word) or not self._stored.is_tensor(word) and self._selects(_names.object_path(keys))

    def _has_tensor(self, word: Any) -> bool:
        if self._stored.is_tensor(word):
            return word["$tensor"] in self._tensors
        return any(map(self._has_tensor, word.values() if type(word) is dict else word if type(word) is list else ()))


def _with_whole(word: Any, keys: Trail, stored: Stored, decoder: Decoder, selects: Selects) -> Iterator[str]:
    """The tensors in those values that are not mappings, such as lists, and that are selected or contain a selected
    tensor: such a value is read as a whole."""
    children = stored.children(word, decoder)
    if children is not None:
        for key, inner in children:
            yield from _with_whole(inner, (*keys, key), stored, decoder, selects)
        return
    paths = [path for path, _ in tensors_in(word, None)]
    if selects(_names.object_path(keys)) or any(map(selects, paths)):
        yield from paths


class _Selected:
    """Returns true for paths that are read: those that match a glob."""

    def __init__(self, globs: Sequence[str]) -> None:
        self._globs = globs
        self._idle = set(globs)

    def __call__(self, path: str) -> bool:
        text = _capi.path_bytes(path)
        found = [glob for glob in self._globs if _capi.matches(glob.encode(), text)]
        self._idle.difference_update(found)
        return bool(found)

    def refuse_idle(self, path: str, tensors: Iterable[str]) -> None:
        """Refuses globs that match nothing. Called after the paths of all objects that are not tensors were compared
        with the globs; compares the tensors' paths.

        Raises:
            libdcp.Error: NOT_FOUND: a glob has matched nothing.
        """
        for tensor in tensors if self._idle else ():
            self(tensor)
        for glob in self._globs:
            if glob in self._idle:
                raise Error(f"only: nothing in {path} matches the glob {glob}", status=Status.NOT_FOUND, path=path)


def _new(entry: Entry, torch: Any) -> Any:
    if torch is None:
        return np.empty(entry.shape, _arrays.numpy_dtype(entry.dtype))
    return torch.empty(entry.shape, dtype=_arrays.torch_dtype(_arrays.dtype_number(entry.dtype)), device="cpu")


def _put(state: dict[Any, Any], keys: Trail, value: Any, path: str) -> None:
    inner: Any = state
    for key in keys[:-1]:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or keys[-1] in inner:
        raise Error(f"tensor {path} is where the checkpoint's JSON has something else", status=Status.CORRUPT, tensor=path)
    inner[keys[-1]] = value


def _fill(checkpoint: Checkpoint, tensors: Mapping[str, Any]) -> None:
    by_section: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        section, rest = name[1:].split("/", 1)
        by_section.setdefault(section, {})[rest] = tensor
    if tensors:
        checkpoint.fill(by_section)


def _nested(checkpoint: Checkpoint, selected: _Selected | None, torch: Any, lazy: bool) -> dict[Any, Any]:
    stored = checkpoint.stored
    words = stored.words if stored.words is not None else {}
    whole = set() if selected is None or not stored.is_tagged else set(
        _with_whole(words, (), stored, Decoder(True), selected))
    tensors = {name: LazyArray(checkpoint, name, torch) if lazy else _new(entry, torch)
               for name, entry in checkpoint.entries.items() if selected is None or selected(name) or name in whole}
    if not lazy:
        _fill(checkpoint, tensors)
    reading = _Reading(stored, selected, tensors)
    found = reading.value(words)
    if not isinstance(found, dict):
        raise Error('the member "state" of the checkpoint\'s JSON is no mapping', status=Status.CORRUPT,
                    path=checkpoint.path)
    for name, tensor in tensors.items():
        if name not in reading.placed:
            _put(found, stored.keys_of(name), tensor, name)
    if selected is not None:
        selected.refuse_idle(checkpoint.path, checkpoint)
    return found


def read(path: Path, *, only: str | Sequence[str] | None = None, as_torch: bool | None = None,
         lazy: bool = False) -> dict[Any, Any]:
    """Reads a checkpoint as the nested mapping that was saved, completely into memory, and verifies it.

    Args:
        path: a step's folder, or a directory of steps, whose newest step is read.
        only: globs of paths, as in :func:`libdcp.load`: nothing else is read. What is not a mapping, such as a list, is
            read as a whole if it, or a tensor in it, is selected. Each glob must match something.
        as_torch: True: tensors are torch's; False: they are numpy's; None: they are torch's if torch is imported.
        lazy: tensors are :class:`libdcp.LazyArray`, which read and check elements when they are indexed. The step's files
            stay open, and no writer removes them, until the last of these arrays is gone.

    Returns:
        What is not a tensor has the type with which it was saved; instances of classes that were not registered
        (:func:`libdcp.register`) become plain values: a named tuple becomes a tuple, an Enum its value, and a dataclass
        a dict. An object's state dict becomes a mapping. The result is a dict, and so is each mapping that contained
        only tensors, whatever its type was.

    Raises:
        libdcp.Error: NOT_FOUND; CORRUPT, which names tensor and block; or MISMATCH: an element of a set or a key of a
            mapping needs a class that was not registered.
    """
    given = _checked.checked("read", {"only": only, "as_torch": as_torch, "lazy": lazy}, _checked.READS)
    as_torch = given["as_torch"]
    torch = importlib.import_module("torch") if as_torch else sys.modules.get("torch") if as_torch is None else None
    with contextlib.ExitStack() as closing:
        checkpoint = closing.enter_context(Checkpoint(path))
        found = _nested(checkpoint, None if only is None else _Selected(given["only"]), torch, given["lazy"])
        if given["lazy"]:
            closing.pop_all()  # the arrays keep it open
        return found
