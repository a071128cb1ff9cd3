#!/usr/bin/env python3
"""Compares dcp-train's bf16 with transformers' on the golden models of all families; run by hand:

    peer_bf16.py BUILD [--batches 4]

BUILD is a build folder; Python needs torch, transformers, safetensors and h5py. The golden batch and random batches of
its shape go through each model in fp64, which counts as the truth, in fp32, in bf16 by autocast, with the whole model
in bf16, and through dcp-train on 2 ranks in fp32 and in bf16. Prints the distances of losses and gradients from the
truth: for losses the mean over the batches, for gradients the root mean square over all parameters, and the tensor that
is worst compared with autocast. Exit status 1 if dcp-train in bf16 is further from the truth than autocast's distance
times 1.1 in the gradients, or times 2 in a tensor or in the losses (these are few numbers, so chance counts); or if its
distance is less than ten times that of fp32, since then it does not compute in bf16."""
import argparse, json, pathlib, shutil, tempfile

import h5py, torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageClassification

from peer_parity import is_key_bias, run, tensors_as_saved

GOLDEN = pathlib.Path(__file__).resolve().parents[1] / "data/golden"
WAYS = ("fp32", "autocast", "bfloat16", "dcp-train fp32", "dcp-train bf16")
GRADIENTS, TENSOR, LOSS = 1.1, 2.0, 2.0  # multiples of autocast's distance


def batches(family, n):
    golden = load_file(f"{GOLDEN}/{family}/golden.safetensors")
    first = {k: golden[k] for k in ("input_ids", "pixel_values", "labels") if k in golden}
    yield first
    for seed in range(1, n):
        torch.manual_seed(seed)
        if "input_ids" in first:
            ids = torch.randint(int(first["input_ids"].max()) + 1, first["input_ids"].shape)
            yield {"input_ids": ids, "labels": ids.clone()}
        else:
            labels = torch.randint(int(first["labels"].max()) + 1, first["labels"].shape)
            yield {"pixel_values": torch.randn_like(first["pixel_values"]), "labels": labels}


def peer(family, batch, way):
    """Returns the loss, and the gradients by their names in files."""
    kind = AutoModelForImageClassification if family == "vit" else AutoModelForCausalLM
    dtype = {"fp64": torch.float64, "bfloat16": torch.bfloat16}.get(way, torch.float32)
    model = kind.from_pretrained(f"{GOLDEN}/{family}", dtype=dtype)
    batch = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    with torch.autocast("cpu", torch.bfloat16, enabled=way == "autocast"):
        loss = model(**batch).loss
    loss.backward()
    return loss.item(), tensors_as_saved(model, {n: p.grad for n, p in model.named_parameters()}, "")


def ours(build, family, batch, narrow, folder):
    save_file(batch, f"{folder}/batch.safetensors")
    rows = len(batch["labels"])
    sequence = batch["input_ids"].shape[1] if "input_ids" in batch else None
    config = {"model": f"{GOLDEN}/{family}", "init": f"{GOLDEN}/{family}", "max_steps": 1,
              "data": {"type": "safetensors", "path": f"{folder}/batch.safetensors", "sequence_length": sequence},
              "train_batch_size": rows, "train_micro_batch_size_per_gpu": rows // 2,
              "gradient_clipping": 0.0, "bf16": {"enabled": narrow}, "metrics": f"{folder}/metrics.jsonl",
              "checkpoint": {"dir": f"{folder}/ckpt"}}
    with open(f"{folder}/train.json", "w") as f:
        json.dump(config, f)
    run("mpirun", "--oversubscribe", "-n", 2, build / "bin/dcp-train", f"{folder}/train.json")
    loss = json.loads(open(f"{folder}/metrics.jsonl").readline())["loss"]
    with h5py.File(f"{folder}/ckpt/step-00000001/state.h5") as f:
        first = f["optimizer/exp_avg"]  # (1 - beta1) times the gradient after one step
        grads = {name: torch.tensor(first[name][:]) / 0.1 for name in first}
    shutil.rmtree(f"{folder}/ckpt")
    return loss, grads


def squares(found, truth):
    """Returns the squared distance from the truth, and the square of the truth, for each tensor."""
    out = {}
    for name, t in truth.items():
        noise = is_key_bias(name, t)
        d = (found[name].double() - t.double()).masked_fill(noise, 0)
        out[name] = torch.stack([d.square().sum(), t.double().masked_fill(noise, 0).square().sum()])
    return out


def check(build, family, n, folder):
    losses, sums = {way: 0.0 for way in WAYS}, {way: {} for way in WAYS}
    for batch in batches(family, n):
        exact_loss, exact = peer(family, batch, "fp64")
        for way in WAYS:
            loss, grads = (ours(build, family, batch, way.endswith("bf16"), folder)
                           if way.startswith("dcp") else peer(family, batch, way))
            losses[way] += abs(loss / exact_loss - 1) / n
            for name, pair in squares(grads, exact).items():
                sums[way][name] = sums[way].get(name, 0) + pair
    totals = {way: sum(sums[way].values()) for way in WAYS}
    off = {way: (far / all_of_it).sqrt().item() for way, (far, all_of_it) in totals.items()}
    a, b = sums["autocast"], sums["dcp-train bf16"]
    ratios = {name: (b[name][0] / a[name][0]).sqrt().item() for name in a if a[name][0] > 0}
    worst = max(ratios, key=ratios.get)
    for way in WAYS:
        print(f"{family:7}{way:16}{losses[way]:10.1e}{off[way]:12.1e}", flush=True)
    gradients, loss = (of["dcp-train bf16"] / of["autocast"] for of in (off, losses))
    ok = (gradients <= GRADIENTS and ratios[worst] <= TENSOR and loss <= LOSS
          and off["dcp-train bf16"] > 10 * off["dcp-train fp32"])
    print(f"{family}: times autocast's distance: gradients {gradients:.2f}, {worst} {ratios[worst]:.2f}, "
          f"losses {loss:.2f}: {'ok' if ok else 'MISSED'}", flush=True)
    return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--batches", type=int, default=4)
    a = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':23}{'loss off':>10}{'gradients':>12}")
    with tempfile.TemporaryDirectory(prefix="peer.") as folder:
        results = [check(a.build, family, a.batches, folder) for family in ("gpt2", "llama", "qwen3", "vit")]
    raise SystemExit(not all(results))


main()
