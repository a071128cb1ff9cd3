#!/usr/bin/env python3
"""dcp-train agrees with transformers on any number of ranks: five steps on the golden batch give
its losses (1e-5), norms (5e-5) and parameters (4e-3 of a tensor's largest value), and the first
moments after one step its gradients (2e-5): model_golden.c tells why so far. All four families. On
another device than the CPU fewer of the same."""
from train_lib import *

RUNS = ((1, 1), (2, 1), (3, 1), (4, 1), (1, 4), (3, 2))
if "DCP_TEST_DEVICE" in os.environ:
    RUNS = ((1, 1), (2, 1), (1, 4))
if "DCP_TEST_RANKS" in os.environ:  # at most so many: a build without MPI has one
    RUNS = [run for run in RUNS if run[0] <= int(os.environ["DCP_TEST_RANKS"])]

for family in ("gpt2", "llama", "qwen3", "vit"):
    folder = f"{SOURCE}/tests/data/golden/{family}"
    golden = json.load(open(f"{folder}/golden.json"))
    optimizer = golden["optimizer"]
    params = {k: optimizer[k] for k in ("lr", "betas", "eps", "weight_decay")}
    reference = None
    for ranks, micro in RUNS:
        name = f"{family}{ranks}x{micro}"
        c = config(model=folder, init=folder, max_steps=5, train_batch_size=4,
                   data={"type": "safetensors", "path": f"{folder}/golden.safetensors",
                         "sequence_length": 32},
                   train_micro_batch_size_per_gpu=micro, gradient_clipping=golden["clip"],
                   optimizer={"params": params}, scheduler={"type": "constant", "params": {}},
                   checkpoint={"dir": name}, metrics=f"{name}.jsonl")
        train(ranks, c)
        for line, loss, norm in zip(metrics(f"{name}.jsonl"), golden["losses"],
                                    golden["grad_norms"], strict=True):
            check(abs(line["loss"] / loss - 1) < 1e-5, f"{name}: {line}, loss {loss}")
            check(abs(line["grad_norm"] / norm - 1) < 5e-5, f"{name}: {line}, norm {norm}")
        # exp_avg = (1 - beta1) * clip scale * gradient
        norm = metrics(f"{name}.jsonl")[0]["grad_norm"]
        scale = 1 / (0.1 * min(1, golden["clip"] / (norm + 1e-6)))
        for what, step in (("gradients", 1), ("parameters", 5)):
            print(name, tool(os.environ["TRAIN_COMPARE"], what, step_path(step, name),
                             f"{folder}/golden.safetensors", scale).strip())
        if micro == 1:
            reference = reference or state(5, name)
            check(state(5, name) == reference, f"{name}: state.h5 differs from one rank's")
