"""From a nested mapping to the checkpoint's names, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from . import _arrays
from .ranks import Loader, PerRank

OBJECTS = "state"  # the member of the checkpoint's JSON that has what is no tensor
_WORDS = (str, int, float, bool, type(None))

Key = tuple[Any, ...]  # the keys that lead to a value


def is_tensor(value: Any) -> bool:
    """Whether it is one in the checkpoint; else it goes into the JSON."""
    return _arrays.is_tensor(value) or isinstance(value, (PerRank, Loader))


def _is_optimizer(value: Any) -> bool:
    """As torch's get_state_dict gives it: {"state": {parameter: {moment: tensor}}, "param_groups": [...]}."""
    return isinstance(value, Mapping) and set(value) == {"state", "param_groups"} and isinstance(value["state"], Mapping)


def _leaves(value: Any, keys: Key) -> Iterator[tuple[Key, Any]]:
    """All values that are no containers, and containers without any."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*keys, key))
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and value and not is_tensor(value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, (*keys, i))
    else:
        yield keys, value


def text_of(keys: Key) -> str:
    """For messages: state["model"]["a"]."""
    return "state" + "".join(f"[{key!r}]" for key in keys)


def _path(state: Mapping[Any, Any], keys: Key) -> str:
    section, rest = str(keys[0]), keys[1:]
    if not rest:
        return f"/model/{section}"
    if _is_optimizer(state[keys[0]]) and len(rest) == 3 and rest[0] == "state":
        return f"/{section}/{rest[2]}/{rest[1]}"
    return f"/{section}/" + ".".join(map(str, rest))


def tensors(state: Mapping[Any, Any]) -> list[tuple[str, Key, Any]]:
    """Each tensor's path in the checkpoint, the keys that lead to it, and itself.

    Raises:
        ValueError: two have one path.
    """
    found: list[tuple[str, Key, Any]] = []
    seen: dict[str, Key] = {}
    for keys, value in _leaves(state, ()):
        if not is_tensor(value):
            continue
        path = _path(state, keys)
        if path in seen:
            raise ValueError(f"{text_of(seen[path])} and {text_of(keys)} would both be {path} in the checkpoint")
        seen[path] = keys
        found.append((path, keys, value))
    return found


def _word(value: Any, keys: Key) -> Any:
    """The value as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise TypeError(f"{text_of(keys)}: JSON has no word for {value}; save it as an array")
    if isinstance(value, _WORDS) or (isinstance(value, (Mapping, Sequence)) and not value):
        return value
    raise TypeError(f"{text_of(keys)}: a {type(value).__name__} is neither a tensor nor a number, a text, a list or a "
                    "mapping, and nothing is pickled; save what it consists of")


def _inner(value: Any, keys: Key) -> Any:
    """What of a value goes into the JSON; _NOTHING where it is or has nothing but tensors."""
    if is_tensor(value):
        return _NOTHING
    if isinstance(value, Mapping) and value:
        for key in value:
            if not isinstance(key, (str, int)):
                raise TypeError(f"{text_of((*keys, key))}: a key that is a {type(key).__name__}; JSON's are texts")
        made = {str(key): _inner(inner, (*keys, key)) for key, inner in value.items()}
        kept = {key: inner for key, inner in made.items() if inner is not _NOTHING}
        return kept or _NOTHING
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and value:
        items = [_inner(inner, (*keys, i)) for i, inner in enumerate(value)]
        if all(item is _NOTHING for item in items):
            return _NOTHING
        return [None if item is _NOTHING else item for item in items]
    return _word(value, keys)


_NOTHING = object()


def json_of(state: Mapping[Any, Any], given: Mapping[str, Any] | None) -> str:
    """The checkpoint's JSON: what the caller gives, and what of the state is no tensor under "state".

    Raises:
        TypeError: an object that JSON has no word for; it names the key.
        ValueError: the caller's JSON has the key "state".
    """
    members = dict(given or {})
    objects = _inner(state, ())
    if objects is not _NOTHING:
        if OBJECTS in members:
            raise ValueError(f'json has the key "{OBJECTS}", which is that of what is no tensor in the state')
        members[OBJECTS] = objects
    return json.dumps(members, allow_nan=False)


def _fill(value: Any, stored: Any, put: Callable[[Any], None]) -> None:
    """Puts what was stored in the place of what is no tensor."""
    if is_tensor(value):
        return
    if isinstance(value, MutableMapping) and value and isinstance(stored, Mapping):
        for key in list(value):
            if str(key) in stored:
                _fill(value[key], stored[str(key)], _setter(value, key))
    elif isinstance(value, MutableSequence) and value and isinstance(stored, list) and len(stored) == len(value):
        for i, inner in enumerate(stored):
            _fill(value[i], inner, _setter(value, i))
    else:
        put(stored)


def _setter(container: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value
    return put


def fill_objects(state: Mapping[Any, Any], members: Mapping[str, Any]) -> None:
    """After a load: what is no tensor in the state becomes what the checkpoint's JSON has of it."""
    stored = members.get(OBJECTS)
    if stored is not None and isinstance(state, MutableMapping):
        _fill(state, stored, lambda value: None)
