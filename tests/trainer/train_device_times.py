#!/usr/bin/env python3
"""On a device, its own clock times forward, backward and optimizer, and finds slow ranks: the stand-in's clock counts
1,000 s per product, while a request takes the host almost no time. Nobody waits for the clock: an update that has not
ended counts in the next line. The peak of the device's memory is reported, but not on a CPU."""
import os, re
import train_lib
from train_lib import cases, check, config, make_text, metrics, train

PLAIN, FENCED = train_lib.TRAINER, os.environ["FENCED_TRAINER"]
TICK = 1000


def run(name, ranks, device="cuda", steps=3, offload=False, **env):
    train_lib.TRAINER = FENCED if device == "cuda" else PLAIN
    config(device=device, max_steps=steps, train_batch_size=8, train_micro_batch_size_per_gpu=1, eval_every=2,
           fsdp={"cpu_offload": offload}, data={"sequence_length": 16, "eval_path": "short"}, metrics=f"{name}.jsonl",
           checkpoint={"dir": name, "every": 100})
    os.environ.update({"FENCED_TICK": str(TICK), **env})
    _, err = train(ranks, "config.json")
    for key in "FENCED_TICK", *env:
        del os.environ[key]
    return metrics(f"{name}.jsonl"), err


def ticks(lines, key):
    """Returns the number of ticks, which is the same in each step."""
    found = {line[key] for line in lines}
    check(len(found) == 1 and min(found) > 0 and min(found) % TICK == 0, f"{key}: {found}")
    return found.pop() / TICK


@cases.shared
def inputs():
    make_text()
    with open("text") as f, open("short", "w") as out:
        out.write(f.read()[:200])


@cases.shared
def two():
    cases.use(inputs)
    lines, err = run("two", 2, FENCED_REPORT="1")
    return lines, err


def test_phases_are_timed_by_the_device():
    lines, err = cases.use(two)
    forward, backward = ticks(lines, "forward_s"), ticks(lines, "backward_s")
    check(backward > forward, f"{backward} products backwards, {forward} forwards")
    check(lines[0]["optimizer_s"] == 0, f"the first update was waited for: {lines[0]}")
    ticks(lines[1:], "optimizer_s")
    check(all(line["imbalance"] == 1 for line in lines), lines)
    taken = max(int(n) for n in re.findall(r"fenced: at most (\d+) bytes", err))
    check({line["device_peak_bytes"] for line in lines} == {taken}, f"{taken} bytes were taken: {lines}")
    check(f"the device's memory of the largest rank peaked at {taken / 2**20:.1f} MiB" in err, err)
    rows = {name: float(s) for name, s in re.findall(r"(forward|backward) +([0-9.]+)", err)}
    check(rows["forward"] == 3 * forward * TICK, f"{rows}, of {forward} products a step")  # without evaluations


def test_one_rank_computes_twice_as_much():
    lines, _ = cases.use(two)
    forward = ticks(lines, "forward_s")
    one, _ = run("one", 1)
    check(ticks(one, "forward_s") == 2 * forward, "another number of products on one rank")


def test_an_offloaded_update_is_waited_for():
    cases.use(inputs)
    one, _ = run("offloaded", 1, offload=True)
    ticks(one, "optimizer_s")  # the host waits for the device


def test_a_slow_rank_is_named():
    lines, _ = cases.use(two)
    forward = ticks(lines, "forward_s")
    lines, err = run("slow", 2, steps=10, FENCED_SLOW="1")
    check(all(line["imbalance"] == 1.5 and line["slowest_rank"] == 1 for line in lines), lines)
    check("rank 1 is slow: over the last 10 steps it took 3.00 times" in err, err)
    check(ticks(lines, "forward_s") == forward, "not the times of rank 0")


def test_the_cpu_has_its_own_times():
    cases.use(inputs)
    lines, err = run("cpu", 2, device="cpu")
    check(all(0 < line["forward_s"] < TICK and "device_peak_bytes" not in line for line in lines), lines)
    check("the device's memory" not in err, err)


cases.main()
