#!/usr/bin/env python3
"""A rank that is killed in training, saving or loading ends the run without a hang; published steps stay intact, and the
next run ends where an undisturbed one does. On a device (DCP_TEST_DEVICE) each of them once, on fewer ranks."""
import os, random, signal
from train_lib import (cases, check, config, losses, make_text, metrics, Run, state, step_path,
                       steps, tool, train)

random.seed()
SAVING, LOADING, TRAINING, LAST = (3, 4), (4, 3), 3, 5
if "DCP_TEST_DEVICE" in os.environ:
    most = int(os.environ.get("DCP_TEST_RANKS", 4))
    SAVING, LOADING, TRAINING, LAST = (min(2, most),), (most,), min(2, most), most


def lock_holder():
    try:
        return open("killed/.lock").read()
    except OSError:
        return ""


def check_steps():
    for step in steps("killed"):
        tool("dcp-inspect", "verify", step_path(step, "killed"))


def kill_when(ranks, what, condition):
    """Kills a random rank as soon as the condition holds. Returns true if the run was still at work."""
    run = Run(ranks, "config.json")
    run.wait_for(lambda: run.pids(), "its ranks")
    victim = random.choice(run.pids() or [0])
    run.wait_for(condition, what)
    if victim and run.process.poll() is None:
        os.kill(victim, signal.SIGKILL)
    status = run.wait()
    check_steps()
    print(f"{what}: exit {status}, steps {steps('killed')}")
    return status != 0


def test_a_killed_rank_does_no_damage():
    make_text()
    train(1, config(checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
    config(checkpoint={"dir": "killed"}, metrics="killed.jsonl")

    hits = 0
    for ranks in SAVING:
        partial = f"killed/.tmp-step-{max(steps('killed') + [0]) + 3:08d}"
        hits += kill_when(ranks, "saving", lambda: os.path.exists(partial))
    for ranks in LOADING:
        before = lock_holder()
        hits += kill_when(ranks, "loading", lambda: lock_holder() not in (before, ""))
    newest, before = max(steps("killed") + [0]), lock_holder()  # at the start, lines of lost steps may still exist
    hits += kill_when(TRAINING, "training",
                      lambda: lock_holder() not in (before, "") and os.path.exists("killed.jsonl")
                      and len(metrics("killed.jsonl")) > newest)
    tries = len(SAVING) + len(LOADING) + 1
    check(hits >= tries - 1, f"only {hits} runs of {tries} were killed at work")
    train(LAST, "config.json")
    check(state(12, "killed") == state(12, "whole"), "the state differs")
    check(losses("killed.jsonl") == losses("whole.jsonl"), "losses differ")


cases.main()
