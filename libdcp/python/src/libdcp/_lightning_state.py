"""The dictionaries that Lightning saves, as states of libdcp, and back.

In a Trainer's dictionary, "state_dict" becomes the section "model", the "optimizer_states" become "optimizer",
"optimizer_1" and so on. In Fabric's dictionary, the state dicts of modules and optimizers become sections with the
caller's keys. Everything else is in the section "lightning".
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from . import _names, _words
from ._training import numbered

torch: Any = importlib.import_module("torch")

REST = "lightning"
_VERSION = "pytorch-lightning_version"  # Lightning's own key for its version, in a Trainer's dictionary
_LOST: Any = object()


@_words.register
@dataclass
class Scalar:
    """A torch tensor without dimensions, as JSON: Lightning has many, such as metrics, whose keys are file paths."""

    dtype: str
    value: Any


def _is_sharded(tensor: Any) -> bool:
    return hasattr(tensor, "placements") or hasattr(tensor, "local_shards")


def _kept(value: Any, name: str, lost: list[str]) -> Any:
    """The part of a value that a checkpoint can represent.

    Args:
        lost: receives the names of what the checkpoint cannot represent.
    """
    if torch.is_tensor(value) or _is_sharded(value):
        return _tensor(value, name)
    try:
        _words.encoded(value)
        return value
    except TypeError:
        pass
    if isinstance(value, Mapping):
        return _items(value, name, lost)
    if type(value) in (list, tuple):
        inner = [_kept(item, f"{name}[{i}]", lost) for i, item in enumerate(value)]
        return _LOST if any(item is _LOST for item in inner) else type(value)(inner)
    lost.append(name)
    return _LOST


def _tensor(value: Any, name: str) -> Any:
    if _is_sharded(value):
        raise ValueError(f"libdcp.lightning: {name} is sharded over the ranks, and only the states of modules and optimizers "
                         "may be: save what full_tensor() returns")
    is_scalar = value.dim() == 0 and type(value) is torch.Tensor
    return Scalar(str(value.dtype).removeprefix("torch."), value.item()) if is_scalar else value


def _items(value: Mapping[Any, Any], name: str, lost: list[str]) -> dict[Any, Any]:
    kept = {key: _kept(inner, f"{name}.{key}" if name else str(key), lost) for key, inner in value.items()}
    return {key: inner for key, inner in kept.items() if inner is not _LOST}


def _restored(value: Any) -> Any:
    """The value from which :func:`_kept` made this one."""
    if isinstance(value, Scalar):
        return torch.tensor(value.value, dtype=getattr(torch, value.dtype))
    if type(value) is dict:
        return {key: _restored(inner) for key, inner in value.items()}
    return type(value)(map(_restored, value)) if type(value) in (list, tuple) else value


def _is_section(value: Any) -> bool:
    """Returns true for the state dict of an optimizer or a module."""
    return _names.is_optimizer(value) or isinstance(value, Mapping) and bool(value) and all(
        torch.is_tensor(inner) or _is_sharded(inner) for inner in value.values())


def sections(checkpoint: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The state that a dictionary of Lightning becomes, and the names of what it leaves out."""
    rest = dict(checkpoint)
    made: dict[str, Any] = {}
    if _VERSION in rest:
        made["model"] = rest.pop("state_dict")
        made |= {numbered("optimizer", i): state for i, state in enumerate(rest.pop("optimizer_states", []))}
    else:
        made |= {key: rest.pop(key) for key, value in checkpoint.items() if _is_section(value)}
    if REST in made:
        raise ValueError(f'libdcp.lightning: the key "{REST}" is reserved for what is no state dict: choose another one')
    lost: list[str] = []
    return {**made, REST: _items(rest, "", lost)}, lost


def checkpoint_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The dictionary of Lightning that became this state."""
    made = {key: value for key, value in state.items() if key != REST}
    rest = _restored(state.get(REST, {}))
    if _VERSION in rest:
        optimizers = [key for key in made if re.fullmatch(r"optimizer(_\d+)?", key)]
        states = [made.pop(key) for key in sorted(optimizers, key=lambda key: int(key[10:] or 0))]
        made = {"state_dict": made.pop("model", {}), **made}
        made |= {"optimizer_states": states} if states else {}
    return {**made, **rest}


def step_of(checkpoint: Mapping[str, Any], path: str) -> int:
    """The number of the step: "global_step" or "step" in the dictionary, or the last number of the path."""
    for key in "global_step", "step":
        if type(checkpoint.get(key)) is int:
            return int(checkpoint[key])
    found = re.findall(r"\d+", re.split(r"[\\/]", path.rstrip("\\/"))[-1])
    return int(found[-1]) if found else 0


def by_names(state: Mapping[str, Any], optimizer: Any, module: Any) -> Mapping[str, Any]:
    """An optimizer's state dict, by parameters' names instead of their numbers; unchanged if a parameter has no name."""
    if not _names.is_optimizer(state):
        return state
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    own = [names.get(id(parameter)) for group in optimizer.param_groups for parameter in group["params"]]
    keys = [key for group in state["param_groups"] for key in group["params"]]
    if None in own or len(own) != len(keys):
        return state
    named = dict(zip(keys, own))
    groups = [{**group, "params": [named[key] for key in group["params"]]} for group in state["param_groups"]]
    return {"state": {named[key]: value for key, value in state["state"].items()}, "param_groups": groups}


def moved(value: Any, map_location: Any) -> Any:
    """A dictionary with its tensors moved from the CPU to where torch.load's ``map_location`` would put them."""
    device = _device(map_location)
    if device is None:
        return value
    if torch.is_tensor(value):
        return value.to(device)
    if type(value) is dict:
        return {key: moved(inner, device) for key, inner in value.items()}
    return type(value)(moved(inner, device) for inner in value) if type(value) in (list, tuple) else value


def _device(map_location: Any) -> Any:
    if callable(map_location):
        found = map_location(torch.empty(0).untyped_storage(), "cpu")
        return None if found is None else found.device
    return map_location.get("cpu") if isinstance(map_location, Mapping) else map_location
