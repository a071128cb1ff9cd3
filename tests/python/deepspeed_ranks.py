"""Runs under torchrun for test_deepspeed.py: deepspeed_ranks.py STEPS EXPECTED loads a step into the model that
deepspeed_files.py trains, with FSDP2 on several ranks, and compares it with DeepSpeed's weights."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard

import libdcp


class Model(nn.Module):
    """With a frozen parameter, a buffer, tied weights, and sizes that don't divide by the ranks."""

    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b, self.tied = nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3), nn.Linear(5, 3)
        self.tied.weight = self.b.weight
        self.frozen = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)
        self.register_buffer("seen", torch.arange(3.))

    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x)))) + self.frozen + self.tied.bias


def main(steps, expected):
    torch.manual_seed(dist.get_rank())
    model = Model()
    if dist.get_world_size() > 1:
        fully_shard(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1]},
                                   {"params": [p for p in trained if p.ndim == 1]}], lr=1.)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments}
    loaded = libdcp.load(steps, state, strict=False, cast=True)
    assert not loaded.missing, loaded.missing
    set_model_state_dict(model, weights)
    found = model.state_dict()
    for name, array in torch.load(expected).items():
        own = found[name].full_tensor() if hasattr(found[name], "full_tensor") else found[name]
        assert torch.equal(own, array.to(own.dtype)), name
    assert [group["lr"] for group in moments["param_groups"]] == [0.125, 0.125]
    for name, values in moments["state"].items():
        assert float(values["step"]) == 3, name


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main(*sys.argv[1:])
    dist.barrier()
    dist.destroy_process_group()
