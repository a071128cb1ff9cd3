"""What a planner of torch.distributed.checkpoint saves: tensors by path, and objects for the checkpoint's JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from . import _arrays, _dcp_bytes, _names
from ._arrays import Piece, Pieces, Shard
from ._dcp_planner import saves_by_default
from ._names import Keys
from ._union import Part, part_of

TORCH = "torch"  # the member of the checkpoint's JSON that has what paths don't tell
Tensors = dict[str, list[Piece]]  # by path


def _path_of(keys: Keys, in_optimizer: bool) -> str:
    """The path in the checkpoint of the tensor that the keys lead to, as libdcp's own."""
    section, rest = str(keys[0]), keys[1:]
    if not rest:
        return f"/model/{section}"
    if in_optimizer and len(rest) == 3 and rest[0] == "state":
        return f"/{section}/{rest[2]}/{rest[1]}"
    return f"/{section}/" + ".".join(map(str, rest))


class Contents:
    """Tensors and objects of this rank, by the keys that lead to them.

    Arrays and tensors within objects, such as numpy's RNG state, are tensors of the checkpoint; ``inside`` says which,
    and what they were.
    """

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._objects: dict[str, Any] = {}  # each with what of it are bytes
        self._bytes: dict[str, str] = {}
        self._inside: dict[str, str] = {}
        self._top: list[str] = []
        self._nested: dict[str, bool] = {}  # keys of what tensors lie deeper in than a section, and if it is a list
        self._keys: dict[str, Keys] = {}  # by path
        self._optimizers: set[str] = set()

    def name_optimizers(self, all_keys: Sequence[Keys]) -> None:
        """Finds the sections that are as get_state_dict gives an optimizer's."""
        second: dict[str, set[str]] = {}
        for keys in all_keys:
            if len(keys) > 1:
                second.setdefault(keys[0], set()).add(str(keys[1]))
        self._optimizers = {section for section, names in second.items() if names == {"state", "param_groups"}}

    def add_tensor(self, keys: Keys, found: list[Piece]) -> None:
        if not found:
            return
        path = _path_of(keys, keys[0] in self._optimizers)
        other = self._keys.setdefault(path, keys)
        if other != keys:
            raise ValueError(f"{other} and {keys} would both be {path} in the "
                             "checkpoint")
        if len(keys) == 1:
            self._top.append(keys[0])
        elif "/" not in path[len(keys[0]) + 2:] and (len(keys) > 2 or isinstance(keys[-1], int)):
            self._nested[_row(keys[:-1])] = isinstance(keys[-1], int)
        self.tensors.setdefault(path, []).extend(found)

    def add_object(self, keys: Keys, value: Any) -> None:
        self._bytes = {}
        plain = self._plain(value, keys)
        if not isinstance(value, np.ndarray):
            self._objects[_row(keys)] = plain, self._bytes

    def _plain(self, value: Any, keys: Keys) -> Any:
        """The value as JSON has it; null for arrays."""
        if isinstance(value, np.ndarray) or type(value) in (torch.Tensor, torch.nn.Parameter):
            self.add_tensor(keys, _arrays.pieces(value, keys))
            self._inside[".".join(map(str, keys))] = "numpy" if isinstance(value, np.ndarray) else "torch"
            return None
        if isinstance(value, (bytes, bytearray, io.BytesIO)):
            self._bytes[".".join(map(str, keys))] = type(value).__name__
            return _dcp_bytes.encoded(value)
        if isinstance(value, Mapping) and all(isinstance(key, (str, int)) for key in value):
            return {str(key): self._plain(inner, Keys((*keys, str(key)))) for key, inner in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._plain(inner, Keys((*keys, i))) for i, inner in enumerate(value)]
        return _names.word(value, keys)

    def parts(self) -> list[Part]:
        """For the other ranks: the tensors, and all else."""
        others = {**{"object " + row: value for row, value in self._objects.items()},
                  **{"inside " + fqn: kind for fqn, kind in self._inside.items()},
                  **{"nested " + row: is_list for row, is_list in self._nested.items()},
                  **{"top " + name: None for name in self._top}}
        return [part_of(described(self.tensors), everywhere=True), part_of(others, everywhere=False)]


def _row(keys: tuple[Any, ...]) -> str:
    """Keys as text; numbers are those of lists."""
    return json.dumps(keys)


def of_plan(plan: SavePlan, planner: Any) -> Contents:
    """What this rank saves.

    Args:
        plan: the final one, which counts unless the planner is as torch's default one.
        planner: that was set up.

    Raises:
        TypeError: an object that JSON has no word for, or a tensor that can't be saved; it names the key.
    """
    with torch.no_grad():  # local tensors of DTensors are had at once then
        return _of_state_dict(planner) if saves_by_default(planner) else _of_items(plan, planner)


def _mappings(planner: Any) -> Mapping[str, tuple[Any, ...]]:
    found: Mapping[str, tuple[Any, ...]] = getattr(planner, "mappings", None) or {}
    return found


def _of_state_dict(planner: Any) -> Contents:
    made, mappings = Contents(), _mappings(planner)
    all_keys = [Keys(mappings.get(fqn, (fqn,))) for fqn in planner.state_dict]
    made.name_optimizers(all_keys)
    for keys, (fqn, value) in zip(all_keys, planner.state_dict.items()):
        if isinstance(value, torch.Tensor):
            made.add_tensor(keys, _arrays.pieces(value, keys))
        else:
            made.add_object(keys, value)
    return made


def _of_items(plan: SavePlan, planner: Any) -> Contents:
    made, mappings = Contents(), _mappings(planner)
    all_keys = [Keys(mappings.get(item.index.fqn, (item.index.fqn,))) for item in plan.items]
    made.name_optimizers(all_keys)
    for keys, item in zip(all_keys, plan.items):
        if item.type == WriteItemType.BYTE_IO:
            made.add_object(keys, _object(item, planner, keys))
        else:
            made.add_tensor(keys, _arrays.pieces(_shard(item, planner), keys))
    return made


def _shard(item: WriteItem, planner: Any) -> Shard:
    assert item.tensor_data is not None
    return Shard(planner.resolve_data(item), tuple(item.tensor_data.size), tuple(item.tensor_data.chunk.offsets))


def _object(item: WriteItem, planner: Any, keys: Keys) -> Any:
    """What the planner has made bytes of by torch.save; these are looked at by torch's restricted reader."""
    value = planner.resolve_data(item)
    if not isinstance(value, io.BytesIO):
        return value
    value.seek(0)
    try:
        return torch.load(value, weights_only=True)
    except Exception as e:
        raise TypeError(f"{keys}: the planner gives bytes that are not those of numbers, texts, lists "
                        "and mappings, and nothing is pickled; save what it consists of") from e


def described(tensors: Tensors) -> dict[str, str]:
    return {path: _arrays.described(found[0]) for path, found in tensors.items()}


def whole(tensors: Tensors, union: Mapping[str, str]) -> dict[str, dict[str, Pieces]]:
    """The state for the library: this rank's boxes, and the names of those tensors that only other ranks hold."""
    state: dict[str, dict[str, Pieces]] = {}
    for path, text in union.items():
        found = tensors.get(path) or [_arrays.described_piece(text)]
        section, name = path[1:].split("/", 1)
        state.setdefault(section, {})[name] = Pieces(tuple(found))
    return state


def members(others: Mapping[str, Any], tensors: Mapping[str, str]) -> dict[str, Any]:
    """Of the checkpoint's JSON: the objects, nested as they were, and what torch needs to give the state dict back."""
    kinds: dict[str, dict[str, Any]] = {"object": {}, "inside": {}, "nested": {}, "top": {}}
    for row, value in others.items():
        kind, _, key = row.partition(" ")
        kinds[kind][key] = value
    made: dict[str, Any] = {}
    if kinds["object"]:
        made[_names.OBJECTS] = _nested({row: plain for row, (plain, _) in kinds["object"].items()})
    torch_members: dict[str, Any] = {}
    if kinds["top"]:
        all_are = len(kinds["top"]) == sum(path.startswith("/model/") for path in tensors)
        torch_members["top"] = "*" if all_are else sorted(kinds["top"])
    for hint, is_list in (("nested", False), ("lists", True)):
        found = sorted(row for row, value in kinds["nested"].items() if value is is_list)
        if found:
            torch_members[hint] = [json.loads(row) for row in found]
    if kinds["inside"]:
        torch_members["inside"] = kinds["inside"]
    in_base64 = {name: kind for _, found in kinds["object"].values() for name, kind in found.items()}
    if in_base64:
        torch_members["bytes"] = in_base64
    if torch_members:
        made[TORCH] = torch_members
    return made


def _nested(objects: dict[str, Any]) -> Any:
    root: dict[str, Any] = {}
    for row, value in objects.items():
        keys = json.loads(row)
        inner: Any = root
        for key, following in zip(keys, keys[1:]):
            inner = _entered(inner, key, [] if isinstance(following, int) else {})
            if not isinstance(inner, list if isinstance(following, int) else dict):
                raise ValueError(f"{Keys(keys)}: what is around it is no mapping on another rank")
        _put(inner, keys[-1], value)
    return root


def _entered(container: Any, key: Any, new: Any) -> Any:
    if isinstance(container, dict):
        return container.setdefault(key, new)
    if len(container) <= key or container[key] is None:
        _put(container, key, new)
    return container[key]


def _put(container: Any, key: Any, value: Any) -> None:
    if isinstance(container, list):
        container.extend([None] * (key + 1 - len(container)))
    container[key] = value

