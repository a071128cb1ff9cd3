#!/usr/bin/env python3
"""A changed host file is a changed cluster: a run of two hosts, one of which was lost before, takes the
third one when the file names it; without losing a step, from memory."""
from hosts_train import *

LAST = 30
train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": LAST, "stores": private("ckpt", "partner")})
run = Supervised("back", ["-n", 3, "--hosts", cluster, "--on-failure", "shrink"], path)
run.at_step(5, "metrics.jsonl")
hosts.kill("h3")
run.wait_for(lambda: len(restarts(run.text())) == 1, "a restart without h3")
hosts.boot("h3")
host_file("# h3 is repaired", *(f"{name} slots=1" for name in hosts.names))
run.wait_for(lambda: len(restarts(run.text())) == 2, "a restart with h3")
check(len(ranks_at("h3")) == 1, f"h3 has {ranks_at('h3')}")
text = run.ends()
print(text)
(_, _, again), (_, origin, planned) = restarts(text)
check(again <= 1 and planned == 0, f"{again} and {planned} steps computed twice")
check(f"{LOCAL}/ckpt" in origin, f"from {origin}")
check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")
