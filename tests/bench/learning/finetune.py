"""A pretrained language model is imported, trained for some steps in bf16 and exported; transformers evaluates it
before and after."""
import json
import logging
import os
import sys
import warnings

import numpy
import torch
from transformers import AutoModelForCausalLM

from .shared import ROOT, judge, library_text, run, tool, train

STEPS, BATCH, SEQUENCE = 20, 4, 64
TRAIN_BYTES, EVAL_BYTES = 40_000, 4_000
TARGET = 0.01


class Heard(logging.Handler):
    """The messages of transformers while it loads."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.said = []
        logging.getLogger("transformers").addHandler(self)

    def emit(self, record):
        self.said.append(record.getMessage())


def write_tokens(scratch, model):
    """Writes token ids of Python's sources. Returns the paths of the files for training and for evaluation."""
    paths = []
    for name, text in zip(("train", "eval"), library_text(TRAIN_BYTES, EVAL_BYTES), strict=True):
        path = os.path.join(scratch, name)
        with open(f"{path}.txt", "w", encoding="utf-8", newline="") as f:
            f.write(text.decode("utf-8", "replace"))
        run(sys.executable, os.path.join(ROOT, "examples/tokenize_text.py"), model, f"{path}.bin", f"{path}.txt")
        paths.append(f"{path}.bin")
    return paths


def peer_loss(folder, path):
    """Returns the mean loss over the windows of a file of tokens, in fp32, and the number of the model's
    parameters."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    wide = model.config.vocab_size > 65536
    ids = numpy.fromfile(path, dtype="<u4" if wide else "<u2").astype(numpy.int64)
    starts, losses = range(0, len(ids) - SEQUENCE, SEQUENCE), []
    with torch.no_grad():
        for at in starts:
            window = torch.tensor(ids[at:at + SEQUENCE + 1])
            logits = model(input_ids=window[None, :-1]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, window[1:]).item())
    return sum(losses) / len(losses), sum(p.numel() for p in model.parameters())


def our_config(model, paths):
    return {"model": model, "max_steps": STEPS, "seed": 1, "bf16": {"enabled": True},
            "data": {"type": "tokens", "path": paths[0], "sequence_length": SEQUENCE, "eval_path": paths[1]},
            "train_batch_size": BATCH, "train_micro_batch_size_per_gpu": BATCH // 2,
            "optimizer": {"params": {"lr": 1e-4, "betas": [0.9, 0.95], "no_decay": ["*norm*"]}},
            "scheduler": {"type": "linear", "params": {"warmup_steps": 3}},
            "checkpoint": {"every": 10, "keep": 2}}


def show(scratch, model):
    model = os.path.abspath(model)
    heard = Heard()
    paths = write_tokens(scratch, model)
    before, parameters = peer_loss(model, paths[1])
    tool("dcp-import", model, os.path.join(scratch, "tuned"))
    lines = train(scratch, "tuned", our_config(model, paths))
    exports = {name: os.path.join(scratch, f"export-{name}") for name in ("f32", "bf16")}
    for name, folder in exports.items():
        tool("dcp-export", os.path.join(scratch, "tuned"), folder, "--dtype", name)
    heard.said.clear()
    with warnings.catch_warnings(record=True) as warned:
        after, rounded = (peer_loss(exports[name], paths[1])[0] for name in ("f32", "bf16"))
    said = heard.said + [str(w.message) for w in warned]
    ours = lines[-1]["eval_loss"]
    with open(os.path.join(model, "config.json")) as f:
        kind = json.load(f)["model_type"]
    print(f"{kind} of {parameters} parameters; {STEPS} steps of {BATCH} x {SEQUENCE} tokens of Python's "
          f"standard library, bf16; at most {max(s['mem_peak_bytes'] for s in lines) / 1e9:.2f} GB a rank")
    print("training loss: " + " ".join(f"{line['loss']:.3f}" for line in lines))
    print(f"validation loss: {before:.5f} before, by transformers; after the steps {ours:.5f} by dcp-train in bf16, "
          f"{after:.5f} by transformers of the export in fp32, {rounded:.5f} of that in bf16")
    off = abs(ours / after - 1)
    return all([judge("the validation loss falls", f"{before:.4f} to {ours:.4f}", max(ours, after) < before),
                judge(f"the same by transformers of the export within {TARGET}", f"{off:.1e}", off <= TARGET),
                judge("transformers loads the exports without a warning", "; ".join(said) or "none", not said)])
