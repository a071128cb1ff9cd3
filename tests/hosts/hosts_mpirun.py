#!/usr/bin/env python3
"""Three hosts under mpirun alone: they save and load by a store that they share, and by private ones,
with the bits of a run on one host. A host that comes up with empty memory gets its files again."""
from hosts_train import *

over = {"scheduler": {"type": "constant", "params": {}}}  # the same, whatever the last step is
train(1, config("whole.json", checkpoint={"dir": "whole"}, metrics="whole.jsonl", **over))
reference = state(12, "whole"), losses("whole.jsonl")
for name, redundancy, lost, ranks in (("shared", None, (), 4), ("partner", "partner", ("h2",), 4),
                                      ("rs", "rs(2)", ("h2", "h3"), 3)):
    path = config(checkpoint={"dir": name, "every": 2 if redundancy is None else 12,
                              "stores": private(name, redundancy) if redundancy else []},
                  metrics=f"{name}.jsonl", **over)
    mpirun(3, path, "max_steps=6")
    for host in lost:
        hosts.kill(host)
        hosts.boot(host)
    text = mpirun(ranks, path)
    origin = f"step 6 is loaded from {LOCAL}/{name}, after {2 * len(lost)} of its files were rebuilt"
    check((origin if lost else "going on from step 6: shared/step-00000006") in text, text)
    check((state(12, name), losses(f"{name}.jsonl")) == reference, f"{name}: another result")
