#!/usr/bin/env python3
"""A run that saves a file a rank goes on from there on other numbers of ranks, in either layout, and
ends with the state of an undisturbed run."""
from train_lib import *

make_text()
constant = {"type": "constant", "params": {"warmup_steps": 0}}


def part(ranks, steps_to, directory, **checkpoint):
    train(ranks, config(max_steps=steps_to, scheduler=constant, metrics=f"{directory}.jsonl",
                        checkpoint={"dir": directory, **checkpoint}))


part(1, 6, "whole")
part(3, 2, "parts", layout="sharded", staging_mb=0)
names = sorted(os.listdir(step_path(2, "parts")))
check(names == ["about.json"] + [f"shard-0000{r}-of-00003.h5" for r in range(3)], names)
# dcp-reshard keeps what a resume compares
tool("dcp-reshard", "parts", "cut", "--layout", "global")
old, new = (json.load(open(step_path(2, d) + "/about.json")) for d in ("parts", "cut"))
check(new["tool"] == "dcp-reshard" and all(new[k] == old[k] for k in ("kernels", "processor")), new)

part(2, 4, "parts", layout="sharded", **{"async": False})
part(4, 6, "parts")
check(losses("parts.jsonl") == losses("whole.jsonl"), "losses differ")
check(state(6, "parts") == state(6, "whole"), "the state differs")
