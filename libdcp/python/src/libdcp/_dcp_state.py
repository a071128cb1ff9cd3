"""What a planner of torch.distributed.checkpoint saves, as a nested state."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint.planner import SavePlan, WriteItem, WriteItemType

from . import _arrays
from ._arrays import Piece, Pieces, Shard
from ._dcp_nested import Key, arrays_in, name_of, nested
from ._dcp_planner import saves_by_default
from ._words import Keys

Tensors = dict[str, list[Piece]]  # by path


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or isinstance(value, torch.Tensor)


def of_plan(plan: SavePlan, planner: Any) -> tuple[dict[Any, Any], dict[str, str]]:
    """What this rank saves, and "numpy" or "torch" for each array that is, or is inside, an object, by name.

    Args:
        plan: the final one, which is used unless the planner behaves like torch's default one.
        planner: after its setup.

    Raises:
        TypeError: an object whose contents cannot be determined; the message names the key.
    """
    mappings: Mapping[str, Key] = getattr(planner, "mappings", None) or {}

    def keys_of(fqn: str) -> Keys:
        return Keys(mappings.get(fqn, (fqn,)))
    if saves_by_default(planner):
        leaves: dict[Key, Any] = {keys_of(fqn): value for fqn, value in planner.state_dict.items()}
        objects = {keys: value for keys, value in leaves.items() if not isinstance(value, torch.Tensor)}
    else:
        items = [(keys_of(item.index.fqn), item) for item in plan.items]
        objects = {keys: _object(item, planner, keys) for keys, item in items if item.type == WriteItemType.BYTE_IO}
        with torch.no_grad():
            leaves = {**objects, **_tensors(planner, [row for row in items if row[1].type != WriteItemType.BYTE_IO])}
    inside = {name_of((*keys, *below)): "numpy" if isinstance(array, np.ndarray) else "torch"
              for keys, value in objects.items() for below, array in arrays_in(value, _is_array)}
    return nested(leaves), inside


def _tensors(planner: Any, items: list[tuple[Keys, WriteItem]]) -> dict[Key, Any]:
    found: dict[Key, list[Piece]] = {}
    for keys, item in items:
        assert item.tensor_data is not None
        shard = Shard(planner.resolve_data(item), tuple(item.tensor_data.size), tuple(item.tensor_data.chunk.offsets))
        found.setdefault(keys, []).extend(_arrays.pieces(shard, keys))
    return {keys: Pieces(tuple(pieces)) for keys, pieces in found.items()}


def _object(item: WriteItem, planner: Any, keys: Keys) -> Any:
    """An object that the planner has converted to bytes with torch.save, read by torch's restricted reader."""
    value = planner.resolve_data(item)
    if not isinstance(value, io.BytesIO):
        return value
    value.seek(0)
    try:
        return torch.load(value, weights_only=True)
    except Exception as e:
        raise TypeError(f"{keys}: the planner gives bytes that are not those of numbers, texts, lists "
                        "and mappings, and nothing is pickled; save what it consists of") from e


def by_path(tensors: Tensors) -> dict[str, dict[str, Pieces]]:
    """A state that consists of these tensors."""
    state: dict[str, dict[str, Pieces]] = {}
    for path, found in tensors.items():
        section, name = path[1:].split("/", 1)
        state.setdefault(section, {})[name] = Pieces(tuple(found))
    return state
