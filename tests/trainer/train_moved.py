#!/usr/bin/env python3
"""A run moves from the CPU to a device and back, within rounding. A batch that does not fit into the device's memory is
refused with the plan's numbers and what is free, and saved steps stay as they are. DCP_TEST_DEVICE names the device;
FENCED_TRAINER names a trainer on the stand-in if there is none."""
import os
import train_lib
from train_lib import cases, check, config, make_text, messages, metrics, state, steps, train

PLAIN, device = train_lib.TRAINER, os.environ.get("DCP_TEST_DEVICE", "cuda")
ON_DEVICE = PLAIN if "DCP_TEST_DEVICE" in os.environ else os.environ["FENCED_TRAINER"]
RANKS = min(2, int(os.environ.get("DCP_TEST_RANKS", 2)))


def run(where, steps, path, expect=0, **over):
    train_lib.TRAINER = PLAIN if where == "cpu" else ON_DEVICE
    return train(RANKS, config(device=where, max_steps=steps, data={"sequence_length": 32}, checkpoint={"dir": path},
                               metrics=f"{path}.jsonl", **over), expect=expect)[1]


@cases.shared
def moved():
    make_text()
    run("cpu", 4, "stayed")
    for where, last in (("cpu", 1), (device, 2), ("cpu", 3), (device, 4)):
        err = run(where, last, "moved")
        check(last == 1 or f"continuing from step {last - 1}" in err, f"no resume on {where}: {err}")


def test_metrics_of_the_moved_run_are_those_of_the_cpu():
    cases.use(moved)
    for here, there in zip(metrics("moved.jsonl"), metrics("stayed.jsonl"), strict=True):
        for key in "loss", "grad_norm":
            check(abs(here[key] / there[key] - 1) < 1e-3, f"step {here['step']}: {key} {here[key]}, on the CPU {there[key]}")


def test_a_batch_without_room_is_refused():
    cases.use(moved)
    before = state(4, "moved")
    micro = 1 << 21  # its activations are some 470 GB on each rank
    said = messages(run(device, 5, "moved", expect=3, train_batch_size=micro, train_micro_batch_size_per_gpu=micro))[-1]
    for word in "out of memory", "need ", "are free", "activations":
        check(word in said, said)
    check(steps("moved")[-1] == 4 and state(4, "moved") == before, "the newest step is not what it was")


cases.main()
