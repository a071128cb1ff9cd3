"""A checkpoint as the nested state that was saved, and flat as in torch.distributed.checkpoint, without torch.

torch names the items of a state dict by the keys that lead to them, joined by dots. It descends into mappings, and into
lists that contain mappings or tensors; everything else is one object, even if it contains arrays.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from . import _dcp_bytes, _names
from ._decoding import Decoder
from ._tree import Stored as Words
from ._words import Absent, Keys

TORCH = "torch"  # the member of the checkpoint's JSON for what the words don't contain
INSIDE = "inside"  # a member of TORCH: the kinds of arrays that are, or are inside, objects; by name
_ARRAYS = "arrays"
_LONGEST_LIST = 1 << 20  # so that a hostile file cannot make torch's planners create a longer one

Key = tuple[Any, ...]  # the keys that lead to a value


def name_of(keys: Key) -> str:
    return ".".join(map(str, keys))


class At:
    """Stands for a tensor, in the tensor's place. A deep copy has the tensor's array there, which the memo contains by
    path.

    Attributes:
        kind: "numpy" or "torch", for an array that is not a tensor in the state dict, but is, or is inside, an object.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.kind: str | None = None

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        return memo[_ARRAYS].get(self.path)


def is_tensor(value: Any) -> bool:
    """Returns true for an :class:`At` that stands for a tensor of the state dict, and not for an array in an object."""
    return type(value) is At and value.kind is None


def with_arrays(value: Any, arrays: Mapping[str, Any]) -> Any:
    """A copy in which the arrays, given by path, are in their places."""
    memo: dict[Any, Any] = {_ARRAYS: arrays}
    return copy.deepcopy(value, memo)


class _Places(Decoder):
    def tensor(self, path: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        return At(str(path))


class _Leaf:
    def __init__(self, value: Any) -> None:
        self.value = value


def nested(leaves: Mapping[Key, Any], most_unnamed: int = _LONGEST_LIST) -> dict[Any, Any]:
    """Dictionaries and lists of values by their keys, as torch's set_element makes them: numbers are indices of lists,
    in which items that are not given are :class:`Absent`.

    Raises:
        ValueError: something is inside a value that is not a mapping, or too many items are not given.
    """
    root: dict[Any, Any] = {}
    for keys, value in leaves.items():
        inner = root
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
            if not isinstance(inner, dict):
                raise ValueError(f"{Keys(keys)} is inside something that is not a mapping")
        if keys[-1] in inner:
            raise ValueError(f"{Keys(keys)} occurs twice")
        inner[keys[-1]] = _Leaf(value)
    left = most_unnamed + len(leaves)

    def made(value: Any) -> Any:
        nonlocal left
        if isinstance(value, _Leaf):
            return value.value
        found = {key: made(inner) for key, inner in value.items()}
        if not found or not all(type(key) is int for key in found):
            return found
        n = max(found) + 1
        left -= n
        if left < 0:
            raise ValueError(f"a list of {n} items, of which only {len(found)} exist")
        return [found.get(i, Absent()) for i in range(n)]
    return {key: made(value) for key, value in root.items()}


def _is_taken_apart(value: Any, is_tensor: Callable[[Any], bool]) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list) and any(is_tensor(inner) or isinstance(inner, (Mapping, list)) and _is_taken_apart(
        inner, is_tensor) for inner in value)


def leaves_of(value: Any, is_tensor: Callable[[Any], bool], keys: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Flattens a state dict as torch does."""
    if not _is_taken_apart(value, is_tensor):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves_of(inner, is_tensor, (*keys, str(key)))
    else:
        for i, inner in enumerate(value):
            yield from leaves_of(inner, is_tensor, (*keys, i))


def arrays_in(value: Any, is_array: Callable[[Any], bool], keys: Key = ()) -> Iterator[tuple[Key, Any]]:
    """The arrays that an object is or contains, with the keys that lead to them."""
    if is_array(value):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from arrays_in(inner, is_array, (*keys, key))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        for i, inner in enumerate(value):
            yield from arrays_in(inner, is_array, (*keys, i))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from arrays_in(getattr(value, field.name, None), is_array, (*keys, field.name))


def _put(root: dict[Any, Any], keys: Key, value: Any) -> None:
    """Adds a value to the existing ones. Ignores a value that cannot be added."""
    inner: Any = root
    for key, following in zip(keys, (*keys[1:], None)):
        if isinstance(inner, list) and type(key) is int and key < _LONGEST_LIST:
            inner.extend([None] * (key + 1 - len(inner)))
        elif not isinstance(inner, dict):
            return
        there = inner.get(key) if isinstance(inner, dict) else inner[key]
        if following is None:
            inner[key] = value
        elif there is None:
            there = inner[key] = [] if type(following) is int else {}
        inner = there


def _put_by_name(container: Any, name: str, put: Callable[[Any], Any]) -> bool:
    """Like :func:`_put`, for keys of which only the joined text is known: adds the value to the existing mapping or
    list."""
    items = list(container.items() if isinstance(container, dict) else enumerate(container) if isinstance(
        container, list) else ())
    for key, inner in items:
        if name == str(key):
            container[key] = put(inner)
            return True
        if name.startswith(f"{key}.") and _put_by_name(inner, name[len(str(key)) + 1:], put):
            return True
    if not isinstance(container, dict):
        return False
    container[name] = put(None)
    return True


def _instead(at: At, _there: Any) -> At:
    return at


class _Hints:
    """What older versions stored about the state dict in addition to paths. The file may be hostile, so this is checked
    first."""

    def __init__(self, hints: Mapping[str, Any], is_flat: bool, objects: Any) -> None:
        top = hints.get("top")
        self._all_at_top = is_flat or top == "*"
        self._top = {name for name in top if isinstance(name, str)} if isinstance(top, list) else set()
        self._nested = {**_prefixes(hints.get("nested"), False), **_prefixes(hints.get("lists"), True)}
        self._objects: Mapping[str, Any] = objects if isinstance(objects, dict) else {}

    def keys_of(self, path: str) -> Key:
        """The most likely keys of the tensor."""
        section, _, name = path[1:].partition("/")
        if section == "model" and (self._all_at_top or name in self._top):
            return (name,)
        keys = _names.keys_of(path, self._objects)
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


def _prefixes(listed: Any, are_lists: bool) -> dict[str, tuple[Key, bool]]:
    found = {}
    for keys in listed if isinstance(listed, list) else []:
        if isinstance(keys, list) and keys and isinstance(keys[0], str) and all(
                isinstance(key, str) or (type(key) is int and 0 <= key < _LONGEST_LIST) for key in keys):
            found[name_of(tuple(keys))] = tuple(keys), are_lists
    return found


class Nested:
    """The state in a checkpoint.

    Args:
        words: the words of the checkpoint's JSON.
        paths: the paths of its tensors.

    Attributes:
        state: nested, with an :class:`At` in each tensor's place.
        leaves: its tensors and objects by their keys, as torch flattens it.

    Raises:
        libdcp.Error: the JSON's words are damaged.
    """

    def __init__(self, words: Words, paths: Sequence[str]) -> None:
        found = words.members.get(TORCH)
        hints: Mapping[str, Any] = found if isinstance(found, dict) else {}
        made = _Places(words.is_tagged).value(words.words)
        self.state: dict[Any, Any] = made if isinstance(made, dict) else {}
        self._place(words, hints, paths)
        inside = hints.get(INSIDE)
        kinds: Mapping[Any, Any] = inside if isinstance(inside, dict) else {}
        for keys, at in arrays_in(self.state, lambda value: type(value) is At):
            kind = kinds.get(name_of(keys))
            at.kind = kind if kind in ("numpy", "torch") else None
        self.leaves: dict[Key, Any] = dict(leaves_of(self.state, is_tensor))

    def _place(self, words: Words, hints: Mapping[str, Any], paths: Sequence[str]) -> None:
        """Places the tensors for which the words give no place."""
        for name, kind in _dcp_bytes.hints_of(hints).items():
            _put_by_name(self.state, name, functools.partial(_dcp_bytes.decoded, kind=kind))
        placed = {at.path for _, at in arrays_in(self.state, lambda value: type(value) is At)}
        told = _Hints(hints, words.is_flat, words.members.get(_names.OBJECTS))
        for path in paths:
            if path in placed:
                continue
            keys = told.keys_of(path)
            if words.is_tagged or hints or len(keys) != 2 or not isinstance(self.state.get(keys[0]), (dict, list)):
                _put(self.state, keys, At(path))
            else:
                _put_by_name(self.state[keys[0]], keys[1], functools.partial(_instead, At(path)))


def nodes(value: Any, keys: Key = ()) -> Iterator[tuple[Key, Any]]:
    """All values below a value, and, if it has keys, the value itself, with the keys that lead to them."""
    if keys:
        yield keys, value
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from nodes(inner, (*keys, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from nodes(inner, (*keys, i))
