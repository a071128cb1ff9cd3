"""From a nested mapping to the checkpoint's names, and back."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from . import _arrays
from .errors import Error, Status
from .ranks import Loader, PerRank

OBJECTS = "state"  # the member of the checkpoint's JSON that has what is no tensor
_WORDS = (str, int, float, bool, type(None))


class Keys(tuple[Any, ...]):
    """The keys that lead to a value; as text, state["model"]["a"]."""

    def __str__(self) -> str:
        return "state" + "".join(f"[{key!r}]" for key in self)


class _Kind(enum.Enum):
    TENSOR = enum.auto()
    MAPPING = enum.auto()
    SEQUENCE = enum.auto()
    OBJECT = enum.auto()


_kinds: dict[type, _Kind] = {}  # states have thousands of values of few types


def _kind_of_type(kind: type) -> _Kind:
    if _arrays.is_tensor_type(kind) or issubclass(kind, (PerRank, Loader)):
        return _Kind.TENSOR
    if issubclass(kind, Mapping):
        return _Kind.MAPPING
    if issubclass(kind, Sequence) and not issubclass(kind, (str, bytes)):
        return _Kind.SEQUENCE
    return _Kind.OBJECT


def _kind(value: Any) -> _Kind:
    found = _kinds.get(type(value))
    if found is None:
        found = _kinds[type(value)] = _kind_of_type(type(value))
    if found is _Kind.OBJECT and not isinstance(value, _WORDS) and hasattr(value, "__cuda_array_interface__"):
        return _Kind.TENSOR
    return found


def is_tensor(value: Any) -> bool:
    """Whether it is one in the checkpoint; else it goes into the JSON."""
    return _kind(value) is _Kind.TENSOR


def _is_stateful(value: Any) -> bool:
    return not is_tensor(value) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _state_dict(key: Any, value: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        raise TypeError(f"{Keys((key,))}: an optimizer itself knows its parameters by numbers alone; pass "
                        "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(model, optimizer)")
    return value.state_dict()


def expanded(state: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """With the state dicts of objects that have one in their place."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state is of type {type(state).__name__}, and not a mapping to tensors, sections of them "
                        'or objects with a state dict, such as {"model": model}')
    if not any(map(_is_stateful, state.values())):
        return state
    return {key: _state_dict(key, value) if _is_stateful(value) else value for key, value in state.items()}


def give_back(state: Mapping[Any, Any], loaded: Mapping[Any, Any]) -> None:
    """After a load: objects get the state dicts that stood in their place."""
    for key, value in state.items():
        if _is_stateful(value):
            value.load_state_dict(loaded[key])


def _is_optimizer(value: Any) -> bool:
    """As torch's get_state_dict gives it: {"state": {parameter: {moment: tensor}}, "param_groups": [...]}."""
    return isinstance(value, Mapping) and set(value) == {"state", "param_groups"} and isinstance(value["state"], Mapping)


def keys_of(path: str, objects: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that have led to a tensor, but for what lay nested below its section, whose keys a dot joins.

    Args:
        objects: what of the checkpoint's JSON was no tensor.
    """
    section, name = path[1:].split("/", 1)
    described = objects.get(section)
    if "/" in name and (section == "optimizer" or isinstance(described, dict) and "param_groups" in described):
        moment, parameter = name.split("/", 1)
        return section, "state", parameter, moment
    return section, name


def is_below(path: str, keys: tuple[str, ...]) -> bool:
    """Whether a tensor lies below the mapping that the keys lead to."""
    section, *rest = keys
    if not path.startswith(f"/{section}/"):
        return False
    if rest[:1] == ["state"] and "/" in path[len(section) + 2:]:  # an optimizer's
        return not rest[1:] or path.endswith("/" + ".".join(rest[1:]))
    return not rest or path.startswith(f"/{section}/{'.'.join(rest)}.")


Found = tuple[str, tuple[Any, ...], Any]


def _under(path: str, separator: str, keys: tuple[Any, ...], value: Any) -> Iterator[Found]:
    """The tensors at a path and below it."""
    kind = _kind(value)
    if kind is _Kind.TENSOR:
        yield path, keys, value
    elif kind is _Kind.MAPPING:
        for key, inner in value.items():
            yield from _under(f"{path}{separator}{key}", ".", (*keys, key), inner)
    elif kind is _Kind.SEQUENCE:
        for i, inner in enumerate(value):
            yield from _under(f"{path}{separator}{i}", ".", (*keys, i), inner)


def _optimizer(section: str, key: Any, value: Mapping[str, Any]) -> Iterator[Found]:
    for parameter, moments in value["state"].items():
        keys = (key, "state", parameter)
        if _kind(moments) is not _Kind.MAPPING:
            yield from _under(f"/{section}/state.{parameter}", ".", keys, moments)
            continue
        for moment, inner in moments.items():
            if _kind(inner) is _Kind.TENSOR:
                yield f"/{section}/{moment}/{parameter}", (*keys, moment), inner
            else:
                yield from _under(f"/{section}/state.{parameter}.{moment}", ".", (*keys, moment), inner)
    yield from _under(f"/{section}/param_groups", ".", (key, "param_groups"), value["param_groups"])


def _all(state: Mapping[Any, Any]) -> Iterator[Found]:
    for key, value in state.items():
        if _kind(value) is _Kind.TENSOR:
            yield f"/model/{key}", (key,), value
        elif _is_optimizer(value):
            yield from _optimizer(str(key), key, value)
        else:
            yield from _under(f"/{key}", "/", (key,), value)


def tensors(state: Mapping[Any, Any]) -> list[tuple[str, Keys, Any]]:
    """Each tensor's path in the checkpoint, the keys that lead to it, and itself.

    Raises:
        ValueError: two have one path, or one has none.
    """
    found: dict[str, tuple[str, Keys, Any]] = {}
    for path, keys, value in _all(state):
        if "\0" in path:
            raise ValueError(f"{Keys(keys)}: a name with a NUL")
        if path in found:
            raise ValueError(f"{found[path][1]} and {Keys(keys)} would both be {path} in the checkpoint")
        found[path] = path, Keys(keys), value
    return list(found.values())


_FLOAT = "float"  # {"float": "inf"} stands for a number that JSON lacks
_NOT_FINITE = ("inf", "-inf", "nan")


def parsed(text: bytes) -> Any:
    """The checkpoint's JSON, with the numbers that JSON lacks."""
    def restored(found: dict[str, Any]) -> Any:
        return float(found[_FLOAT]) if len(found) == 1 and found.get(_FLOAT) in _NOT_FINITE else found
    return json.loads(text, object_hook=restored)


def word(value: Any, keys: Keys) -> Any:
    """The value as JSON has it.

    Raises:
        TypeError: it has none for it; the message names the keys.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if isinstance(value, _WORDS) or (isinstance(value, (Mapping, Sequence)) and not value):
        return value
    raise TypeError(f"{keys}: a {type(value).__name__} is neither a tensor nor a number, a text, a list or a "
                    "mapping, and nothing is pickled; save what it consists of")


class TensorMappings:
    """Those of a state's mappings that hold tensors alone, so that thousands need not be looked at before each save: they
    are the same ones as before, of the same length."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Mapping[Any, Any], int]] = {}  # with the mapping, so that its id stays its own
        self._now: dict[int, tuple[Mapping[Any, Any], int]] = {}
        self.tensors = 0  # in the whole state

    def begin(self) -> None:
        """Before the state is gone through once more."""
        self._before, self._now = self._now, {}
        self.tensors = 0

    def add(self, mapping: Mapping[Any, Any]) -> None:
        self._now[id(mapping)] = mapping, len(mapping)
        self.tensors += len(mapping)

    def knows(self, mapping: Mapping[Any, Any]) -> bool:
        _, length = self._before.get(id(mapping), (None, -1))
        if length == len(mapping):
            self.add(mapping)
        return length == len(mapping)


def _inner(value: Any, keys: Keys, known: TensorMappings) -> Any:
    """What of a value goes into the JSON; _NOTHING where it is or has nothing but tensors."""
    if is_tensor(value):
        known.tensors += 1
        return _NOTHING
    if isinstance(value, Mapping) and value:
        if known.knows(value):
            return _NOTHING
        for key in value:
            if not isinstance(key, (str, int)):
                raise TypeError(f"{Keys((*keys, key))}: a key that is a {type(key).__name__}; JSON's are texts")
        if all(map(is_tensor, value.values())):
            known.add(value)
            return _NOTHING
        made = {str(key): _inner(inner, Keys((*keys, key)), known) for key, inner in value.items()}
        if len(made) != len(value):
            raise ValueError(f"{Keys(keys)}: keys that differ in type alone, as 1 and '1' do; JSON's are texts")
        kept = {key: inner for key, inner in made.items() if inner is not _NOTHING}
        return kept or _NOTHING
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and value:
        items = [_inner(inner, Keys((*keys, i)), known) for i, inner in enumerate(value)]
        if all(item is _NOTHING for item in items):
            return _NOTHING
        return [None if item is _NOTHING else item for item in items]
    return word(value, keys)


_NOTHING = object()


def json_of(state: Mapping[Any, Any], given: Mapping[str, Any] | None, known: TensorMappings | None = None) -> str:
    """The checkpoint's JSON: what the caller gives, and what of the state is no tensor under "state".

    Args:
        known: of earlier calls for the same state.

    Raises:
        TypeError: an object that JSON has no word for; it names the key.
        ValueError: the caller's JSON has the key "state"; two keys are one as texts.
    """
    members = dict(given or {})
    known = TensorMappings() if known is None else known
    known.begin()
    objects = _inner(state, Keys(), known) if state else _NOTHING
    if objects is not _NOTHING:
        if OBJECTS in members:
            raise ValueError(f'json has the key "{OBJECTS}", which is that of what is no tensor in the state')
        members[OBJECTS] = objects
    return json.dumps(members, allow_nan=False)


def _has_tensors(value: Any) -> bool:
    return any(True for _ in _under("", ".", (), value))


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
    elif not _has_tensors(value):
        put(stored)
    elif isinstance(value, tuple) and isinstance(stored, list) and len(stored) == len(value):
        items = list(value)
        for i, inner in enumerate(stored):
            _fill(value[i], inner, _setter(items, i))
        put(value._make(items) if hasattr(value, "_make") else tuple(items))


def _setter(container: Any, key: Any) -> Callable[[Any], None]:
    def put(value: Any) -> None:
        container[key] = value
    return put


def _is_of_tensors(value: Any) -> bool:
    """Whether the JSON has nothing of it."""
    if is_tensor(value):
        return True
    if isinstance(value, Mapping):
        return bool(value) and all(map(_is_of_tensors, value.values()))
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and bool(value) and all(
        map(_is_of_tensors, value))


def refuse_lacking(state: Mapping[Any, Any], members: Mapping[str, Any]) -> None:
    """Before a strict load. What is in a part that is there may be lacking: new versions of libraries add to theirs.

    Raises:
        Error: a member of the state is or has no tensor, and is not in the checkpoint, which has other such things.
    """
    stored = members.get(OBJECTS)
    for key, value in state.items():
        if isinstance(value, Mapping) and not value:
            continue  # it names nothing
        if isinstance(stored, Mapping) and str(key) not in stored and not _is_of_tensors(value):
            raise Error(f"{Keys((key,))} is not in the checkpoint's JSON; leave it out, or load with strict=False",
                        status=Status.NOT_FOUND)


def fill_objects(state: Mapping[Any, Any], members: Mapping[str, Any]) -> None:
    """After a load: what is no tensor in the state becomes what the checkpoint's JSON has of it."""
    stored = members.get(OBJECTS)
    if stored is not None and isinstance(state, MutableMapping):
        _fill(state, stored, lambda value: None)
