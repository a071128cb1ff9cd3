"""The same small Qwen3 is trained on the same real text by dcp-train and by PyTorch, from the same start."""
import os

import numpy
import torch
from transformers import (Qwen3Config, Qwen3ForCausalLM,
                          get_cosine_with_min_lr_schedule_with_warmup)

from .shared import judge, library_text, sample_numbers, split_parameters, train

STEPS, EVERY, BATCH, SEQUENCE, SEED = 200, 50, 16, 128, 5
TRAIN_BYTES, EVAL_BYTES = 300_000, 40_000  # the epoch ends within the run: the next one has another order
LR, WARM_UP, MIN_LR, DECAY, BETAS, CLIP = 2e-3, 20, 0.1, 0.1, (0.9, 0.95), 1.0
TARGET = 0.01
FIRST_LOSS = 1e-5  # only rounding differs at the start: the order of samples and the model are the same


def write_start(folder):
    torch.manual_seed(SEED)
    config = Qwen3Config(vocab_size=256, hidden_size=192, intermediate_size=512, num_hidden_layers=4,
                         num_attention_heads=6, num_key_value_heads=2, head_dim=32,
                         max_position_embeddings=SEQUENCE, tie_word_embeddings=True)
    Qwen3ForCausalLM(config).save_pretrained(os.path.join(folder, "start"))


def our_config(folder):
    path = {name: os.path.join(folder, name) for name in ("start", "train.txt", "eval.txt")}
    return {"model": path["start"], "init": path["start"], "seed": SEED, "max_steps": STEPS,
            "data": {"type": "text", "path": path["train.txt"], "sequence_length": SEQUENCE,
                     "eval_path": path["eval.txt"]}, "eval_every": EVERY,
            "train_batch_size": BATCH, "train_micro_batch_size_per_gpu": BATCH // 4,
            "gradient_clipping": CLIP,
            "optimizer": {"params": {"lr": LR, "betas": BETAS, "weight_decay": DECAY,
                                     "no_decay": ["*norm*"]}},
            "scheduler": {"type": "cosine",
                          "params": {"warmup_steps": WARM_UP, "min_lr_ratio": MIN_LR}},
            "checkpoint": {"every": 0}}


def windows(text):
    """Returns [samples, SEQUENCE + 1] of a text's bytes; each sample's last byte is the first one of the next."""
    tokens = numpy.frombuffer(text, dtype=numpy.uint8).astype(numpy.int64)
    n = (len(tokens) - 1) // SEQUENCE
    return torch.tensor(numpy.stack([tokens[i * SEQUENCE:(i + 1) * SEQUENCE + 1] for i in range(n)]))


def loss_of(model, samples):
    logits = model(input_ids=samples[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), samples[:, 1:].flatten())


def evaluate(model, samples):
    with torch.no_grad():
        sums = [loss_of(model, part).item() * len(part) for part in samples.split(BATCH)]
    return sum(sums) / len(samples)


def train_pytorch(folder, text, eval_text):
    """Returns metrics like dcp-train's: one dict per step with loss, grad_norm, and eval_loss if there was an
    evaluation."""
    model = Qwen3ForCausalLM.from_pretrained(os.path.join(folder, "start"), dtype=torch.float32)
    samples, held_out = windows(text), windows(eval_text)
    optimizer = torch.optim.AdamW(split_parameters(model, "norm", DECAY), lr=LR, betas=BETAS)
    schedule = get_cosine_with_min_lr_schedule_with_warmup(optimizer, WARM_UP, STEPS,
                                                           min_lr_rate=MIN_LR)
    lines = []
    for step in range(1, STEPS + 1):
        schedule.step()  # before the update: the first step has 1/WARM_UP of the rate, as in dcp-train
        loss = loss_of(model, samples[sample_numbers(step, BATCH, len(samples), SEED)])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item()
        lines.append({"loss": loss.item(), "grad_norm": norm, "lr": schedule.get_last_lr()[0]})
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            lines[-1]["eval_loss"] = evaluate(model, held_out)
    return lines


def print_table(runs):
    print(f"{'validation loss':16}" + "".join(f"{name:>18}" for name in runs))
    for step in range(EVERY, STEPS + 1, EVERY):
        print(f"after step {step:<5}" + "".join(f"{run[step - 1]['eval_loss']:18.5f}"
                                                for run in runs.values()), flush=True)


def furthest(ours, theirs, key):
    return max(abs(a[key] / b[key] - 1) for a, b in zip(ours, theirs, strict=True) if key in b)


def show(scratch):
    text, eval_text = library_text(TRAIN_BYTES, EVAL_BYTES)
    for name, content in (("train.txt", text), ("eval.txt", eval_text)):
        with open(os.path.join(scratch, name), "wb") as f:
            f.write(content)
    write_start(scratch)
    config = our_config(scratch)
    ours = train(scratch, "fp32", config)
    narrow = train(scratch, "bf16", config, "bf16.enabled=true")
    theirs = train_pytorch(scratch, text, eval_text)
    print(f"text: {TRAIN_BYTES} bytes of Python's standard library, {EVAL_BYTES} others to evaluate")
    print_table({"dcp-train fp32": ours, "PyTorch fp32": theirs, "dcp-train bf16": narrow})
    print(f"furthest apart in fp32: loss of a step {furthest(ours, theirs, 'loss'):.2e}, "
          f"learning rate {furthest(ours, theirs, 'lr'):.0e}; "
          f"bf16's validation {furthest(narrow, theirs, 'eval_loss'):.2e}")
    first = abs(ours[0]["loss"] / theirs[0]["loss"] - 1)
    off = furthest(ours, theirs, "eval_loss")
    return all([judge(f"first loss within {FIRST_LOSS}", f"{first:.1e}", first <= FIRST_LOSS),
                judge(f"validation loss within {TARGET}", f"{off:.1e}", off <= TARGET)])
