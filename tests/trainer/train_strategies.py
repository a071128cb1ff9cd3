#!/usr/bin/env python3
"""Every strategy gives the same losses, norms and state.h5, on any number of ranks: stages of ZeRO,
groups of replicas, units by size, gathers ahead, and gradients added up before they are sent. What a
rank holds and sends is what the theory says."""
from train_lib import *

LEAVES, STEPS = 7, 2
small = {**MODEL, "hidden_size": 32, "intermediate_size": 48, "vocab_size": 256}
small["num_hidden_layers"] = 4
make_text()


def run(name, ranks, stage=3, steps=STEPS, ring=False, batch=LEAVES, **fsdp):
    err = train(ranks, config(
        model=small, data={"sequence_length": 16}, max_steps=steps, train_batch_size=batch,
        train_micro_batch_size_per_gpu=1, scheduler={"type": "constant", "params": {}},
        zero_optimization={"stage": stage, "ring": ring}, fsdp=fsdp, metrics=f"{name}.jsonl",
        checkpoint={"dir": name, "keep": 1}))[1]
    return losses(f"{name}.jsonl"), state(steps, name), err


reference = run("reference", 1)
for i, (ranks, options) in enumerate((
        (2, dict(stage=0)),
        (3, dict(stage=0, prefetch=0)),
        (3, dict(stage=1, wrap_policy="size", min_num_params=20000)),
        (4, dict(stage=1, replicas=2)),
        (3, dict(stage=2, prefetch=2)),
        (4, dict(replicas=2, accumulate="local", prefetch=9)),
        (4, dict(replicas=4, wrap_policy="size", min_num_params=10**8)),
        (2, dict(reshard_after_forward=False, wrap_policy="size", min_num_params=1)))):
    found = run(f"way{i}", ranks, **options)
    check(found[0] == reference[0], f"losses, {ranks} ranks, {options}: {found[0]}")
    check(found[1] == reference[1], f"state.h5 differs, {ranks} ranks, {options}")

# The ring may give other bits, and says so.
found = run("ring", 3, ring=True)
near = [abs(a["loss"] - b["loss"]) for a, b in zip(metrics("ring.jsonl"), metrics("reference.jsonl"))]
check(len(near) == STEPS and max(near) < 1e-4, f"losses by the ring: {near}")
shown = subprocess.run([f"{BIN}/dcp-train", "config.json", "--print-config"], capture_output=True,
                       text=True)
check("number of ranks" in shown.stderr and json.loads(shown.stdout), shown.stderr)

# Ranks that do not form as many groups, and groups where every rank holds all.
for over, why in (({"fsdp": {"replicas": 2}}, "2 does not divide the number of ranks, 1"),
                  ({"fsdp": {"replicas": 2}, "zero_optimization": {"stage": 0}}, "stage 0")):
    check(why in train(1, config(**over), expect=2)[1], f"{over}: not told {why}")

# 2 million parameters, 8 MB in fp32: 32 MB a rank in plain data parallelism, 8 MB fully sharded over
# 4 ranks, which sends the parameters twice and the gradients once, but a rank's own part.
small = {**MODEL, "vocab_size": 256, "hidden_size": 256, "intermediate_size": 372, "head_dim": 64,
         "num_hidden_layers": 4}
layer = 256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 372 + 2 * 256 + 2 * 64
P = 4 * layer + 257 * 256
for stage, bytes_a_param in ((0, 16), (3, 4)):
    found = run(f"stage{stage}", 4, stage=stage, steps=1, batch=4)
    reference = found if stage == 0 else reference
    line = metrics(f"stage{stage}.jsonl")[0]
    print(f"stage {stage}: {P} parameters, {line['state_bytes']} bytes held, "
          f"{line['sent_bytes']} sent, {line['mem_peak_bytes']} at most")
    check(P * bytes_a_param <= line["state_bytes"] <= 1.01 * P * bytes_a_param, line)
    check(line["sent_bytes"] <= 1.02 * 4 * 3 * P * 3 / 4, line)
    check(line["sent_bytes"] >= 4 * 2 * P * 3 / 4, line)
    check(found[:2] == reference[:2], "stages 0 and 3 differ")
