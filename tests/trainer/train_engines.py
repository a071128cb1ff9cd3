#!/usr/bin/env python3
"""A run that changes its engine and number of ranks at each restart ends with the state and the files of an undisturbed
run."""
import json
from train_lib import cases, check, config, losses, make_text, step_path, train

constant = {"type": "constant", "params": {"warmup_steps": 0}}


def part(ranks, steps_to, directory, **checkpoint):
    train(ranks, config(max_steps=steps_to, scheduler=constant, metrics=f"{directory}.jsonl",
                        checkpoint={"dir": directory, **checkpoint}))


def engine(step, directory):
    return json.load(open(f"{step_path(step, directory)}/about.json"))["engine"]


def test_changing_engines_end_as_undisturbed():
    make_text()
    part(2, 4, "whole")
    part(2, 2, "parts", engine="mpio")
    part(1, 3, "parts", engine="direct", layout="sharded")
    part(3, 4, "parts", engine="mpio", **{"async": False})
    check(engine(4, "whole") == "direct", "auto is not direct here")
    check([engine(s, "parts") for s in (1, 2, 3, 4)] == ["mpio", "mpio", "direct", "mpio"], "engines")
    check(losses("parts.jsonl") == losses("whole.jsonl"), "losses differ")
    files = [open(f"{step_path(4, d)}/state.h5", "rb").read() for d in ("whole", "parts")]
    check(files[0] == files[1], "the files differ")


cases.main()
