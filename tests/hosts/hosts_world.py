#!/usr/bin/env python3
"""One rank less would be a world that the store refuses, because one host would hold two of the three ranks of a
partner's copies: the run continues with the next number and distribution of ranks that the store accepts."""
import os, signal
from hosts_train import LOCAL, Supervised, cases, check_clear, host_file, private, ranks_at
from train_lib import check, config, make_text, metrics, steps

LAST = 12


def run_with_a_killed_rank(name, least):
    """Runs 4 ranks on two hosts, one of which is killed after step 3. Returns dcp-run's output."""
    make_text()
    cluster = host_file("h1 slots=2", "h2 slots=2")
    path = config(max_steps=LAST, checkpoint={"dir": name, "every": 4, "stores": private(name, "partner")})
    run = Supervised(name, ["-n", 4, "--hosts", cluster, "--on-failure", "shrink", "--min", least], path)
    run.at_step(3, "metrics.jsonl")
    os.kill(ranks_at("h2")[0], signal.SIGKILL)
    return run.ends()


def test_goes_on_with_the_next_number_of_ranks():
    text = run_with_a_killed_rank("ckpt", 2)
    check("the ranks refuse the number 3 on these hosts (see their messages); next: 2 ranks, spread evenly" in text,
          text)
    check(steps()[-1] == LAST and [line["step"] for line in metrics()] == list(range(1, LAST + 1)), text)
    check(text.count(f"steps in {LOCAL}/ckpt survive the loss of any 1 host") == 2, text)  # both worlds report it
    check({line["ranks"] for line in metrics()} == {4, 2} and "which no restart would change" not in text, text)
    check_clear()


def test_goes_on_with_the_slot_whose_rank_died_if_no_number_is_left():
    text = run_with_a_killed_rank("none", 3)
    check("next: 4 ranks, with the slots whose ranks died" in text, text)
    check([line["step"] for line in metrics()] == list(range(1, LAST + 1)), text)
    check_clear()


cases.main()
