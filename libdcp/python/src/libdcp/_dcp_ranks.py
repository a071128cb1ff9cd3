"""Which ranks take part in a call of torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

import torch.distributed as dist

from ._groups import Alone, TorchGroup
from ._union import Ranks
from .errors import Error, Status

Plan = TypeVar("Plan", bound=Any)


def own_rank() -> int:
    """In the default group; 0 where there is none."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def give_ranks(plans: Sequence[Plan]) -> list[Plan]:
    """On the coordinator, with all ranks' plans, which have each rank's number: each gets the numbers of all."""
    ranks = [plan.storage_data for plan in plans]
    if any(not isinstance(rank, int) for rank in ranks):  # a planner has made others
        if len(plans) > 1 and len(plans) != dist.get_world_size():
            raise Error("a planner has dropped the plans' storage_data, and the ranks are not those of the default "
                        "group; have it keep what it is given", status=Status.ARG)
        ranks = [own_rank()] if len(plans) == 1 else list(range(len(plans)))
    return [dataclasses.replace(plan, storage_data=ranks) for plan in plans]


def group_of(ranks: Sequence[int]) -> Ranks:
    """A group of these; collective over them."""
    return TorchGroup(ranks) if len(ranks) > 1 else Alone()


def group_without_plans(wrapper: Any) -> Ranks:
    """Of a save with use_collectives=False, in which no rank hears of the others.

    Args:
        wrapper: torch's _DistWrapper, or None where it was not found: the default group then.
    """
    if not dist.is_available() or not dist.is_initialized() or not getattr(wrapper, "use_dist", True):
        return Alone()
    return group_of(dist.get_process_group_ranks(getattr(wrapper, "group", None) or dist.group.WORLD))
