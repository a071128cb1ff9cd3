#!/usr/bin/env python3
"""Three hosts under mpirun alone: they save and load by a store that they share, and by private ones,
with the bits of a run on one host. A host that comes up with empty memory gets its files again."""
from hosts_train import *

over = {"scheduler": {"type": "constant", "params": {}}}  # the same, whatever the last step is
train(1, config("whole.json", max_steps=6, checkpoint={"dir": "whole"}, metrics="whole.jsonl", **over))
reference = state(6, "whole"), losses("whole.jsonl")
for name, redundancy, lost, ranks in (("shared", None, (), 4), ("partner", "partner", ("h2",), 4),
                                      ("rs", "rs(2)", ("h2", "h3"), 3)):
    path = config(checkpoint={"dir": name, "every": 2 if redundancy is None else 6,
                              "stores": private(name, redundancy) if redundancy else []},
                  metrics=f"{name}.jsonl", **over)
    mpirun(3, path, "max_steps=3")
    for host in lost:
        hosts.kill(host)
        hosts.boot(host)
    text = mpirun(ranks, path, "max_steps=6")
    origin = f"step 3 is loaded from {LOCAL}/{name}, after {2 * len(lost)} of its files were rebuilt"
    check((origin if lost else "going on from step 3: shared/step-00000003") in text, text)
    check((state(6, name), losses(f"{name}.jsonl")) == reference, f"{name}: another result")
