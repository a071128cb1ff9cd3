"""A pretrained language model is fine-tuned on chats by dcp-train and by PyTorch, with the same records in the
same order; shows its answers before and after."""
import json
import os
import subprocess
import sys
import time

import numpy
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, get_cosine_with_min_lr_schedule_with_warmup

from . import chats
from .shared import ENV, RANKS, ROOT, judge, run, sample_numbers, split_parameters, tool, train

STEPS, BATCH, SEED, HELD_OUT = 30, 8, 3, 64
LR, WARM_UP, MIN_LR, DECAY, BETAS, CLIP = 1e-4, 3, 0.1, 0.1, (0.9, 0.95), 1.0
MOST_TOKENS = 129  # the length of a record; samples of 128 have one more token, which is only predicted
WARM = 2  # steps at the start whose time does not count
IGNORED = -100
TARGET = 0.01
FIRST_LOSS = 1e-4  # only rounding differs at the start: the order of samples and the model are the same


def fetch_model(folder):
    """Returns the model of real_model.py, which stays in folder. If it is not available, this ends as that script
    does."""
    script = os.path.join(ROOT, "tests/bench/real_model.py")
    done = subprocess.run([sys.executable, script, folder, "--folder-only"], stdout=subprocess.PIPE, text=True,
                          env=ENV | {"PEERS_VENV": sys.prefix})
    if done.returncode:
        print(done.stdout, end="")
        sys.exit(done.returncode)
    return done.stdout.splitlines()[-1]


def write_records(scratch, model):
    """Writes the records. Returns dcp-train's `data`, as the example's last line prints it."""
    path, records = (os.path.join(scratch, name) for name in ("chats.jsonl", "records.safetensors"))
    chats.write(path)
    said = run(sys.executable, os.path.join(ROOT, "examples/chat_to_records.py"), records, path, "--tokenizer", model,
               "--held-out", HELD_OUT, "--max-tokens", MOST_TOKENS)
    lines = said.splitlines()
    print(*(line for line in lines if " records, " in line), sep="\n", flush=True)
    return json.loads(f"{{{lines[-1]}}}")["data"]


def samples_of(path, sequence):
    """Returns ids and targets [records, sequence]: each token predicts the next one, which counts if its mask is
    1."""
    file = load_file(path)
    starts = file["starts"]
    ids = numpy.zeros((len(starts) - 1, sequence), numpy.int64)
    targets = numpy.full_like(ids, IGNORED)
    for i, (begin, end) in enumerate(zip(starts, starts[1:])):
        record, mask = (file[name][begin:end].astype(numpy.int64) for name in ("input_ids", "loss_mask"))
        ids[i, :len(record) - 1] = record[:-1]
        targets[i, :len(record) - 1] = numpy.where(mask[1:] == 1, record[1:], IGNORED)
    return torch.tensor(ids), torch.tensor(targets)


def loss_of(model, ids, targets, reduction="mean"):
    """Returns the loss over the tokens that count. The filling of a sample needs no mask: with causal attention,
    no earlier token attends to it."""
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED,
                                             reduction=reduction)


def evaluate(model, samples):
    with torch.no_grad():
        parts = zip(*(part.split(BATCH) for part in samples))
        return sum(loss_of(model, *part, "sum").item() for part in parts) / (samples[1] != IGNORED).sum().item()


def our_config(model, data):
    return {"model": model, "init": model, "seed": SEED, "max_steps": STEPS, "data": data,
            "train_batch_size": BATCH, "train_micro_batch_size_per_gpu": BATCH // RANKS, "gradient_clipping": CLIP,
            "optimizer": {"params": {"lr": LR, "betas": BETAS, "weight_decay": DECAY, "no_decay": ["*norm*"]}},
            "scheduler": {"type": "cosine", "params": {"warmup_steps": WARM_UP, "min_lr_ratio": MIN_LR}},
            "checkpoint": {"every": 0}}


def train_pytorch(folder, data):
    """Returns metrics like dcp-train's, one dict per step, and the held-out loss before the first step."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids, targets = samples_of(data["path"], data["sequence_length"])
    held_out = samples_of(data["eval_path"], data["sequence_length"])
    optimizer = torch.optim.AdamW(split_parameters(model, "norm", DECAY), lr=LR, betas=BETAS, fused=True)
    schedule = get_cosine_with_min_lr_schedule_with_warmup(optimizer, WARM_UP, STEPS, min_lr_rate=MIN_LR)
    before, lines = evaluate(model, held_out), []
    for step in range(1, STEPS + 1):
        start = time.perf_counter()
        schedule.step()  # before the update: the first step has 1/WARM_UP of the rate, as in dcp-train
        chosen = sample_numbers(step, BATCH, len(ids), SEED)
        loss = loss_of(model, ids[chosen], targets[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        lines.append({"loss": loss.item(), "step_s": time.perf_counter() - start})
    lines[-1]["eval_loss"] = evaluate(model, held_out)
    return lines, before


def sample(model, checkpoint):
    """Returns the continuation of the question, which is asked in the model's chat template."""
    asked = [{"role": "user", "content": chats.question(*chats.ASKED)}]
    text = AutoTokenizer.from_pretrained(model).apply_chat_template(asked, tokenize=False, add_generation_prompt=True)
    return run(sys.executable, os.path.join(ROOT, "examples/sample.py"), checkpoint, text, "--tokens", 40).strip()


def fastest(lines):
    return min(line["step_s"] for line in lines[WARM:])


def print_table(before, runs):
    def row(name, *figures):
        print(f"{name:28}" + "".join(f"{figure:>18}" for figure in figures))

    row("", *runs)
    row("held-out loss before", *["" if name != "PyTorch fp32" else f"{before:.5f}" for name in runs])
    row(f"held-out loss after {STEPS} steps", *[f"{lines[-1]['eval_loss']:.5f}" for lines in runs.values()])
    row("fastest step", *[f"{fastest(lines):.2f} s" for lines in runs.values()])


def show(scratch, model=None):
    model = os.path.abspath(model or fetch_model(os.path.dirname(scratch)))
    data = write_records(scratch, model)
    tool("dcp-import", model, os.path.join(scratch, "before"))
    said = [sample(model, os.path.join(scratch, "before"))]
    config = our_config(model, data)
    ours = train(scratch, "fp32", config)
    narrow = train(scratch, "bf16", config, "bf16.enabled=true")
    said.append(sample(model, os.path.join(scratch, "fp32")))
    theirs, before = train_pytorch(model, data)
    print_table(before, {"dcp-train fp32": ours, "PyTorch fp32": theirs, "dcp-train bf16": narrow})
    print(f"dcp-train: {RANKS} ranks of at most {max(s['mem_peak_bytes'] for s in ours) / 1e9:.2f} GB in fp32, "
          f"{max(s['mem_peak_bytes'] for s in narrow) / 1e9:.2f} GB in bf16; PyTorch: one process of "
          f"{torch.get_num_threads()} threads")
    print(f"examples/sample.py, asked {chats.question(*chats.ASKED)!r}:")
    for when, text in zip(("before", "after"), said, strict=True):
        print(f"  {when + ':':8}{text!r}")
    first = abs(ours[0]["loss"] / theirs[0]["loss"] - 1)
    off = abs(ours[-1]["eval_loss"] / theirs[-1]["eval_loss"] - 1)
    return all([judge(f"first loss within {FIRST_LOSS}", f"{first:.1e}", first <= FIRST_LOSS),
                judge(f"held-out loss within {100 * TARGET:g} % of PyTorch's", f"{100 * off:.4f} %", off <= TARGET),
                judge("the held-out loss falls", f"{before:.4f} to {ours[-1]['eval_loss']:.4f}",
                      ours[-1]["eval_loss"] < before)])
