"""Runs under torchrun for test_hf.py: hf_ranks.py SCRATCH. The model is a small Llama of transformers."""

import pathlib
import sys
from unittest import mock

import torch
import torch.distributed as dist
import transformers
from torch.distributed.checkpoint.state_dict import get_model_state_dict

import libdcp
import libdcp.hf
from libdcp import _safetensors

from trainer_ranks import TENSOR_PARALLEL, shard

CONFIG = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "max_position_embeddings": 32}
LAYERS = {name: style for name, style in TENSOR_PARALLEL.items() if name.startswith("model.layers.")}


def llama(seed, tied=False, **more):
    torch.manual_seed(seed)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG, tie_word_embeddings=tied, **more))


def whole(value):
    return value.full_tensor() if hasattr(value, "full_tensor") else value


def check(scratch, name, tied, pairs, cast=False):
    """Loads a folder into a sharded model, and compares with the model that was saved."""
    model = shard(llama(2, tied), pairs, LAYERS)
    found = libdcp.hf.load(scratch / name, get_model_state_dict(model), cast=cast)
    assert (found.missing, found.unexpected) == ([], []) and found["model"]["model_type"] == "llama", found
    for key, value in llama(1, tied).state_dict().items():
        wanted = value.bfloat16().float() if cast else value
        assert torch.equal(whole(model.state_dict()[key]), wanted), key
    return model


def load(scratch):
    pairs = 2 if dist.get_world_size() == 4 else 1
    n, read = [], _safetensors.Folder._read
    with mock.patch.object(_safetensors.Folder, "_read", lambda *given: n.append(given[3]) or read(*given)):
        model = check(scratch, "untied-hf", False, pairs)
    held = sum(value.to_local().numel() * 4 for value in model.state_dict().values())
    assert sum(n) == held or pairs > 1 and sum(n) < 2 * held, (sum(n), held)  # short runs are read together
    check(scratch, "untied-shards", False, pairs)
    check(scratch, "untied-bf16", False, pairs, cast=True)
    if pairs == 1:
        check(scratch, "tied-hf", True, pairs)
    stages(scratch)
    failures(scratch)


def stages(scratch):
    """Each rank has other layers; nobody misses those of others."""
    model, rank, ranks = llama(3), dist.get_rank(), dist.get_world_size()
    state = {key: value for i, (key, value) in enumerate(model.state_dict().items()) if i % ranks == rank}
    found = libdcp.hf.load(scratch / "untied-hf", state)
    assert (found.missing, found.unexpected) == ([], [])
    wanted = llama(1).state_dict()
    assert all(torch.equal(value, wanted[key]) for key, value in state.items())


def refused(folder, state, said):
    before = {key: value.clone() for key, value in state.items()}
    try:
        libdcp.hf.load(folder, state)
    except libdcp.Error as e:
        assert said in str(e), e
        assert all(torch.equal(value, before[key]) for key, value in state.items())
    else:
        raise AssertionError(f"not refused: {said}")


def failures(scratch):
    """A failure on one rank is an error on all, before anything is changed. A rank need not name all tensors."""
    folder, last = scratch / "untied-hf", dist.get_rank() == dist.get_world_size() - 1
    state = dict(llama(3).state_dict())
    if last:
        del state["model.norm.weight"]
    refused(folder, {**state, "more": torch.zeros(2)} if last else state, "lacks more")
    refused(folder, {**state, "lm_head.weight": torch.zeros(3, 3)} if last else state, "lm_head.weight")
    refused(scratch / "nowhere" if last else folder, state, "nowhere")
    assert libdcp.hf.load(folder, state).unexpected == []


if __name__ == "__main__":
    dist.init_process_group("gloo")
    load(pathlib.Path(sys.argv[1]))
    dist.barrier()
    dist.destroy_process_group()
