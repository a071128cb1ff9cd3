#!/usr/bin/env python3
"""A host with rank 0 loses its network. The agent ends the ranks there before the run continues on other hosts, so
the lost ranks publish nothing more. The host may come back later."""
import os, re
from hosts_train import Supervised, cases, check_clear, host_file, hosts, ranks_at, restarts
from train_lib import check, config, losses, make_text, state, step_path, steps, train

LAST = 16


def test_ranks_that_are_cut_off_end_before_the_run_goes_on():
    make_text()
    over = {"max_steps": LAST, "checkpoint": {"dir": "ckpt", "every": 1, "keep": 0}}
    train(1, config("whole.json", **{**over, "checkpoint": {"dir": "whole", "every": 1, "keep": 0}}, metrics="whole.jsonl"))
    # h1 runs only dcp-run. The shared directory does not depend on the network, so h2 could write to it.
    cluster = host_file("h2 slots=1", "h3 slots=1")
    run = Supervised("cut", ["-n", 2, "--hosts", cluster, "--on-failure", "shrink"], config(**over))
    run.at_step(6, "metrics.jsonl")
    hosts.cut("h2")
    run.wait_for(lambda: not ranks_at("h2"), "the end of the ranks that are cut off")
    seen = {step: os.stat(step_path(step)).st_ino for step in steps()}
    check(not restarts(run.text()), f"the run went on before: {run.text()}")
    run.wait_for(lambda: restarts(run.text()), "a restart")
    hosts.join("h2")
    text = run.ends()
    print(text)
    check_clear()
    # dcp-run waits for the lease of 4 s only once: it has sent nothing to the host since the host fell
    # silent.
    noticed, ended = (float(re.search(rf"{word} ([0-9.]+)", text)[1]) for word in ("noticed", "ended"))
    check(noticed >= 4 and ended < 3, f"noticed after {noticed} s, ended after {ended} s more")
    for step, inode in seen.items():
        check(os.stat(step_path(step)).st_ino == inode, f"step {step} was published again")
    for step in range(1, LAST + 1):
        check(state(step) == state(step, "whole"), f"step {step} differs")
    check(losses() == losses("whole.jsonl"), "other losses")


cases.main()
