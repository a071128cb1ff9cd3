"""Determines which ranks take part in a call of torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from ._groups import Alone, TorchGroup
from .errors import Error, Status

Plan = TypeVar("Plan", bound=Any)
Ranks = TorchGroup | Alone


def own_rank() -> int:
    """The rank in the default group; 0 if there is none."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def give_ranks(plans: Sequence[Plan]) -> list[Plan]:
    """Called on the coordinator with all ranks' plans, which contain each rank's number: gives each rank the numbers of
    all ranks."""
    ranks = [plan.storage_data for plan in plans]
    if any(not isinstance(rank, int) for rank in ranks):  # a planner has replaced them
        if len(plans) > 1 and len(plans) != dist.get_world_size():
            raise Error("a planner has dropped the plans' storage_data, and the ranks are not those of the default "
                        "group; make it keep the storage_data that it is given", status=Status.ARG)
        ranks = [own_rank()] if len(plans) == 1 else list(range(len(plans)))
    return [dataclasses.replace(plan, storage_data=ranks) for plan in plans]


def group_of(ranks: Sequence[int], wrapper: Any) -> Ranks:
    """A group of these ranks; collective over them. Threads may make groups of the same ranks at the same time if
    torch's groups, for which they do that, are different ones.

    Args:
        wrapper: torch's _DistWrapper, or None if it was not found: then the default group's name is used.
    """
    return TorchGroup(ranks, name=_name_of(wrapper)) if len(ranks) > 1 else Alone()


def _name_of(wrapper: Any) -> str:
    """The name of torch's group; empty for the default one."""
    group = getattr(wrapper, "group", None)
    return "" if group is None else str(group.group_name)


def group_without_plans(wrapper: Any) -> Ranks:
    """A group for a save with use_collectives=False, in which no rank learns about the others.

    Args:
        wrapper: torch's _DistWrapper, or None if it was not found: then the default group is used.
    """
    if not dist.is_available() or not dist.is_initialized() or not getattr(wrapper, "use_dist", True):
        return Alone()
    return group_of(dist.get_process_group_ranks(getattr(wrapper, "group", None) or dist.group.WORLD), wrapper)
