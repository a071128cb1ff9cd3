"""Reads a folder that accelerate's ``save_state`` wrote, for conversion to a step with the sections of
libdcp.accelerate."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from . import _arrays, _dcp_import, _dcp_metadata, _names, _torch_import
from ._dcp_archive import Files
from ._dcp_rename import Renames
from ._safetensors import Folder, Stored
from ._source_state import of_array, source_in
from ._sources import Box, Source
from ._torch_values import Skip
from .errors import Error

_MODEL = re.compile(r"(?:model(_\d+)?\.safetensors|pytorch_model(?:_fsdp)?(_\d+)?\.bin)")
_OPTIMIZER = re.compile(r"optimizer(_\d+)?\.bin")
_OTHERS = re.compile(r"((?:scheduler|custom_checkpoint)(?:_\d+)?)\.(?:bin|pkl)|(scaler)\.pt")
_RANDOM = re.compile(r"random_states_(\d+)\.pkl")

LeftOut = Callable[[str, str], None]  # arguments: a file's name, and the reason


def is_folder(path: str) -> bool:
    names = os.listdir(path)
    return any(map(_RANDOM.fullmatch, names)) and any(
        _MODEL.fullmatch(name) or _dcp_metadata.ACCELERATE.fullmatch(name) for name in names)


def _of_safetensors(path: str, closing: contextlib.ExitStack) -> dict[str, Any]:
    folder = Folder(path)
    closing.callback(folder.close)
    return {name: source_in(_source(folder, name, stored)) for name, stored in folder.tensors.items()}


def _source(folder: Folder, name: str, stored: Stored) -> Source:
    box = Box((0,) * len(stored.shape), stored.shape, functools.partial(folder.read_into, name))
    return Source(_arrays.DTYPES[stored.dtype - 1], stored.shape, [box] if prod(stored.shape) else [])


def _rng(states: list[dict[str, Any]]) -> dict[str, Any]:
    """The generators in the form of :func:`libdcp.random_state`: a row for each rank."""
    rows: dict[str, list[Any]] = {"python": [], "numpy": [], "torch": []}
    for state in states:
        _, words, gauss = state["random_state"]
        rows["python"].append(np.array([*words, gauss is not None, gauss or 0.0], np.float64))
        _, words, *rest = state["numpy_random_seed"]
        rows["numpy"].append(np.array([*words, *rest], np.float64))
        source = state["torch_manual_seed"].array
        data = bytearray(source.shape[0])
        source.boxes[0].read(0, memoryview(data))
        rows["torch"].append(np.frombuffer(data, np.uint8))
    return {name: source_in(of_array(np.stack(found))) for name, found in rows.items()}


def _add_random(state: dict[str, Any], files: Files, left_out: LeftOut) -> None:
    found = sorted((int(match[1]), match[0]) for match in map(_RANDOM.fullmatch, os.listdir(files.folder)) if match)
    try:
        if [rank for rank, _ in found] != list(range(len(found))):
            raise ValueError(f"a rank's file is missing: there are those of ranks {[rank for rank, _ in found]}")
        states = [_torch_import.state_in(files, name) for _, name in found]
        state["rng"] = _rng(states)
        state["accelerator"]["step"] = states[0].get("step", 0)
    except (Error, KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        left_out("random_states_*.pkl", str(e))


def _named(optimizer: Any) -> Any:
    """An optimizer's state with the parameters' names as keys, if it contains these names; otherwise unchanged."""
    groups = optimizer["param_groups"] if _names.is_optimizer(optimizer) else None
    if not isinstance(groups, list) or not all(isinstance(group, dict) and len(group.get("param_names") or ()) == len(
            group.get("params", ())) for group in groups):
        return optimizer
    names = {i: name for group in groups for i, name in zip(group["params"], group.get("param_names") or ())}
    if len(set(names.values())) != len(names):
        return optimizer
    return {"state": {names.get(i, i): moments for i, moments in optimizer["state"].items()}, "param_groups": [
        {**{key: value for key, value in group.items() if key != "param_names"}, "params": [names[i] for i in group["params"]]}
        for group in groups]}


def state_in(files: Files, parts: list[Files], closing: contextlib.ExitStack, left_out: LeftOut,
             skip: Skip | None = None) -> dict[str, Any]:
    """The state in a folder: "model", "optimizer", "scheduler" and so on, "rng" and "accelerator".

    Args:
        files: the folder's files, which must stay open until the state is saved.
        parts: the files of each directory of torch.distributed.checkpoint in the folder; these must also stay open.
        closing: receives the functions that close further files, which must also stay open.
        left_out: called with the name of each file that is not converted, and the reason.

    Raises:
        libdcp.Error: a model or an optimizer is damaged, or cannot be stored.
    """
    state: dict[str, Any] = {**_dcp_import.state_in(parts, Renames(()), skip)} if parts else {}
    state["accelerator"] = {"step": 0, "custom_checkpoints": 0}
    for name in sorted(os.listdir(files.folder)):
        if match := _MODEL.fullmatch(name):
            section = "model" + (match[1] or match[2] or "")
            if section in state:  # accelerate itself prefers the safetensors, too
                left_out(name, f"{section} is in another file of the folder, too")
            elif name.endswith(".safetensors"):
                state[section] = _of_safetensors(os.path.join(files.folder, name), closing)
            else:
                state[section] = _torch_import.state_in(files, name)
        elif match := _OPTIMIZER.fullmatch(name):
            section = "optimizer" + (match[1] or "")
            if section in state:
                left_out(name, f"{section} is in another file of the folder, too")
            else:
                found = _torch_import.state_in(files, name, skip)
                state[section] = _named(found.get("optimizer", found))
        elif match := _OTHERS.fullmatch(name):
            try:
                state[match[1] or match[2]] = _torch_import.state_in(files, name, skip)
                state["accelerator"]["custom_checkpoints"] += name.startswith("custom")
            except Error as e:
                left_out(name, str(e))
        elif not _RANDOM.fullmatch(name) and not _dcp_metadata.ACCELERATE.fullmatch(name):
            left_out(name, "libdcp has no use for it")
    _add_random(state, files, left_out)
    return state
