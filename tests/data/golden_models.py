#!/usr/bin/env python3
"""Makes golden/NAME, beside it, for the models below: config.json and random weights as transformers writes them, and
what it computes of one batch: logits, gradients, and the losses, norms and parameters of five clipped AdamW steps.
Needs torch, transformers and safetensors.

    golden_models.py [NAME ...]"""
import json, os, sys

import torch, transformers
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, MistralConfig, Qwen2Config

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS, CLIP, BATCH, TOKENS = 5, 1.0, 4, 32
ADAMW = {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
HEAD = {"head_dim": 16}


def rope(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


# Within 32 tokens each scaling leaves some pairs of a head unchanged, slows others down, and mixes both in
# between.
MODELS = {
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True, **rope("default")),
    "mistral": MistralConfig(**SIZES, **HEAD, sliding_window=7, **rope("default")),
    # only the second of its layers has a window
    "qwen2_window": Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=5, max_window_layers=1,
                                **rope("default")),
    "llama_linear": LlamaConfig(**SIZES, **HEAD, **rope("linear", factor=4.0)),
    "llama_llama3": LlamaConfig(**SIZES, **HEAD, tie_word_embeddings=True, **rope(
        "llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
    "llama_yarn": LlamaConfig(**SIZES, **HEAD, **rope("yarn", factor=4.0, original_max_position_embeddings=64)),
}


def labels_of(ids):
    """Returns labels; some positions are not counted."""
    labels = ids.clone()
    labels[torch.rand(labels.shape) < 0.2] = -100
    return labels


def as_saved(model, folder, values, prefix):
    """Returns the parameters' values under the names that they have in files."""
    names = {p.data_ptr(): name for name, p in model.named_parameters()}
    saved = load_file(f"{folder}/model.safetensors")
    assert set(saved) == set(names.values()), set(saved) ^ set(names.values())
    return {prefix + name: values[name].detach().clone().contiguous() for name in saved}


def make(name, config):
    torch.manual_seed(sum(name.encode()))
    folder = f"{HERE}/golden/{name}"
    config.dtype = torch.float32
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():  # biases and norms as after some training
        for p in model.parameters():
            p.add_((0.05 if p.ndim > 1 else 0.1) * torch.randn_like(p))
    model.save_pretrained(folder)
    os.path.exists(f"{folder}/generation_config.json") and os.remove(f"{folder}/generation_config.json")
    ids = torch.randint(config.vocab_size, (BATCH, TOKENS))
    batch = {"input_ids": ids, "labels": labels_of(ids)}
    tensors = dict(batch)
    optimizer = torch.optim.AdamW(model.parameters(), **ADAMW)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        out = model(**batch)
        out.loss.backward()
        if step == 0:
            tensors["logits"] = out.logits.detach().clone()
            tensors |= as_saved(model, folder, {n: p.grad for n, p in model.named_parameters()}, "grad.")
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(out.loss.item())
        optimizer.step()
    tensors |= as_saved(model, folder, dict(model.named_parameters()), "step5.")
    save_file(tensors, f"{folder}/golden.safetensors")
    with open(f"{folder}/golden.json", "w") as f:
        json.dump({"loss": losses[0], "grad_norm": norms[0], "losses": losses, "grad_norms": norms, "clip": CLIP,
                   "optimizer": {"type": "AdamW", **ADAMW}, "transformers": transformers.__version__,
                   "torch": torch.__version__.split("+")[0]}, f, indent=1)
    print(name, losses, norms)


for name in sys.argv[1:] or MODELS:
    make(name, MODELS[name])
