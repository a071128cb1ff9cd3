#!/usr/bin/env python3
"""The number of ranks, kills and changes of the number of ranks do not change losses and state."""
import os, random, signal
from train_lib import cases, check, config, losses, make_text, metrics, Run, state, step_path, train

on_device = "DCP_TEST_DEVICE" in os.environ
ways = [(ranks, False) for ranks in ((1, 2, 4) if on_device else (1, 2, 3, 4, 6, 8))]


@cases.shared
def on_any_ranks():
    make_text()
    reference = None
    for ranks, offload in ways + ([(1, True), (2, True)] if on_device else []):
        train(ranks, config(checkpoint={"dir": f"on{ranks}", "overwrite": offload, "resume": "never"},
                            metrics=f"on{ranks}.jsonl", fsdp={"prefetch": ranks % 2, "cpu_offload": offload}))
        found = losses(f"on{ranks}.jsonl"), state(12, f"on{ranks}")
        reference = reference or found
        check(len(found[0]) == 12, f"{len(found[0])} lines")
        check(found[0] == reference[0], f"losses on {ranks} ranks, offload {offload}: {found[0]} / {reference[0]}")
        check(found[1] == reference[1], f"state.h5 on {ranks} ranks differs, offload {offload}")
    check(metrics("on1.jsonl")[11]["loss"] < metrics("on1.jsonl")[0]["loss"] - 0.5, "nothing learned")
    return reference


def test_the_number_of_ranks_changes_nothing():
    on_any_ranks()


def test_kills_and_other_ranks_change_nothing():
    reference = cases.use(on_any_ranks)
    # A random rank is killed right after every third step, and another number of ranks continues.
    seed = random.randrange(1 << 30)
    random.seed(seed)
    print("seed", seed)
    worlds = (4, 2, 1, 4) if on_device else (4, 2, 5, 8)
    killed = 0
    for i, ranks in enumerate(worlds):
        run = Run(ranks, config(checkpoint={"dir": "killed"}, metrics="killed.jsonl"))
        stop = 3 * (i + 1)
        run.wait_for(lambda: run.pids(), f"{ranks} ranks")
        victim = random.choice(run.pids() or [0])
        saved = run.wait_for(lambda: os.path.isdir(step_path(stop, "killed")), f"step {stop}")
        if stop < 12 and saved and victim and run.process.poll() is None:
            os.kill(victim, signal.SIGKILL)
            killed += run.wait() != 0
        check(stop < 12 or run.wait() == 0, f"the last run fails: {run.text(run.err)}")
    check(killed >= 2, f"only {killed} of 3 runs were killed before their end")
    check(losses("killed.jsonl") == reference[0], f"losses after kills: {losses('killed.jsonl')}")
    check(state(12, "killed") == reference[1], "state.h5 after kills differs")


cases.main()
