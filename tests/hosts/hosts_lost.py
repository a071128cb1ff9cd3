#!/usr/bin/env python3
"""Hosts that lose their power under dcp-run: the run goes on from the memory of the others, without a
file of the shared directory, with the bits of an undisturbed run. One is left out (partner, shrink);
two come up again, with empty memory (rs(2), same)."""
from hosts_train import *

LAST = 24
train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
reference = state(LAST, "whole"), losses("whole.jsonl")
cluster = host_file(*(f"{name} slots=1" for name in hosts.names))


def loses(name, redundancy, mode, lost, boots, left):
    path = config(f"{name}.json", max_steps=LAST, metrics=f"{name}.jsonl",
                  checkpoint={"dir": name, "every": LAST, "stores": private(name, redundancy)})
    run = Supervised(name, ["-n", 3, "--hosts", cluster, "--on-failure", mode], path)
    run.at_step(6, f"{name}.jsonl")
    for host in lost:
        hosts.kill(host)
    for host in boots:
        hosts.boot(host)
    run.wait_for(lambda: restarts(run.text()), "a restart")
    check(steps(name) == [], f"{name}: the shared directory has steps {steps(name)}")
    for host in hosts.names:
        check(bool(ranks_at(host)) == (host in left), f"{name}: {host} has {ranks_at(host)}")
    text = run.ends()
    print(text)
    (step, origin, again), = restarts(text)
    check(f"{LOCAL}/{name}" in origin and "rebuilt" in origin, f"{name}: from {origin}")
    check(again <= 1, f"{name}: {again} steps computed twice")
    check((state(LAST, name), losses(f"{name}.jsonl")) == reference, f"{name}: another result")


loses("partner", "partner", "shrink", ["h2"], [], ["h1", "h3"])
hosts.boot("h2")
loses("rs", "rs(2)", "same", ["h2", "h3"], ["h2", "h3"], ["h1", "h2", "h3"])
