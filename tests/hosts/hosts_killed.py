#!/usr/bin/env python3
"""A rank on another host is killed, and later all processes of a host, including the agent. Each time the host
still answers and takes part again, and the run continues from the shared directory. Meanwhile, dcp-run is
installed again."""
import os, re, shutil, signal
from hosts_train import Supervised, cases, check_clear, host_file, hosts, ranks_at, restarts
from train_lib import BIN, check, config, losses, make_text, state, train

LAST = 16


def test_a_killed_rank_and_all_processes_of_a_host():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    cluster = host_file("h3 slots=1", "h1 slots=1", "10.0.0.2 slots=1")  # in any order, and under any name
    shutil.copy(f"{BIN}/dcp-run", "dcp-run")
    run = Supervised("killed", ["-n", 3, "--hosts", cluster], config(max_steps=LAST), program=os.path.abspath("dcp-run"))
    run.at_step(5, "metrics.jsonl")
    shutil.copy(f"{BIN}/dcp-run", "dcp-run.new")
    os.rename("dcp-run.new", "dcp-run")
    os.kill(ranks_at("h2")[0], signal.SIGKILL)
    run.wait_for(lambda: len(restarts(run.text())) == 1, "a restart after a rank")
    for pid in hosts.pids("h3"):
        os.kill(pid, signal.SIGKILL)
    run.wait_for(lambda: len(restarts(run.text())) == 2, "a restart after a host")
    for name in hosts.names:
        check(len(ranks_at(name)) == 1, f"{name} has {ranks_at(name)}")
    text = run.ends()
    print(text)
    check(re.search(r"start 1 failed.*rank \d, pid \d+, on 10.0.0.2, ended first", text), text)
    check("host h3 is lost" in text, text)
    for step, origin, again in restarts(text):
        check(origin == "ckpt" and step >= 3 and again <= 2, f"{again} steps from {step} in {origin}")
    step, _, again = restarts(text)[0]
    check(step + again >= 5, f"{again} steps again from {step}, though 5 were done")
    check_clear()
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")


cases.main()
