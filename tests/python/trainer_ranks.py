"""Runs under torchrun for test_trainer.py: trainer_ranks.py WHAT DIR. The model is the golden Llama, with FSDP of
each layer and of the whole, and on request tensor parallelism below that."""

import json
import os
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from transformers import AutoConfig, AutoModelForCausalLM

import libdcp

GOLDEN = pathlib.Path(__file__).parents[1] / "data" / "golden" / "llama"
SETTINGS = json.loads((GOLDEN / "golden.json").read_text())
PARAMS = {key: SETTINGS["optimizer"][key] for key in ("lr", "betas", "eps", "weight_decay")}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
SAVED, LAST = 2, 5  # number of steps
TENSOR_PARALLEL = {
    "model.embed_tokens": RowwiseParallel, "lm_head": ColwiseParallel,
    **{f"model.layers.*.self_attn.{name}_proj": ColwiseParallel for name in "qkv"},
    "model.layers.*.self_attn.o_proj": RowwiseParallel, "model.layers.*.mlp.gate_proj": ColwiseParallel,
    "model.layers.*.mlp.up_proj": ColwiseParallel, "model.layers.*.mlp.down_proj": RowwiseParallel}


def shard(model, pairs=1, styles=TENSOR_PARALLEL):
    """Shards over all ranks, and returns the model; a given number of neighbours shares each layer by tensor parallelism."""
    mesh = init_device_mesh("cpu", (dist.get_world_size() // pairs, pairs), mesh_dim_names=("fsdp", "tp"))
    if pairs > 1:
        parallelize_module(model, mesh["tp"], {name: style() for name, style in styles.items()})
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["fsdp"])
    fully_shard(model, mesh=mesh["fsdp"])
    return model


def make(dtype, pairs=1, pretrained=False):
    """Makes a model and an optimizer; if they are to be loaded, with other weights and another learning rate."""
    kind = AutoModelForCausalLM
    model = (kind.from_pretrained(GOLDEN) if pretrained else kind.from_config(AutoConfig.from_pretrained(GOLDEN)))
    model = model.to(dtype)
    shard(model, pairs)
    return model, torch.optim.AdamW(model.parameters(), **(PARAMS if pretrained else {"lr": 1}))


def state_of(model, optimizer):
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments}


def give(model, optimizer, state):
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])


def loss_of(model):
    batch = load_file(GOLDEN / "golden.safetensors")
    return model(input_ids=batch["input_ids"], labels=batch["labels"]).loss


def train(model, optimizer):
    """Returns the loss before the update."""
    loss = loss_of(model)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["clip"])
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def save(directory, step, model, optimizer):
    members = {"model": model.config.to_diff_dict()}
    state = state_of(model, optimizer)
    libdcp.save(directory, step, state, json=members, replicas="check")
    with libdcp.Checkpoint(f"{directory}/step-{step:08}") as checkpoint:
        assert checkpoint.proof() == libdcp.prove(state)


def start(directory):
    """On one rank: trains, saves, and continues training. Writes the losses after the save; the first one is that
    of the saved weights in fp32."""
    losses = {}
    for name, dtype in DTYPES.items():
        model, optimizer = make(dtype, pretrained=True)
        for _ in range(SAVED):
            train(model, optimizer)
        save(f"{directory}/{name}", SAVED, model, optimizer)
        if dtype == torch.float32:
            losses[name] = [train(model, optimizer) for _ in range(SAVED, LAST)]
            save(f"{directory}/{name}", LAST, model, optimizer)
        else:
            wide, _ = make(torch.float32)
            libdcp.load(f"{directory}/{name}", {"model": wide.state_dict()}, only="/model/*", cast=True)
            losses[name] = [loss_of(wide).item()]
    pathlib.Path(directory, "losses.json").write_text(json.dumps(losses))


def again(directory):
    """Loads the step SOURCE, and saves it on these ranks, with FSDP alone and, on 4 and 8 ranks, with tensor
    parallelism."""
    ranks = dist.get_world_size()
    for pairs in {4: (1, 2), 8: (1, 2, 4)}.get(ranks, (1,)):
        for name, dtype in DTYPES.items():
            model, optimizer = make(dtype, pairs)
            state = state_of(model, optimizer)
            assert libdcp.load(f"{os.environ['SOURCE']}/{name}/step-{SAVED:08}", state)["step"] == SAVED
            give(model, optimizer, state)
            assert optimizer.param_groups[0]["lr"] == SETTINGS["optimizer"]["lr"]
            save(f"{directory}/{ranks // pairs}x{pairs}/{name}", SAVED, model, optimizer)


def back(directory):
    """Loads SOURCE, a step of dcp-train, strictly, continues training, and writes the losses. Also loads IMPORTED,
    which dcp-import has made of the model."""
    model, optimizer = make(torch.float32)
    state = state_of(model, optimizer)
    step = libdcp.load(os.environ["SOURCE"], state)["step"]
    assert {moments["step"].item() for moments in state["optimizer"]["state"].values()} == {step}
    with libdcp.Checkpoint(os.environ["SOURCE"]) as checkpoint:
        found, stored = libdcp.prove(state).crc, checkpoint.proof().crc
    assert {path: crc for path, crc in found.items() if not path.startswith("/optimizer/step/")} == stored
    give(model, optimizer, state)
    optimizer.param_groups[0].update(PARAMS)
    losses = [train(model, optimizer), loss_of(model).item()]
    libdcp.load(os.environ["IMPORTED"], {"model": model.state_dict()})
    losses.append(loss_of(model).item())
    if dist.get_rank() == 0:
        pathlib.Path(directory, "losses-back.json").write_text(json.dumps(losses))


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"start": start, "again": again, "back": back}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
