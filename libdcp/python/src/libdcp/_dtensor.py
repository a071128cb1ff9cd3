"""Which part of a DTensor this rank holds, whatever its mesh and placements.

Each mesh dimension, in its order, takes the indices that a rank has of the dimension that it shards, cuts them into as
many chunks as it has ranks, by torch.chunk's rule, and leaves the rank one. `_StridedShard` (tensor parallelism applied
before FSDP) first takes ``split_factor`` chunks of them, and a chunk of each of these: then a rank has several runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

Run = tuple[int, int]  # indices [begin, end) of a dimension


def _chunk(runs: list[Run], n: int, which: int) -> list[Run]:
    """Chunk ``which`` of ``n`` of the indices in ``runs``."""
    total = sum(end - begin for begin, end in runs)
    size = -(-total // n) if total else 0
    first, last = min(which * size, total), min((which + 1) * size, total)
    found, before = [], 0
    for begin, end in runs:
        low, high = max(first - before, 0), min(last - before, end - begin)
        if low < high:
            found.append((begin + low, begin + high))
        before += end - begin
    return found


def _joined(runs: list[Run]) -> list[Run]:
    found: list[Run] = []
    for begin, end in runs:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def _runs(tensor: Any, coordinate: tuple[int, ...], name: str) -> list[list[Run]]:
    """Of each dimension of the tensor, the indices that this rank has, as they lie in its local tensor."""
    runs: list[list[Run]] = [[(0, length)] if length else [] for length in tensor.shape]
    for mesh_dim, placement in enumerate(tensor.placements):
        if placement.is_partial():
            raise TypeError(f"{name}: placement {placement} is a partial sum; redistribute it first")
        if placement.is_replicate():
            continue
        ranks, own = tensor.device_mesh.size(mesh_dim), coordinate[mesh_dim]
        dim = placement.dim % len(tensor.shape)
        split = getattr(placement, "split_factor", 1)
        found = [run for k in range(split) for run in _chunk(_chunk(runs[dim], split, k), ranks, own)]
        runs[dim] = _joined(found)
    return runs


def parts(tensor: Any, name: str) -> Iterator[tuple[Any, tuple[int, ...], tuple[int, ...]]]:
    """The boxes of a DTensor that this rank holds: (local part, whole shape, start); one that is empty where it holds
    none, as ranks outside the mesh do."""
    whole = tuple(tensor.shape)
    local = tensor.to_local()
    coordinate = tensor.device_mesh.get_coordinate()
    runs = None if coordinate is None else _runs(tensor, tuple(coordinate), name)
    if runs is None or any(not r for r in runs):
        yield local.new_empty((0,) * len(whole)) if whole else local.flatten()[:0], whole, (0,) * len(whole)
        return
    held = tuple(sum(end - begin for begin, end in r) for r in runs)
    if held != tuple(local.shape):
        raise TypeError(f"{name}: its local tensor has shape {tuple(local.shape)}, but by {tensor.placements} on a mesh "
                        f"of {tuple(tensor.device_mesh.shape)} this rank holds {held}")
    starts = []
    for r in runs:
        at, places = 0, []
        for begin, end in r:
            places.append((at, begin, end - begin))
            at += end - begin
        starts.append(places)
    for box in product(*starts):
        part = local
        for dim, (at, _, length) in enumerate(box):
            part = part.narrow(dim, at, length)
        yield part, whole, tuple(begin for _, begin, _ in box)
