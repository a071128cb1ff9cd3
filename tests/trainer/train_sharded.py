#!/usr/bin/env python3
"""A run that saves one file per rank continues on other numbers of ranks, in either layout, and ends with the state of an
undisturbed run."""
import json, os
from train_lib import cases, check, config, losses, make_text, state, step_path, tool, train

constant = {"type": "constant", "params": {"warmup_steps": 0}}


def part(ranks, steps_to, directory, **checkpoint):
    train(ranks, config(max_steps=steps_to, scheduler=constant, metrics=f"{directory}.jsonl",
                        checkpoint={"dir": directory, **checkpoint}))


@cases.shared
def saved():
    make_text()
    part(1, 6, "whole")
    part(3, 2, "parts", layout="sharded", staging_mb=0)


def test_each_rank_has_a_file():
    cases.use(saved)
    names = sorted(os.listdir(step_path(2, "parts")))
    check(names == ["about.json"] + [f"shard-0000{r}-of-00003.h5" for r in range(3)], names)


def test_dcp_reshard_keeps_what_a_resume_compares():
    cases.use(saved)
    tool("dcp-reshard", "parts", "cut", "--layout", "global")
    old, new = (json.load(open(step_path(2, d) + "/about.json")) for d in ("parts", "cut"))
    check(new["tool"] == "dcp-reshard" and all(new[k] == old[k] for k in ("kernels", "processor")), new)


def test_other_ranks_and_layouts_end_as_undisturbed():
    cases.use(saved)
    part(2, 4, "parts", layout="sharded", **{"async": False})
    part(4, 6, "parts")
    check(losses("parts.jsonl") == losses("whole.jsonl"), "losses differ")
    check(state(6, "parts") == state(6, "whole"), "the state differs")


cases.main()
