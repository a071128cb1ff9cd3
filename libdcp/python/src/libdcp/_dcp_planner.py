"""Recognizes planners of torch.distributed.checkpoint that do what torch's default ones do."""

from __future__ import annotations

import sys
from typing import Any

from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner

_SAVE = ("create_local_plan", "create_global_plan", "finish_plan", "resolve_data", "lookup_object", "transform_object")
_LOAD = ("create_local_plan", "create_global_plan", "finish_plan", "resolve_tensor", "lookup_tensor",
         "transform_tensor", "commit_tensor", "load_bytes")


def _is_as(planner: Any, base: type[Any], methods: tuple[str, ...]) -> bool:
    return isinstance(planner, base) and all(
        getattr(type(planner), method) is getattr(base, method) and method not in vars(planner) for method in methods)


def saves_by_default(planner: Any) -> bool:
    """Returns true if the planner saves its ``state_dict`` unchanged."""
    return _is_as(planner, DefaultSavePlanner, _SAVE)


def loads_by_default(planner: Any) -> bool:
    """Returns true if the planner loads data into the tensors of its ``state_dict`` unchanged."""
    return _is_as(planner, DefaultLoadPlanner, _LOAD)


def variable_of_torch(name: str) -> Any:
    """A local variable of the torch function that has called the storage, or None.

    torch passes neither the planner nor the process group to a storage before it gathers all ranks' plans, and this
    gathering must be avoided. If this function finds nothing, because torch's code has changed, the plans are gathered.
    """
    return sys._getframe(2).f_locals.get(name)
