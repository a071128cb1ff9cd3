"""Runs under torchrun for test_sharded.py: sharded_ranks.py WHAT DIR."""

import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictType
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._shards_wrapper import LocalShardsWrapper
from torch.distributed.tensor.placement_types import Shard as Rows

import libdcp

warnings.simplefilter("ignore")


def whole(rows, columns):
    return torch.arange(float(rows * columns)).reshape(rows, columns)


def cut(rows, columns, cuts):
    """Returns a tensor as rows between cuts, distributed over the ranks in turn; a rank may have several parts, or
    none."""
    rank, ranks, full = dist.get_rank(), dist.get_world_size(), whole(rows, columns)
    shards = [Shard.from_tensor_and_offsets(full[a:b].clone(), [a, 0], rank)
              for i, (a, b) in enumerate(zip(cuts, cuts[1:])) if i % ranks == rank]
    return init_from_local_shards(shards, rows, columns)


def tensors(directory):
    """Saves and loads ShardedTensors with several shards per rank, and with none, through every interface."""
    cuts = {"many": [0, 1, 4, 5, 9], "first": [0, 9]}
    state = {"model": {name: cut(9, 3, found) for name, found in cuts.items()}}
    proof = libdcp.prove(state)
    assert proof == libdcp.prove({"model": {name: whole(9, 3) for name in cuts}})
    libdcp.save(f"{directory}/a", 1, state, replicas="check")
    with libdcp.Store(f"{directory}/b") as store:
        declared = store.declare(state)
        store.save_async(1, declared).wait()
        for shard in (s for value in state["model"].values() for s in value.local_shards()):
            shard.tensor.zero_()
        store.load(declared)
    assert libdcp.prove(state) == proof
    fresh = {"model": {name: torch.zeros(9, 3) for name in cuts}}
    for folder in "ab":
        libdcp.load(f"{directory}/{folder}", fresh)
        assert all(torch.equal(value, whole(9, 3)) for value in fresh["model"].values())
    libdcp.save(f"{directory}/less", 1, {"model": {"many": state["model"]["many"]}})
    try:
        libdcp.load(f"{directory}/less", state)
        assert False
    except libdcp.Error as e:
        assert "/model/first is not in the checkpoint" in str(e), e


def members(directory):
    """A plain tensor whose members say where its rows are in a whole one."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    full = whole(4 * ranks, 3)
    mine = torch.cat([full[2 * rank:2 * rank + 2], full[2 * (ranks + rank):2 * (ranks + rank) + 2]])
    mine.global_shape = tuple(full.shape)
    mine.global_offsets, mine.local_offsets = ((2 * rank, 0), (2 * (ranks + rank), 0)), ((0, 0), (2, 0))
    mine.local_sizes = ((2, 3), (2, 3))
    libdcp.save(directory, 1, {"w": mine})
    fresh = torch.zeros_like(full)
    libdcp.load(directory, {"w": fresh})
    assert torch.equal(fresh, full)


def wrapper(directory):
    """A DTensor that has several shards on a rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    full, columns = whole(2 * ranks, 4), 4 // 2
    parts = [full[2 * rank:2 * rank + 2, k * columns:(k + 1) * columns].clone() for k in (0, 1)]
    local = LocalShardsWrapper(parts, [(2 * rank, 0), (2 * rank, columns)])
    mesh = init_device_mesh("cpu", (ranks,))
    state = {"w": DTensor.from_local(local, mesh, [Rows(0)], run_check=False, shape=full.shape, stride=full.stride())}
    libdcp.save(directory, 1, state)
    for part in parts:
        part.zero_()
    libdcp.load(directory, state)
    fresh = torch.zeros_like(full)
    libdcp.load(directory, {"w": fresh})
    assert torch.equal(fresh, full)
    assert all(torch.equal(part, full[2 * rank:2 * rank + 2, k * columns:(k + 1) * columns]) for k, part in enumerate(parts))


def fsdp(directory):
    """Loads a model of FSDP1 and its moments, as sharded state dicts have them, into a model with other values."""
    def made(seed):
        torch.manual_seed(seed)
        model = FSDP(nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Linear(7, 3)), use_orig_params=True,
                     device_id=torch.device("cpu"))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model(torch.ones(2, 5)).square().sum().backward()
        optimizer.step()
        FSDP.set_state_dict_type(model, StateDictType.SHARDED_STATE_DICT, ShardedStateDictConfig(),
                                 ShardedOptimStateDictConfig())
        return model, optimizer

    def state_of(model, optimizer):
        return {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
    state = state_of(*made(0))
    kinds = {type(value).__name__ for value in state["model"].values()}
    assert kinds == {"ShardedTensor"}, kinds
    libdcp.save(directory, 1, state)
    model, optimizer = made(1)
    other = state_of(model, optimizer)
    assert libdcp.prove(other) != libdcp.prove(state)
    libdcp.load(directory, other)
    model.load_state_dict(other["model"])
    optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, other["optimizer"]))
    assert libdcp.prove(state_of(model, optimizer)) == libdcp.prove(state)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"tensors": tensors, "members": members, "wrapper": wrapper, "fsdp": fsdp}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
