#!/usr/bin/env python3
"""The trainer with its state on a device, whose memory (of the stand-in) only its kernels can touch: losses and state.h5
are those of the CPU, on 1, 2 and 4 ranks, in every strategy and with parameters and moments in the host's memory; a
checkpoint moves from one to the other. `device: cuda` is refused if there is no device."""
import os
import train_lib
from recordings import make_recordings
from train_lib import cases, check, config, make_text, messages, metrics, SOURCE, state, train

PLAIN, FENCED = train_lib.TRAINER, os.environ["FENCED_TRAINER"]
SHORT = dict(max_steps=3, train_batch_size=6, data={"sequence_length": 32})


def run(name, ranks, device, **over):
    train_lib.TRAINER = FENCED if device == "cuda" else PLAIN
    out = {**SHORT, "checkpoint": {"dir": name}, "metrics": f"{name}.jsonl", "device": device, **over}
    for group in "data", "checkpoint":
        out[group] = {**{**SHORT, "checkpoint": {"dir": name}}[group], **over.get(group, {})}
    _, err = train(ranks, config(f"{name}.json", **out))
    return err


def compare(what, ways, **over):
    """Compares one rank's CPU with the device; ways are pairs of ranks and options, which change no bit."""
    run(f"{what}-cpu", 1, "cpu", **over)
    for i, (ranks, more) in enumerate(ways):
        alike(f"{what}-{i}", f"{what}-cpu", ranks, **{**over, **more})


def alike(name, other, ranks, **over):
    run(name, ranks, "cuda", **over)
    check(metrics_alike(name, other), f"{name}: other losses on {ranks} ranks with {over}")
    check(state(3, name) == state(3, other), f"{name}: another state on {ranks} ranks with {over}")


def metrics_alike(a, b):
    keys = "step", "loss", "grad_norm", "losses", "eval_loss", "eval_losses", "eval_accuracy"
    pick = lambda path: [{k: line.get(k) for k in keys} for line in metrics(f"{path}.jsonl")]
    return pick(a) == pick(b)


OFFLOAD = {"cpu_offload": True}
zero = lambda stage: {"zero_optimization": {"stage": stage}}


def test_fp32_in_every_strategy():
    make_text()
    compare("fp32", [(1, {"fsdp": {**OFFLOAD, "activation_checkpointing": True}}),
                     (2, {"fsdp": {"activation_checkpointing": True}}),
                     (4, {"fsdp": {**OFFLOAD, "prefetch": 2}}),
                     (4, {**zero(2), "fsdp": {"replicas": 2}}),
                     (2, zero(1)),
                     (2, {**zero(0), "fsdp": OFFLOAD}),
                     (2, {"fsdp": {"wrap_policy": "size", "min_num_params": 60000, "reshard_after_forward": False}})])


def test_bf16_with_frozen_parameters():
    make_text()
    compare("bf16", [(1, {"fsdp": OFFLOAD}), (2, {})], bf16={"enabled": True}, frozen=["*layers.0*"])


def test_the_ring():
    make_text()
    ring = {"zero_optimization": {"stage": 3, "ring": True}}
    run("ring-cpu", 2, "cpu", **ring)
    alike("ring", "ring-cpu", 2, **ring)


def test_a_classifier():
    make_text()
    # The evaluation of this model uses the logits.
    vit = f"{SOURCE}/tests/data/golden/vit"
    compare("vit", [(2, {})], model=vit, init=vit, train_batch_size=4, train_micro_batch_size_per_gpu=2,
            data={"type": "safetensors", "path": f"{vit}/golden.safetensors", "sequence_length": 32,
                  "eval_path": f"{vit}/golden.safetensors"}, eval_every=1)


def test_a_talker():
    # It has two decoders, two losses, and tables that both use.
    make_recordings("recordings.safetensors", 12)
    for what, bf16 in ("talker", False), ("talker-bf16", True):
        with cases.part(f"{what}"):
            compare(what, [(2, {"fsdp": {"activation_checkpointing": True}})], bf16={"enabled": bf16},
                    model=f"{SOURCE}/tests/data/golden/talker/config.json", eval_every=1,
                    data={"type": "speech", "path": "recordings.safetensors", "eval_path": "recordings.safetensors",
                          "frames": 9})


def test_a_run_moves_between_the_cpu_and_the_device():
    make_text()
    run("moved", 2, "cpu", max_steps=1)
    run("moved", 1, "cuda", max_steps=2, fsdp=OFFLOAD)
    run("moved", 2, "cuda", max_steps=3)
    err = run("moved", 2, "cpu", max_steps=4)
    check("continuing from step 3" in err, f"no resume: {err}")
    run("stayed", 1, "cpu", max_steps=4)
    check(state(4, "moved") == state(4, "stayed"), "another state after moves between devices")


def test_without_a_device_cuda_is_refused():
    make_text()
    train_lib.TRAINER = PLAIN
    if "oneDNN" in run("auto", 1, "auto", max_steps=1):  # auto has found no device
        _, err = train(1, config("config.json", device="cuda", checkpoint={"dir": "none"}), expect=2)
        said = messages(err)[-1]
        check("device: cuda: " in said and "device=cpu" in said, f"says: {said}")
        _, err = train(1, config("config.json", device="auto", fsdp=OFFLOAD, checkpoint={"dir": "none"}), expect=2)
        check("fsdp.cpu_offload: on the CPU" in messages(err)[-1], f"offload: {err}")
    _, err = train(1, config("config.json", device="cpu", checkpoint={"dir": "none", "engine": "cufile"}), expect=2)
    check("cufile was removed" in messages(err)[-1], f"engine: {err}")


def test_offload_to_a_file_is_refused_on_a_device():
    make_text()
    train_lib.TRAINER = FENCED
    _, err = train(1, config("config.json", device="cuda", checkpoint={"dir": "none"},
                             fsdp={"cpu_offload": True, "offload_path": "."}), expect=2)
    check("fsdp.offload_path: not possible with device cuda" in messages(err)[-1], f"offload: {err}")


cases.main()
