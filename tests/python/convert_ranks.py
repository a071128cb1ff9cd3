"""Runs under torchrun for test_convert.py: convert_ranks.py save|load DIR."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import libdcp


def make_state(lr, scale):
    """Returns a model with its moments, in rows that do not divide by the ranks, and tensors on a mesh of two
    dimensions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 3))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model(torch.ones(2, 7) * scale).square().sum().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    grid = init_device_mesh("cpu", (dist.get_world_size() // 2, 2))
    numbers = torch.arange(99.).reshape(9, 11) * scale
    extra = {"tiles": distribute_tensor(numbers, grid, [Shard(0), Shard(1)]),
             "copies": distribute_tensor(numbers.to(torch.bfloat16), grid, [Replicate(), Shard(1)]),
             "one": distribute_tensor(numbers[:1], grid, [Shard(0), Shard(0)]),
             "plain": torch.full((3,), scale), "scalar": torch.tensor(scale), "none": torch.zeros(0, 3)}
    return {"model": weights, "optimizer": moments, "extra": extra, "epoch": 3, "names": ["a", {"b": lr}]}


def save(directory):
    state = make_state(0.25, 2.)
    dcp.save(state, checkpoint_id=f"{directory}/dcp")
    libdcp.save(f"{directory}/native", 1, state, replicas="check")


def load(directory):
    """Loads on another number of ranks, by both libraries."""
    with libdcp.Checkpoint(f"{directory}/native") as checkpoint:
        proof = checkpoint.proof()
    state = make_state(1, 3.)
    assert libdcp.prove(state) != proof
    dcp.load(state, checkpoint_id=f"{directory}/back")
    assert libdcp.prove(state, replicas="check") == proof
    assert state["epoch"] == 3 and state["names"] == ["a", {"b": 0.25}], state["names"]
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.25
    state = make_state(1, 3.)
    libdcp.load(f"{directory}/steps", state)
    assert libdcp.prove(state, replicas="check") == proof
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.25


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"save": save, "load": load}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
