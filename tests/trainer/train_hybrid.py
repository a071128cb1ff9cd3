#!/usr/bin/env python3
"""Hybrid sharding: losses, norms and state.h5 are those of one rank on meshes of 2x2, 2x3, 2x4 and 4x2
(groups x ranks of each), and on the stand-in for a GPU, where transfers go by way of the host. What goes to other
groups is as planned: with one sum of each group's micro-batches, a shard's bytes twice but for a rank's own
piece, whatever the number of micro-batches, where a reduction over all ranks sends whole gradients."""
import re, train_lib
from train_lib import *

PLAIN, FENCED = train_lib.TRAINER, os.environ["FENCED_TRAINER"]
make_text()
small = {**MODEL, "hidden_size": 32, "intermediate_size": 48, "vocab_size": 256, "num_hidden_layers": 2}
MIB = 1 << 20


def run(name, ranks, groups=1, leaves=16, device="cpu", **fsdp):
    train_lib.TRAINER = FENCED if device == "cuda" else PLAIN
    config(model=small, data={"sequence_length": 16}, max_steps=2, train_batch_size=leaves, device=device,
           train_micro_batch_size_per_gpu=1, fsdp={"replicas": groups, **fsdp}, checkpoint={"dir": name},
           metrics=f"{name}.jsonl")
    train(ranks, "config.json")
    return metrics(f"{name}.jsonl")[-1]


def planned(ranks):
    """MiB to other groups, by the configuration of the last run."""
    text = tool("dcp-train", "config.json", "--plan", "--ranks", ranks)
    return float(re.search(r"to other groups +([0-9.]+)", text)[1])


def alike(name, ranks, groups, one, leaves=16, **more):
    line = run(name, ranks, groups, leaves, **more)
    what = f"{groups} groups of {ranks // groups} ranks, {leaves} micro-batches, {more}"
    check(losses(f"{name}.jsonl") == losses(f"{one}.jsonl"), f"{what}: other losses")
    check(state(2, name) == state(2, one), f"{what}: state.h5 differs")
    if "device" not in more:
        check(abs(line["sent_across_bytes"] / MIB - planned(ranks)) < 0.006, f"{what}: {line}, {planned(ranks)} planned")
    return line


run("one", 1)
run("seven", 1, leaves=7)
run("twelve", 1, leaves=12)
gradients = 4 * int(re.match(r"(\d+) parameters", tool("dcp-train", "config.json", "--plan", "--ranks", 1))[1])
for ranks, groups in (4, 2), (8, 2), (8, 4):
    line = alike(f"at-{ranks}-{groups}", ranks, groups, "one")
    shard = gradients * groups / ranks
    check(1 <= line["sent_across_bytes"] / (shard * (groups - 1) / groups * 2) < 1.4, # shards are padded
          f"{groups} groups of {ranks // groups}: {line['sent_across_bytes']} bytes of shards of {shard}")
alike("six", 6, 2, "twelve", leaves=12)
alike("uneven", 6, 2, "seven", leaves=7)
alike("few", 8, 2, "seven", leaves=7, accumulate="local")
alike("in-place", 4, 2, "one", reshard_after_forward=False, shared_memory=False)
alike("device", 4, 2, "one", device="cuda")
alike("device-six", 6, 2, "twelve", leaves=12, device="cuda")
