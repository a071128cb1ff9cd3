"""Checkpoints of Megatron-Core 0.16 and later, with the sharded part in a step of libdcp::

    import libdcp.megatron
    dist_checkpointing.save(sharded_state_dict, folder, sharded_strategy=libdcp.megatron.SaveStrategy())
    state = dist_checkpointing.load(sharded_state_dict, folder)

The folder gets ``libdcp/step-00000100/state.h5``, where the number is the last one in the folder's name, such as
iter_0000100, or 0 if the name has none. This file has a tensor ``/model/<key>`` for each key of a ShardedTensor, and,
in "objects", the contents of the ShardedObjects' main replicas. None of this is pickled; common.pt, with what is not
sharded, is written and read by Megatron itself, as always. A load finds the strategy by the folder's metadata.json, if
this module is imported; it works on any number of ranks, and with any tensor and pipeline parallelism for which
Megatron gives the same keys.

Needs megatron-core; ``import libdcp`` does not.
"""

from __future__ import annotations

import importlib
import os
import re
from typing import TYPE_CHECKING, Any

from . import _arrays, _options, store
from ._arrays import Pieces, Shard
from ._options import SaveKeywords
from ._read import read
from .checkpoint import Checkpoint, Entry
from .errors import Error, Status
from .store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10

torch: Any = importlib.import_module("torch")
_base: Any = importlib.import_module("megatron.core.dist_checkpointing.strategies.base")
_mapping: Any = importlib.import_module("megatron.core.dist_checkpointing.mapping")
_dicts: Any = importlib.import_module("megatron.core.dist_checkpointing.dict_utils")

BACKEND, VERSION = "libdcp", 1  # the first is also the name of the folder with the step
TENSORS, OBJECTS = "model", "objects"  # sections of a step


def _place(folder: Any) -> tuple[str, int]:
    """The directory of the step, and its number."""
    text = os.path.normpath(os.fspath(folder))
    found = re.search(r"(\d{1,18})\D*$", os.path.basename(text))
    return os.path.join(text, BACKEND), int(found[1]) if found else 0


def _pieces(tensor: Any, stored: tuple[int, ...] | None = None) -> list[Any]:
    """A ShardedTensor's part of the whole tensor.

    Args:
        stored: the shape in the checkpoint, which may differ if ``allow_shape_mismatch`` is set: then the part that
            both shapes have in common is loaded.
    """
    data = tensor.data.detach()[(None,) * tensor.prepend_axis_num]
    start, shape = tuple(tensor.global_offset), tuple(tensor.global_shape)
    if stored is not None and tensor.allow_shape_mismatch:
        shape = stored
        for dim, (first, length) in enumerate(zip(start, stored)):
            data = data.narrow(dim, 0, max(0, min(data.shape[dim], length - first)))
        if 0 in data.shape:
            return []
    return list(_arrays.pieces(Shard(data, shape, start), tensor.key))


def _make_memory(tensor: Any) -> None:
    """Gives a ShardedTensor memory to load into, if it has none. What the checkpoint may lack becomes zeros, as with
    Megatron's own strategies."""
    if not tensor.allow_shape_mismatch:
        tensor.init_data("cpu")
    elif tensor.data is None:
        tensor.init_data("cpu", torch.zeros)
    else:
        tensor.data.detach().zero_()


def _sharded(state: Any) -> list[Any]:
    return list(_dicts.nested_values(state))


class SaveStrategy(_base.SaveShardedStrategy):  # type: ignore[misc]
    """The ``sharded_strategy`` of ``dist_checkpointing.save``. Collective over the default process group.

    Args:
        options: options for the save; see :func:`libdcp.save`.

    Raises:
        libdcp.Error: the same on all ranks.
        TypeError: a ShardedObject whose contents a checkpoint cannot represent; the message names its key.
    """

    def __init__(self, **options: Unpack[SaveKeywords]) -> None:
        super().__init__(BACKEND, VERSION)
        _options.save_options(_options.Failures(), options)  # rejects invalid options now
        self._options = options

    @property
    def can_handle_sharded_objects(self) -> bool:
        return True

    def save(self, sharded_state_dict: Any, checkpoint_dir: Any) -> None:
        """Saves what this rank has as the main replica."""
        tensors: dict[str, list[Any]] = {}
        objects: dict[str, Any] = {}
        for one in _sharded(sharded_state_dict):
            if not _mapping.is_main_replica(one.replica_id):
                continue
            if isinstance(one, _mapping.ShardedObject):
                objects[one.unique_key] = one.data
            else:
                tensors.setdefault(one.key, []).extend(_pieces(one))
        state = {TENSORS: {key: Pieces(tuple(pieces)) for key, pieces in tensors.items()}, OBJECTS: objects}
        directory, step = _place(checkpoint_dir)
        with Store(directory, replace=True) as steps:
            steps.save(step, state, **self._options)


class LoadStrategy(_base.LoadShardedStrategy):  # type: ignore[misc]
    """The ``sharded_strategy`` of ``dist_checkpointing.load``, which finds it even if it is not passed. Collective
    over the default process group.

    Raises:
        libdcp.Error: the same on all ranks: the step lacks a key, or is damaged.
    """

    @property
    def can_handle_sharded_objects(self) -> bool:
        return True

    def check_backend_compatibility(self, loaded_backend: str) -> None:
        if loaded_backend != BACKEND:
            raise _mapping.CheckpointingException(f"a checkpoint of {loaded_backend}, not of {BACKEND}")

    def check_version_compatibility(self, loaded_version: int) -> None:
        if loaded_version > VERSION:
            raise _mapping.CheckpointingException(f"version {loaded_version} of {BACKEND}'s part; known is {VERSION}")

    def load(self, sharded_state_dict: Any, checkpoint_dir: Any) -> Any:
        """Fills the tensors, and returns the state dict with tensors and objects in place of the sharded ones."""
        path = store.step_path(*_place(checkpoint_dir))
        entries, objects = _contents(path)
        tensors: dict[str, list[Any]] = {}
        for one in _sharded(sharded_state_dict):
            if isinstance(one, _mapping.ShardedTensor):
                _make_memory(one)
                entry = entries.get(one.key)
                tensors.setdefault(one.key, []).extend(_pieces(one, None if entry is None else entry.shape))
        store.load(path, {TENSORS: {key: Pieces(tuple(pieces)) for key, pieces in tensors.items() if pieces}},
                   only=[f"/{TENSORS}/*"])

        def loaded(one: Any) -> Any:
            if isinstance(one, _mapping.ShardedTensor):
                return one.data
            if one.unique_key not in objects:
                raise Error(f"{path}: has no object {one.unique_key}", path=path, status=Status.NOT_FOUND)
            return objects[one.unique_key]

        return _dicts.dict_list_map_outplace(loaded, sharded_state_dict)

    def load_tensors_metadata(self, checkpoint_dir: Any) -> dict[str, Any]:
        """For each key, a ShardedTensor without data."""
        entries, _ = _contents(store.step_path(*_place(checkpoint_dir)))
        return {key: _mapping.ShardedTensor.from_rank_offsets(key, torch.empty(
            entry.shape, dtype=_arrays.torch_dtype(_arrays.dtype_number(entry.dtype)), device="meta")).without_data()
            for key, entry in entries.items()}

    def load_sharded_metadata(self, checkpoint_dir: Any) -> dict[str, Any]:
        """What :meth:`load_tensors_metadata` returns, and for each object a ShardedObject without data."""
        _, objects = _contents(store.step_path(*_place(checkpoint_dir)))
        return {**{key: _mapping.ShardedObject.empty_from_unique_key(key) for key in objects},
                **self.load_tensors_metadata(checkpoint_dir)}


def _contents(path: str) -> tuple[dict[str, Entry], dict[str, Any]]:
    """A step's tensors by key, and its objects by unique key."""
    prefix = f"/{TENSORS}/"
    with Checkpoint(path) as checkpoint:
        entries = {name.removeprefix(prefix): entry for name, entry in checkpoint.entries.items()
                   if name.startswith(prefix)}
        words = checkpoint.stored.words
        has_objects = bool(words and words.get(OBJECTS)) or any(
            name.startswith(f"/{OBJECTS}/") for name in checkpoint.entries)
    return entries, read(path, only=[f"/{OBJECTS}/*"])[OBJECTS] if has_objects else {}


_base.register_default_strategy(_base.StrategyAction.SAVE_SHARDED, BACKEND, VERSION, SaveStrategy())
_base.register_default_strategy(_base.StrategyAction.LOAD_SHARDED, BACKEND, VERSION, LoadStrategy())
