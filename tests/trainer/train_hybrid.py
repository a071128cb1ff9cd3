#!/usr/bin/env python3
"""Hybrid sharding: losses, norms and state.h5 are those of one rank on meshes of 2x2, 2x3, 2x4 and 4x2 (groups x ranks per
group), and on the stand-in for a GPU, where transfers go through the host. Traffic between groups is as planned: with one
sum per group over its micro-batches, it is a shard's bytes twice, without a rank's own piece, for any number of
micro-batches, while a reduction over all ranks sends whole gradients."""
import os, re
import train_lib
from train_lib import cases, check, config, losses, make_text, metrics, MODEL, state, tool, train

PLAIN, FENCED = train_lib.TRAINER, os.environ["FENCED_TRAINER"]
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
    """Returns the planned MiB sent to other groups, for the configuration of the last run."""
    text = tool("dcp-train", "config.json", "--plan", "--ranks", ranks)
    return float(re.search(r"to other groups +([0-9.]+)", text)[1])


def alike(name, ranks, groups, one, leaves=16, **more):
    line = run(name, ranks, groups, leaves, **more)
    what = f"{groups} groups of {ranks // groups} ranks, {leaves} micro-batches, {more}"
    check(losses(f"{name}.jsonl") == losses(f"{one}.jsonl"), f"{what}: other losses")
    check(state(2, name) == state(2, one), f"{what}: state.h5 differs")
    if "device" not in more:
        check(abs(line["sent_across_bytes"] / MIB - planned(ranks)) < 0.006,
              f"{what}: {line}, {planned(ranks)} planned")
    return line


@cases.shared
def one():
    make_text()
    run("one", 1)


@cases.shared
def seven():
    make_text()
    run("seven", 1, leaves=7)


@cases.shared
def twelve():
    make_text()
    run("twelve", 1, leaves=12)


def test_meshes_send_shards_between_groups():
    cases.use(one)
    gradients = 4 * int(re.match(r"(\d+) parameters", tool("dcp-train", "config.json", "--plan", "--ranks", 1))[1])
    for ranks, groups in (4, 2), (8, 2), (8, 4):
        with cases.part(f"{ranks} ranks, {groups} groups"):
            line = alike(f"at-{ranks}-{groups}", ranks, groups, "one")
            shard = gradients * groups / ranks
            check(1 <= line["sent_across_bytes"] / (shard * (groups - 1) / groups * 2) < 1.4, # shards are padded
                  f"{groups} groups of {ranks // groups}: {line['sent_across_bytes']} bytes of shards of {shard}")


def test_a_mesh_of_six():
    cases.use(twelve)
    alike("six", 6, 2, "twelve", leaves=12)


def test_uneven_shares_of_micro_batches():
    cases.use(seven)
    alike("uneven", 6, 2, "seven", leaves=7)
    alike("few", 8, 2, "seven", leaves=7, accumulate="local")


def test_gathered_units_that_stay():
    cases.use(one)
    alike("in-place", 4, 2, "one", reshard_after_forward=False, shared_memory=False)


def test_a_mesh_of_devices():
    cases.use(one)
    alike("device", 4, 2, "one", device="cuda")


def test_a_mesh_of_six_devices():
    cases.use(twelve)
    alike("device-six", 6, 2, "twelve", leaves=12, device="cuda")


cases.main()
