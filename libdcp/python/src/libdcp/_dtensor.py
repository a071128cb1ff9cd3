"""Determines which part of a DTensor this rank holds, whatever its mesh and placements.

The mesh dimensions are applied in order. A mesh dimension that shards a dimension of the tensor cuts the rank's indices
of that dimension into chunks, one per rank of the mesh dimension, by torch.chunk's rule, and leaves one chunk to the
rank. `_StridedShard` (tensor parallelism applied before FSDP) first makes ``split_factor`` chunks, and takes a chunk of
each of these: then a rank has several runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

MOST_LAYOUTS = 65536
Box = tuple[tuple[int, int, int], ...]
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


def _runs(shape: tuple[int, ...], placements: tuple[Any, ...], mesh: Any, name: object) -> list[list[Run]] | None:
    """For each dimension of the tensor, the indices that this rank has, in the order of its local tensor; None if this
    rank is not in the mesh."""
    coordinate = mesh.get_coordinate()
    runs: list[list[Run]] = [[(0, length)] if length else [] for length in shape]
    for mesh_dim, placement in enumerate(placements):
        if placement.is_partial():
            raise TypeError(f"{name}: placement {placement} is a partial sum; redistribute it first")
        if placement.is_replicate() or coordinate is None:
            continue
        dim = placement.dim % len(shape)
        split = getattr(placement, "split_factor", 1)
        found = [run for k in range(split)
                 for run in _chunk(_chunk(runs[dim], split, k), mesh.size(mesh_dim), coordinate[mesh_dim])]
        runs[dim] = _joined(found)
    return None if coordinate is None else runs


class _Layout(NamedTuple):
    """What this rank holds of a DTensor."""

    held: tuple[int, ...] | None  # the local tensor's shape; None: it holds nothing, whatever that tensor contains
    starts: tuple[Box, ...]  # per box and dimension: start in the local tensor, start in the whole, length


def _layout_of(shape: tuple[int, ...], runs: list[list[Run]] | None) -> _Layout:
    if runs is None or not all(runs):
        return _Layout(None, ())
    places = []
    for of_dim in runs:
        at, found = 0, []
        for begin, end in of_dim:
            found.append((at, begin, end - begin))
            at += end - begin
        places.append(found)
    return _Layout(tuple(sum(length for _, _, length in of_dim) for of_dim in places), tuple(product(*places)))


_layouts: dict[tuple[Any, ...], tuple[Any, _Layout]] = {}  # by shape, placements and mesh; the mesh is kept alive


def _layout(tensor: Any, whole: tuple[int, ...], name: object) -> _Layout:
    """Cached, since models have thousands of tensors with few layouts."""
    mesh, placements = tensor.device_mesh, tensor.placements
    key = whole, placements, id(mesh)
    found = _layouts.get(key)
    if found is None:
        if len(_layouts) >= MOST_LAYOUTS:
            _layouts.clear()
        found = _layouts[key] = mesh, _layout_of(whole, _runs(whole, placements, mesh, name))
    return found[1]


def parts(tensor: Any, name: object) -> Iterator[tuple[Any, tuple[int, ...], tuple[int, ...]]]:
    """The boxes of a DTensor that this rank holds: (local part, whole shape, start); an empty one if it holds none,
    as on ranks outside the mesh."""
    whole = tuple(tensor.shape)
    local = tensor.to_local()
    held, boxes = _layout(tensor, whole, name)
    if held is None:
        yield local.new_empty((0,) * len(whole)) if whole else local.flatten()[:0], whole, (0,) * len(whole)
        return
    if held != tuple(local.shape):
        raise TypeError(f"{name}: its local tensor has shape {tuple(local.shape)}, but by {tensor.placements} on a mesh "
                        f"of {tuple(tensor.device_mesh.shape)} this rank holds {held}")
    for box in boxes:
        part = local
        if len(boxes) > 1:
            for dim, (at, _, length) in enumerate(box):
                part = part.narrow(dim, at, length)
        yield part, whole, tuple([begin for _, begin, _ in box])
