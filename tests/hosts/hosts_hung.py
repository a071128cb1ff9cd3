#!/usr/bin/env python3
"""A rank on another host hangs: dcp-run gets the stacks from that host, and the run continues. Then the agent of
that host is killed, which counts as a lost host: the run continues as well, and no process is left on any host."""
import os, re, signal
from hosts_train import Supervised, cases, check_clear, host_file, hosts, ranks_at, restarts
from train_lib import check, config, losses, make_text, state, steps, train

LAST = 30


def test_a_hung_rank_and_a_killed_agent():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
    path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": 4})
    run = Supervised("hung", ["-n", 3, "--hosts", cluster, "--stall", 4], path)
    run.wait_for(lambda: 4 in steps(), "a step that is saved")
    os.kill(ranks_at("h2")[0], signal.SIGSTOP)
    run.wait_for(lambda: len(restarts(run.text())) == 1, "a restart")
    stacks = run.text().partition("dcp-run: stacks of the ranks on h2:\n")[2]
    check(re.match(r"== rank \d+, process \d+ \(dcp-train\) ==\n(thread .*\n)*thread \d+ \(dcp-train\), state T \(stopped\)", stacks),
          f"not stopped by {stacks}")
    agent, = (pid for pid, program in hosts.pids("h2").items() if program == "job-guard")
    os.kill(agent, signal.SIGKILL)
    run.wait_for(lambda: len(restarts(run.text())) == 2, "a second restart")
    check(len(ranks_at("h2")) == 1, f"h2 has {ranks_at('h2')}")
    run.ends()
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")
    check_clear()


cases.main()
