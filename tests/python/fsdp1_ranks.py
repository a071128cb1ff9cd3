"""Runs under torchrun for test_torch_files.py: fsdp1_ranks.py save|load DIR."""

import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType, fully_shard

import libdcp


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))


def train(model, optimizer):
    model(torch.rand(4, 7)).square().sum().backward()
    optimizer.step()


def save(directory):
    model = FSDP(make_model(), use_orig_params=True, device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    train(model, optimizer)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        full = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer), "epoch": 3}
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        weights = model.state_dict()
        dcp.save({"model": weights, "optimizer": FSDP.optim_state_dict(model, optimizer)}, checkpoint_id=f"{directory}/dcp")
    with FSDP.state_dict_type(model, StateDictType.LOCAL_STATE_DICT):
        local = model.state_dict()
    sharded = make_model()
    fully_shard(sharded)
    if dist.get_rank() == 0:
        for name, state in (("full", full), ("sharded", weights), ("local", local), ("dtensors", sharded.state_dict())):
            torch.save(state, f"{directory}/{name}.pt")


def make_state():
    """Returns what is loaded into: of a model on one rank, or of FSDP2."""
    model = make_model()
    if dist.get_world_size() > 1:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1.)
    train(model, optimizer)
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def load(directory):
    """FSDP1's full moments on CPUs are not those of its shards, so each is compared with what torch reads from it."""
    full = torch.load(f"{directory}/full.pt", weights_only=True)
    full.pop("epoch")
    sharded = make_state()
    dcp.load(sharded, checkpoint_id=f"{directory}/dcp")
    for name, expected in ("full", full), ("sharded", sharded):
        state = make_state()
        assert libdcp.prove(state) != libdcp.prove(expected)
        libdcp.load(f"{directory}/{name}", state, strict=name == "sharded")
        assert libdcp.prove(state) == libdcp.prove(expected), name
        assert state["optimizer"]["param_groups"][0]["lr"] == 0.1


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    dist.init_process_group("gloo")
    {"save": save, "load": load}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
