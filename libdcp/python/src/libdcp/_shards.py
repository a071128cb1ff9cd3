"""torch tensors that say themselves which shards of a whole tensor they hold.

FSDP1 has ShardedTensors in its sharded state dicts. torch's planners of checkpoints know two further ways: a
CheckpointableTensor has the shards' places as members, and others, such as LocalShardsWrapper within a DTensor, have
methods that torch's planners ask.
"""

from __future__ import annotations

import importlib
from typing import Any

Sizes = tuple[int, ...]
Parts = list[tuple[Any, Sizes]]  # a shard, and where it begins in the whole tensor


def has_own(tensor: Any) -> bool:
    """Whether a tensor has the methods that torch's planners ask."""
    return hasattr(tensor, "__get_tensor_shard__")


def of(tensor: Any, name: object) -> tuple[Sizes, Parts] | None:
    """The shape of the whole tensor, and those shards of it that this rank has; None: it is no such tensor."""
    if hasattr(tensor, "local_shards") and hasattr(tensor, "metadata"):
        return tuple(tensor.metadata().size), [(s.tensor, tuple(s.metadata.shard_offsets)) for s in tensor.local_shards()]
    if hasattr(tensor, "global_offsets"):
        return tuple(tensor.global_shape), _checkpointable(tensor)
    if has_own(tensor.to_local() if hasattr(tensor, "placements") else tensor):
        return tuple(tensor.size()), _by_methods(tensor, name)
    return None


def _checkpointable(tensor: Any) -> Parts:
    found = []
    for start, at, count in zip(tensor.global_offsets, tensor.local_offsets, tensor.local_sizes):
        local = tensor
        for dim, (first, length) in enumerate(zip(at, count)):
            local = local.narrow(dim, first, length)
        found.append((local, tuple(start)))
    return found


def _by_methods(tensor: Any, name: object) -> Parts:
    """MetadataIndex is how torch's planners name a shard."""
    index: Any = importlib.import_module("torch.distributed.checkpoint.metadata").MetadataIndex
    return [(tensor.__get_tensor_shard__(index(str(name), chunk.offsets, i)), tuple(chunk.offsets))
            for i, chunk in enumerate(tensor.__create_chunk_list__()) if 0 not in chunk.sizes]
