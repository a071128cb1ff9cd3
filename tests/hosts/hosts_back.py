#!/usr/bin/env python3
"""A host loses its power, and the run continues without it from the memory of the others (partner), without
reading the shared directory. A changed host file is a change of the cluster: the run uses the host again once
the file names it again, and computes no step twice for that."""
import os, signal
from hosts_train import LOCAL, Supervised, cases, host_file, hosts, private, ranks_at, restarts
from train_lib import check, config, losses, make_text, state, steps, train

LAST = 120  # the run must not end before its ranks are stopped


def test_a_host_comes_back_once_the_file_names_it_anew():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
    path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": LAST, "stores": private("ckpt", "partner")})
    run = Supervised("back", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink"], path)
    run.at_step(5, "metrics.jsonl")
    hosts.kill("h3")
    run.wait_for(lambda: len(restarts(run.text())) == 1, "a restart without h3")
    left = [*ranks_at("h1"), *ranks_at("h2")]
    for pid in left:  # the ranks wait for the host
        os.kill(pid, signal.SIGSTOP)
    hosts.boot("h3")
    check(len(ranks_at("h1")) == len(ranks_at("h2")) == 1, f"{hosts.pids('h1')}, {hosts.pids('h2')}")
    host_file("# h3 is repaired", *(f"{name} slots=1" for name in hosts.names))
    run.wait_for(lambda: "the hosts have changed" in run.text(), "a look at the changed file")
    for pid in left:
        os.kill(pid, signal.SIGCONT)
    run.wait_for(lambda: len(restarts(run.text())) == 2, "a restart with h3")
    check(len(ranks_at("h3")) == 1, f"h3 has {ranks_at('h3')}")
    check(steps() == [], f"the shared directory has steps {steps()}")
    text = run.ends()
    print(text)
    (step, lost, again), (_, back, planned) = restarts(text)
    check(lost == f"{LOCAL}/ckpt, 2 files rebuilt" and again <= 2, f"{again} steps from {lost}")
    check(step + again >= 5, f"{again} steps again from {step}, though 5 were done")
    check(back == f"{LOCAL}/ckpt" and planned == 0, f"{planned} steps from {back}")
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")


cases.main()
