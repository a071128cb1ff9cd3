#!/usr/bin/env python3
"""Makes golden_thawed.json, beside it: the golden Llama model of transformers, trained by torch.optim.AdamW and SGD
with some parameters frozen for the first steps; needs torch, transformers and safetensors. The losses, norms and the
size of each parameter at the end are what train_thawed.py compares with."""
import fnmatch, json, os

import torch, transformers
from safetensors.torch import load_file

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDER = f"{HERE}/golden/llama"
FROZEN = ["model.embed*", "model.layers.0.*", "*.down_proj.weight"]
CLIP, THAW, STEPS = 1.0, 3, 6
OPTIMIZERS = [
    ("AdamW", torch.optim.AdamW, {"lr": 0.003, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}),
    ("SGD", torch.optim.SGD,
     {"lr": 0.5, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01, "nesterov": False}),
]


def train(kind, params):
    """One optimizer has all parameters: those without a gradient do not change, and get their state with their
    first gradient."""
    model = transformers.AutoModelForCausalLM.from_pretrained(FOLDER, dtype=torch.float32, attn_implementation="eager")
    batch = load_file(f"{FOLDER}/golden.safetensors")
    optimizer = kind(model.parameters(), **params)
    losses, norms = [], []
    for step in range(STEPS):
        for name, p in model.named_parameters():
            p.requires_grad_(step >= THAW or not any(fnmatch.fnmatchcase(name, glob) for glob in FROZEN))
        loss = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        losses.append(loss.item())
        optimizer.step()
    sizes = {name: float(torch.linalg.vector_norm(p.detach().double())) for name, p in model.named_parameters()}
    return {"params": params, "losses": losses, "grad_norms": norms, "sizes": sizes}


runs = [{"type": name, **train(kind, params)} for name, kind, params in OPTIMIZERS]
with open(f"{HERE}/golden_thawed.json", "w") as f:
    json.dump({"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "clip": CLIP,
               "frozen": FROZEN, "thaw": THAW, "steps": STEPS, "runs": runs}, f, indent=1)
    f.write("\n")
