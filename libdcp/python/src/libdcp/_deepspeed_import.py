"""Reads DeepSpeed's checkpoints for conversion to a step: each rank's ZeRO files, and Universal Checkpoint folders.

With ZeRO, each rank has a part of flat arrays, in which the parameters follow one another. The rank's files name the
parameters and their shapes, so each parameter is put together from the parts of all ranks. Parts of tensor, pipeline
and expert parallelism are refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import _paths
from ._arrays import n_bytes
from ._dcp_archive import ORDERED_DICT, Files
from ._pickles import Call
from ._source_state import of_array, source_in
from ._sources import Box, Source
from ._torch_values import Skip, Values
from .errors import Error, Status

_OPTIMIZER = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_COUNTS = ("global_steps", "global_samples", "skipped_steps")
_UNIVERSAL = "zero"
_MASTER = "fp32"


class _Part(NamedTuple):
    """Elements of a flat array in a file."""

    source: Source
    start: int
    n: int


def _refused(folder: str, what: str, status: Status = Status.UNSUPPORTED) -> Error:
    return Error(f"{folder}: {what}", status=status, path=folder)


def folder_of(source: str) -> str | None:
    """The folder of the newest checkpoint, if DeepSpeed has written the folder ``source``; None: it has not."""
    for name in ("latest", "latest_universal"):
        path = os.path.join(source, name)
        if os.path.isfile(path):
            with open(_paths.open_regular(path), encoding="utf-8", errors="replace") as file:
                tag = file.read(256).strip()
            inner = os.path.join(source, tag)
            is_name = tag not in ("", ".", "..") and os.path.basename(tag) == tag
            if is_name and os.path.isdir(inner) and folder_of(inner):
                return inner
    names = os.listdir(source)
    is_own = any(map(_MODEL.fullmatch, names)) or any(map(_OPTIMIZER.fullmatch, names))
    return source if is_own or os.path.isdir(os.path.join(source, _UNIVERSAL)) and _universal(source) else None


def _universal(folder: str) -> list[str]:
    """The parameters of a Universal Checkpoint."""
    zero = os.path.join(folder, _UNIVERSAL)
    return [name for name in sorted(os.listdir(zero)) if os.path.isfile(os.path.join(zero, name, f"{_MASTER}.pt"))]


def _ranks(folder: str, form: re.Pattern[str]) -> list[str]:
    """The names of all ranks' files, by rank."""
    found = {(int(match[1] or 0), int(match[2])): match[0] for match in map(form.fullmatch, os.listdir(folder)) if match}
    if any(mp for _, mp in found) or any(name.startswith("layer_") for name in os.listdir(folder)):
        raise _refused(folder, "it has parts of tensor, pipeline or expert parallelism, which are not converted; DeepSpeed's "
                       "ds_to_universal.py makes a Universal Checkpoint of it")
    if sorted(rank for rank, _ in found) != list(range(len(found))):
        raise _refused(folder, f"a rank's file is missing: there are those of ranks {sorted(r for r, _ in found)}",
                       Status.CORRUPT)
    return [name for _, name in sorted(found.items())]


def _joined(folder: str, name: str, shape: tuple[int, ...], parts: list[_Part]) -> Source:
    """A tensor that consists of the parts, one after another."""
    dtypes = {part.source.dtype for part in parts}
    if sum(part.n for part in parts) != prod(shape) or len(dtypes) > 1 or any(
            part.start + part.n > prod(part.source.shape) for part in parts):
        raise _refused(folder, f"{name}: the ranks' parts are not those of a tensor of shape {shape}", Status.CORRUPT)
    if not prod(shape):
        return Source("F32", shape, [])
    dtype = dtypes.pop()
    item = n_bytes(dtype, (1,))

    def read(offset: int, into: memoryview) -> None:
        at = 0
        for part in parts:
            n = part.n * item
            first, end = max(offset, at), min(offset + len(into), at + n)
            if first < end:
                part.source.boxes[0].read(part.start * item + first - at, into[first - offset:end - offset])
            at += n
    return Source(dtype, shape, [Box((0,) * len(shape), shape, read)])


class _File:
    """What a rank has saved."""

    def __init__(self, files: Files, name: str, skip: Skip | None = None) -> None:
        self.values = Values(files, name, skip)
        self.name = name
        self.root = self.values.root()

    def get(self, *keys: str | int) -> Any:
        """The record to which keys lead; None: there is none."""
        found = self.root
        for key in keys:
            found = found.items if isinstance(found, Call) else found
            is_there = isinstance(found, dict) and key in found or isinstance(found, list) and type(key) is int and (
                key < len(found))
            found = found[key] if is_there else None
        is_mapping = isinstance(found, Call) and (found.items or (found.of.module, found.of.name) == ORDERED_DICT)
        return found.items if is_mapping else found

    def value(self, *keys: str | int) -> Any:
        found = self.get(*keys)
        return None if found is None else self.values.value(found, keys)

    def flat(self, made: Any) -> Source | None:
        return self.values.tensor(made)


def _shapes(model: _File) -> list[dict[str, tuple[int, ...]]]:
    """For each group of the optimizer, the shapes of the parameters by name, in the flat array's order."""
    groups = model.get("param_shapes")
    found = []
    for group in groups if isinstance(groups, list) else [groups]:
        mapping = group.items if isinstance(group, Call) else group
        shapes = {name: size.arguments[0] for name, size in mapping.items() if isinstance(size, Call) and size.arguments}
        if any(not isinstance(shape, tuple) or any(type(n) is not int or n < 0 for n in shape) for shape in shapes.values()):
            raise ValueError(f"{model.name}: param_shapes has something that is no shape")
        found.append(shapes)
    return found


def _with_names(groups: Any, named: list[dict[str, tuple[int, ...]]]) -> list[dict[str, Any]]:
    """The optimizer's groups with the names of their parameters. Their "params" are the numbers of flat arrays, of which
    ZeRO 3 has several for a large group."""
    if not isinstance(groups, list) or [i for group in groups for i in group["params"]] != list(range(len(named))):
        raise ValueError(f"param_groups are not those of the {len(named)} groups of parameters")
    return [{**group, "params": [name for i in group["params"] for name in named[i]]} for group in groups]


_Parts = dict[str, list[_Part]]  # by parameter


def _by_slices(files: list[_File], group: int, arrays: list[Source]) -> _Parts:
    """ZeRO 1 and 2: each rank's file says where its parts of parameters are."""
    found: _Parts = {}
    for file, array in zip(files, arrays):
        for name, address in (file.get("optimizer_state_dict", "param_slice_mappings", group) or {}).items():
            place = address.members() if isinstance(address, Call) else {}
            start, count = place.get("start"), place.get("numel")
            if type(start) is not int or type(count) is not int or min(start, count) < 0:
                raise ValueError(f"{file.name}: {name}: its place makes no sense")
            found.setdefault(name, []).append(_Part(array, start, count))
    return found


def _by_shares(shapes: dict[str, tuple[int, ...]], arrays: list[list[Source]]) -> _Parts:
    """ZeRO 3: each rank has an equal share of each parameter; the last share is padded.

    Args:
        arrays: for each rank, its arrays, each of which continues the previous one.
    """
    found: _Parts = {}
    at = 0
    for name, shape in shapes.items():
        share = -(-prod(shape) // len(arrays))
        for rank, own in enumerate(arrays):
            count = max(0, min(share, prod(shape) - rank * share))
            found.setdefault(name, []).extend(_slice(own, at, count))
        at += share
    return found


def _slice(arrays: list[Source], start: int, count: int) -> Iterator[_Part]:
    """The ``count`` elements from ``start`` on, in one part per array; each array continues the previous one."""
    at = 0
    for array in arrays:
        n = prod(array.shape)
        first, end = max(start, at), min(start + count, at + n)
        if first < end:
            yield _Part(array, first - at, end - first)
        at += n


def _as_tensor(value: Any) -> Any:
    """A count of steps as a tensor, as torch's optimizers have it; DeepSpeed's own ones have an integer instead."""
    return source_in(of_array(np.array(value, np.float32))) if type(value) is int else value


class _Zero:
    """The state in ZeRO's files."""

    def __init__(self, files: Files, models: list[_File], optimizers: list[_File]) -> None:
        self._folder = files.folder
        self._models = models
        self._optimizers = optimizers
        self._shapes = _shapes(models[0])
        self.is_3 = optimizers[0].get("optimizer_state_dict", "fp32_flat_groups") is not None
        self._base = ("optimizer_state_dict", "optimizer_state_dict" if self.is_3 else "base_optimizer_state")

    def masters(self) -> dict[str, Source]:
        key = "fp32_flat_groups" if self.is_3 else "single_partition_of_fp32_groups"
        return self._named(lambda file, group: file.get("optimizer_state_dict", key, group))

    def moments(self) -> dict[str, dict[str, Any]]:
        """The moments of each parameter, by its name."""
        state = self._optimizers[0].get(*self._base, "state", 0)
        if not isinstance(state, dict):
            raise _refused(self._folder, "its optimizer's state is not of the form {moment: array}")
        found: dict[str, dict[str, Any]] = {name: {} for shapes in self._shapes for name in shapes}
        for moment in state:
            first = self._optimizers[0].flat(state[moment])
            if first is not None and first.shape:
                for name, source in self._named(lambda file, group: file.get(*self._base, "state", group, moment)).items():
                    found[name][moment] = source_in(source)
                continue
            for group, shapes in enumerate(self._shapes):  # a count of steps: a scalar, or a number
                value = _as_tensor(self._optimizers[0].value(*self._base, "state", group, moment))
                for name in shapes if value is not None else ():
                    found[name][moment] = value
        return found

    def groups(self) -> list[dict[str, Any]]:
        """The optimizer's groups with the names of their parameters."""
        return _with_names(self._optimizers[0].value(*self._base, "param_groups"), self._shapes)

    def _named(self, array_of: Any) -> dict[str, Source]:
        shapes = {name: shape for group in self._shapes for name, shape in group.items()}
        parts: _Parts = {}
        if self.is_3:
            arrays = [list(self._all(file, array_of)) for file in self._optimizers]
            parts = _by_shares(shapes, arrays)
        else:
            for group in range(len(self._shapes)):
                flat = [next(self._all(file, lambda f, _: array_of(f, group)), None) for file in self._optimizers]
                parts.update(_by_slices(self._optimizers, group, [array or Source("F32", (0,), []) for array in flat]))
        return {name: _joined(self._folder, name, shape, parts.get(name, [])) for name, shape in shapes.items()}

    def _all(self, file: _File, array_of: Any) -> Iterator[Source]:
        group = 0
        while (made := array_of(file, group)) is not None:
            source = file.flat(made)
            if source is None:
                raise _refused(self._folder, f"{file.name}: group {group} of the optimizer has no array")
            yield source
            group += 1
            if not self.is_3:
                return

    def weights(self) -> dict[str, Any]:
        """The model's weights. With ZeRO 3, these are the optimizer's, since the files have no others."""
        model = self._models[0]
        weights: dict[str, Any] = model.value("module")
        if not self.is_3:
            return weights
        masters = self.masters()
        shared = model.value("shared_params") or {}
        frozen = _frozen(self._folder, self._models)
        for name in weights:
            found = masters.get(shared.get(name, name)) or frozen.get(name)
            if found is not None:
                weights[name] = source_in(found)
        return weights


def _frozen(folder: str, models: list[_File]) -> dict[str, Source]:
    found = {}
    sizes = models[0].get("frozen_param_shapes") or {}
    for name, size in sizes.items():
        shape = size.arguments[0]
        fragments = [model.flat(model.get("frozen_param_fragments", name)) for model in models]
        parts = _by_shares({name: shape}, [[fragment] for fragment in fragments if fragment is not None])
        found[name] = _joined(folder, name, shape, parts[name])
    return found


def _of_ranks(files: Files, skip: Skip | None) -> dict[str, Any]:
    models = [_File(files, name, skip) for name in _ranks(files.folder, _MODEL)]
    if not models or not isinstance(models[0].root, dict):
        raise _refused(files.folder, "mp_rank_00_model_states.pt is missing, or is not DeepSpeed's", Status.CORRUPT)
    model = models[0]
    state = _rest(model)
    names = _ranks(files.folder, _OPTIMIZER)
    if not names:
        own = model.value("optimizer")
        own = own if isinstance(own, dict) else {}
        masters = {name: value for name, value in own.items() if name.startswith("fp32_groups")}  # of FP16_Optimizer
        own = own.get("optimizer_state_dict", own)
        return {"model": model.value("module"), **({"optimizer": own} if own else {}),
                **({"master": masters} if masters else {}), **state}
    world = model.get("dp_world_size")
    if world != len(names):
        raise _refused(files.folder, f"{world} ranks have saved, and there are files of {len(names)} ranks", Status.CORRUPT)
    zero = _Zero(files, models, [_File(files, name, skip) for name in names])
    masters = {} if zero.is_3 else {"master": {name: source_in(source) for name, source in zero.masters().items()}}
    return {"model": zero.weights(), **masters, "optimizer": {"state": zero.moments(), "param_groups": zero.groups()},
            **state}


def _closing(files: Files, source: Source) -> Source:
    """Closes the file after each read, since each parameter has several files."""
    def read_by(box: Box) -> Box:
        def read(offset: int, into: memoryview) -> None:
            box.read(offset, into)
            files.close()
        return Box(box.start, box.count, read)
    return Source(source.dtype, source.shape, list(map(read_by, source.boxes)))


def _in_shape(source: Source, shape: tuple[int, ...]) -> Source:
    """Gives a parameter its shape: ds_to_universal.py writes flat arrays for ZeRO 3."""
    if prod(shape) != prod(source.shape):
        return source
    boxes = [Box((0,) * len(shape), shape, box.read) for box in source.boxes]
    return Source(source.dtype, shape, boxes)


def _of_universal(folder: str, files: Files, skip: Skip | None) -> dict[str, Any]:
    """The state in a Universal Checkpoint, which has the master weights and the moments of each parameter."""
    models = [_File(files, name, skip) for name in _ranks(folder, _MODEL)]
    named = [group for model in models[:1] for group in _shapes(model)]
    shapes = {name: shape for group in named for name, shape in group.items()}
    weights, moments = {}, {}
    for name in _universal(folder):
        own = Files(os.path.join(folder, _UNIVERSAL, name))
        found: dict[str, Any] = {}
        for file in sorted(os.listdir(own.folder)):
            values = Values(own, file)
            root = values.root()
            made = root.get("param") if isinstance(root, dict) else root
            source = values.tensor(made)
            if source is not None and source.shape:
                source = _in_shape(source, shapes.get(name, source.shape))
            found[file.removesuffix(".pt")] = source_in(_closing(own, source)) if source else _as_tensor(values.value(made))
            own.close()
        weights[name] = found.pop(_MASTER)
        moments.update({name: found} if found else {})
    if models:
        _add_others(weights, folder, models)
    return {"model": weights, "optimizer": {"state": moments, "param_groups": _groups(folder, named, skip)},
            **(_rest(models[0]) if models else {})}


def _add_others(weights: dict[str, Any], folder: str, models: list[_File]) -> None:
    """Adds what has no folder of its own, as is the case after ZeRO 3: frozen parameters, tied ones and buffers."""
    shared = models[0].value("shared_params") or {}
    frozen = _frozen(folder, models)
    for name, value in (models[0].value("module") or {}).items():
        if name not in weights:
            weights[name] = source_in(frozen[name]) if name in frozen else weights.get(shared.get(name, name), value)


def _groups(folder: str, named: list[dict[str, tuple[int, ...]]], skip: Skip | None) -> list[dict[str, Any]]:
    files = Files(os.path.join(folder, _UNIVERSAL))
    try:
        found = _File(files, "optimizer_state.pt", skip).value("param_groups")
    finally:
        files.close()
    return _with_names(found, named)


def _rest(model: _File) -> dict[str, Any]:
    schedule = model.value("lr_scheduler")
    return {"deepspeed": {name: model.value(name) for name in _COUNTS},
            **({"scheduler": schedule} if schedule is not None else {})}


def state_in(folder: str, files: Files, skip: Skip | None = None) -> dict[str, Any]:
    """The state of a checkpoint: the weights as "model", the optimizer's state by parameters' names as "optimizer",
    and the optimizer's weights in float32 as "master". With ZeRO 3 and in Universal Checkpoints, these float32
    weights are the only ones, and become "model".

    Args:
        folder: the result of :func:`folder_of`.
        files: that folder's files, which must stay open until the state is saved.

    Raises:
        libdcp.Error: UNSUPPORTED: parallelism other than ZeRO's; CORRUPT: a rank's file is missing, or damaged.
    """
    is_universal = os.path.isdir(os.path.join(folder, _UNIVERSAL))
    try:
        return _of_universal(folder, files, skip) if is_universal else _of_ranks(files, skip)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as e:  # members of unexpected types
        raise _refused(folder, f"it is damaged, or not of a known version of DeepSpeed: {e}", Status.CORRUPT) from None
