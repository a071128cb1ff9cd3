#!/usr/bin/env python3
"""Two of three hosts lose their power under dcp-run, and boot again with empty memory: the run continues from the
memory of the third host (rs(2)), without a file of the shared directory."""
from hosts_train import LOCAL, Supervised, cases, host_file, hosts, private, ranks_at, restarts
from train_lib import check, config, losses, make_text, state, steps, train

LAST = 16


def test_two_of_three_hosts_are_lost():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
    path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": LAST, "stores": private("ckpt", "rs(2)")})
    run = Supervised("lost", ["-n", 3, "--hosts", cluster], path)
    run.at_step(5, "metrics.jsonl")
    for name in ("h2", "h3"):
        hosts.kill(name)
    for name in ("h2", "h3"):
        hosts.boot(name)
    run.wait_for(lambda: restarts(run.text()), "a restart")
    check(steps() == [], f"the shared directory has steps {steps()}")
    for name in hosts.names:
        check(len(ranks_at(name)) == 1, f"{name} has {ranks_at(name)}")
    text = run.ends()
    print(text)
    (step, origin, again), = restarts(text)
    check(origin == f"{LOCAL}/ckpt, 4 files rebuilt" and again <= 2, f"{again} steps from {origin}")
    check(step + again >= 5, f"{again} steps again from {step}, though 5 were done")
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")


cases.main()
