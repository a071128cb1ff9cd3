#!/usr/bin/env python3
"""A run whose engine changes at each restart, on other numbers of ranks, ends with the state and the
files of an undisturbed run."""
from train_lib import *

make_text()
constant = {"type": "constant", "params": {"warmup_steps": 0}}


def part(ranks, steps_to, directory, **checkpoint):
    train(ranks, config(max_steps=steps_to, scheduler=constant, metrics=f"{directory}.jsonl",
                        checkpoint={"dir": directory, **checkpoint}))


def engine(step, directory):
    return json.load(open(f"{step_path(step, directory)}/about.json"))["engine"]


part(2, 4, "whole")
part(2, 2, "parts", engine="mpio")
part(1, 3, "parts", engine="direct", layout="sharded")
part(3, 4, "parts", engine="mpio", **{"async": False})
check(engine(4, "whole") == "direct", "auto is not direct here")
check([engine(s, "parts") for s in (1, 2, 3, 4)] == ["mpio", "mpio", "direct", "mpio"], "engines")
check(losses("parts.jsonl") == losses("whole.jsonl"), "losses differ")
files = [open(f"{step_path(4, d)}/state.h5", "rb").read() for d in ("whole", "parts")]
check(files[0] == files[1], "the files differ")
