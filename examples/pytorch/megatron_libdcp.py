"""Saves and loads a layer that is divided among the ranks, by Megatron-Core's dist_checkpointing and libdcp:

    torchrun --nproc-per-node 4 megatron_libdcp.py save ckpt/iter_0000100
    torchrun --nproc-per-node 2 megatron_libdcp.py load ckpt/iter_0000100

Needs megatron-core 0.16. Runs on CPUs; in a training program, the model's ``sharded_state_dict()`` replaces
``sharded(...)``.
"""

import pathlib
import sys
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing  # type: ignore

import libdcp
import libdcp.megatron

ROWS, COLUMNS = 16, 4


def sharded(rows: torch.Tensor) -> dict[str, Any]:
    """This rank's state; ``rows`` are the rows of the weight that this rank has."""
    rank, size = dist.get_rank(), dist.get_world_size()
    weight = dist_checkpointing.ShardedTensor.from_rank_offsets("linear.weight", rows, (0, rank, size))
    return {"weight": weight, "iteration": 100}


def main(what: str, folder: str) -> None:
    dist.init_process_group("gloo")
    count = ROWS // dist.get_world_size()
    mine = torch.arange(float(ROWS * COLUMNS)).reshape(ROWS, COLUMNS)[dist.get_rank() * count:][:count]
    if what == "save":
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        dist_checkpointing.save(sharded(mine), folder, libdcp.megatron.SaveStrategy())
    else:
        state = dist_checkpointing.load(sharded(torch.zeros_like(mine)), folder)
        print(f"rank {dist.get_rank()}: iteration {state['iteration']}, equal: {torch.equal(state['weight'], mine)}")
        if dist.get_rank() == 0:
            print(libdcp.Checkpoint(f"{folder}/libdcp").read("/model/linear.weight").shape, "in the checkpoint")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
