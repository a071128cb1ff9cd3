"""torch tensors that know which shards of a whole tensor they hold.

FSDP1 has ShardedTensors in its sharded state dicts. torch's planners of checkpoints support two other kinds: a
CheckpointableTensor has the shards' places as members, and other types, such as LocalShardsWrapper inside a DTensor,
have methods that torch's planners call.
"""

from __future__ import annotations

import importlib
from typing import Any

Sizes = tuple[int, ...]
Parts = list[tuple[Any, Sizes]]  # a shard, and where it begins in the whole tensor


def has_own(tensor: Any) -> bool:
    """Returns true if a tensor has the methods that torch's planners call."""
    return hasattr(tensor, "__get_tensor_shard__")


def of(tensor: Any, name: object) -> tuple[Sizes, Parts] | None:
    """The shape of the whole tensor, and the shards of it that this rank holds; None if it is another kind of
    tensor."""
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
    """torch's planners identify a shard by a MetadataIndex."""
    index: Any = importlib.import_module("torch.distributed.checkpoint.metadata").MetadataIndex
    return [(tensor.__get_tensor_shard__(index(str(name), chunk.offsets, i)), tuple(chunk.offsets))
            for i, chunk in enumerate(tensor.__create_chunk_list__()) if 0 not in chunk.sizes]
