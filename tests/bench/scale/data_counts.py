#!/usr/bin/env python3
"""Checks the cost of moving data for ranks on several hosts, as counts of the simulation (data_scale).

The limits are the figures of docs/scale.md, for a small state; a change may only lower them."""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
import cases

PROGRAM = sys.argv.pop(1)  # names of cases may follow
LAYOUTS = {  # arguments; the maximum of each figure
    "fsdp": ("tiny --ranks 64 --host 8", {
        "bytes written over the state's": 1.02,
        "bytes in writes that are short or begin within a MiB": 0.031,
        "bytes in reads that are short or begin within a MiB": 0.03,
        "ranks that write one MiB": 1,
        "most bytes written by a rank over the mean": 1.1,
        "ranks that read one MiB": 1,
        "bytes read over the state's": 1.02,
        "a save's bytes between hosts over the state's": 1.0,
        "a load's bytes between hosts over the state's": 1.0,
        "collectives of a save that move nothing": 0,
        "collectives of a load that move nothing": 0,
        "messages of a save with a kept plan beside data": 0,
        "collectives of a save with a kept plan beside data": 6,
        "collectives of a load beside data": 11,
        "MiB of a rank in a save": 64,
        "MiB of a rank in a load": 64,
    }),
    "hsdp": ("tiny --ranks 64 --host 8 --shards 16", {
        "bytes written over the state's": 1.02,
        "bytes in writes that are short or begin within a MiB": 0.031,
        "ranks that write one MiB": 1,
        "most bytes written by a rank over the mean": 1.1,
        "bytes read over the state's": 1.02,
        "a save's bytes between hosts over the state's": 1.0,
        "collectives of a save with a kept plan beside data": 6,
        "MiB of a rank in a save": 64,
        "MiB of a rank in a load": 64,
    }),
    "data parallel": ("8b --layers 1 --ranks 16 --host 4 --shards 1", {
        "bytes written over the state's": 1.01,
        "bytes in writes that are short or begin within a MiB": 0.001,
        "ranks that write one MiB": 1,
        "most bytes written by a rank over the mean": 1.1,
        "bytes read over the state's": 1.01,
        "ranks that read one MiB": 1,
        "MiB of a rank in a save": 64,
        "MiB of a rank in a load": 64,
    }),
}


def figures(ops):
    save, load = ops["save_kept"], ops["load"]
    state = save["state_bytes"]
    return {
        "bytes written over the state's": save["writes"]["bytes"] / state,
        "bytes in writes that are short or begin within a MiB": 1 - save["writes"]["in_aligned"],
        "bytes in reads that are short or begin within a MiB": 1 - load["reads"]["in_aligned"],
        "ranks that write one MiB": save["writes"]["most_ranks_of_mib"],
        "ranks that read one MiB": load["reads"]["most_ranks_of_mib"],
        "bytes read over the state's": load["reads"]["bytes"] / state,
        "a save's bytes between hosts over the state's": save["data"]["between"] / state,
        "a load's bytes between hosts over the state's": load["data"]["between"] / state,
        "most bytes written by a rank over the mean": save["writes"]["most_over_mean"],
        "collectives of a save that move nothing": save["empty_collectives"],
        "collectives of a load that move nothing": load["empty_collectives"],
        "messages of a save with a kept plan beside data": save["other"]["n"],
        "collectives of a save with a kept plan beside data": save["collectives"],
        "collectives of a load beside data": load["collectives"],
        "MiB of a rank in a save": save["mib_most"],
        "MiB of a rank in a load": load["mib_most"],
    }


def check_figures(layout):
    arguments, limits = LAYOUTS[layout]
    done = subprocess.run([PROGRAM, *arguments.split()], stdout=subprocess.PIPE, text=True, check=True)
    found = figures({row["op"]: row for row in map(json.loads, done.stdout.splitlines())})
    for what, most in limits.items():
        print(f"{layout}: {what}: {found[what]:.3f}, at most {most}")
        with cases.part(what):
            assert found[what] <= most, f"{found[what]:.3f}, and at most {most} is allowed"


def test_figures_of_fsdp():
    check_figures("fsdp")


def test_figures_of_hsdp():
    check_figures("hsdp")


def test_figures_of_data_parallel():
    check_figures("data parallel")


with tempfile.TemporaryDirectory(prefix="data-counts-") as scratch:
    os.chdir(scratch)
    cases.main()
