#!/usr/bin/env python3
"""Ranks that compute with different kernels say so, and about.json names the kernels of all of them; a resume with other
kernels is a warning. OpenBLAS uses the kernels of the processor that OPENBLAS_CORETYPE names, here on one rank only."""
import json, shutil, subprocess
from train_lib import cases, check, config, make_text, MPIRUN, step_path, TIMEOUT, TRAINER

OTHER = "Nehalem"


def start(ranks, unlike, c, expect=0):
    """Runs dcp-train, with other kernels on the rank `unlike`."""
    parts = []
    for rank in range(ranks):
        core = ["-x", f"OPENBLAS_CORETYPE={OTHER}"] if rank == unlike else []
        parts += [":"] * (rank > 0) + ["-n", "1", *core, TRAINER, c]
    done = subprocess.run([*MPIRUN, *parts], capture_output=True, text=True, timeout=TIMEOUT)
    check(done.returncode == expect, f"exit {done.returncode}: {done.stderr}")
    return done.stderr


def about(step, name):
    return json.load(open(f"{step_path(step, name)}/about.json"))


@cases.shared
def alike():
    make_text()
    c = config(checkpoint={"dir": "alike"}, max_steps=2)
    err = start(3, None, c)
    check("unlike" not in err, err)
    one = about(2, "alike")
    check(isinstance(one["kernels"], str) and isinstance(one["processor"], str), f"{one}")
    return one


@cases.shared
def unlike():
    one = cases.use(alike)
    if OTHER in one["kernels"]:
        cases.skip(f"the kernels of this machine are those of {OTHER}")

    c = config(checkpoint={"dir": "unlike"}, max_steps=2, metrics="unlike.jsonl")
    err = start(3, 1, c)
    return one, err


def test_equal_kernels_are_not_reported():
    alike()


def test_different_kernels_are_reported():
    one, err = cases.use(unlike)
    check("warning: ranks differ: the kernels of rank 0" in err, err)
    check(f"of rank 1 is \"" in err and OTHER in err, err)
    mixed = about(2, "unlike")
    check(len(mixed["kernels"]) == 2 and one["kernels"] in mixed["kernels"] and mixed["kernels"] == sorted(mixed["kernels"]),
          f"{mixed}")
    check(OTHER in " ".join(mixed["kernels"]) and isinstance(mixed["processor"], str), f"{mixed}")


def test_a_resume_with_other_kernels_is_a_warning():
    cases.use(unlike)
    # First by ranks with the same kernels, then by ranks with all that were used.
    err = start(2, None, config(checkpoint={"dir": "unlike"}, max_steps=3, metrics="unlike.jsonl"))
    check("the checkpoint was computed with kernels [" in err and "results may differ" in err, err)
    shutil.rmtree(step_path(3, "unlike"))
    err = start(2, 0, config(checkpoint={"dir": "unlike"}, max_steps=3, metrics="unlike.jsonl"))
    check("the checkpoint was computed" not in err and "ranks differ" in err, err)
    err = start(1, 0, config(checkpoint={"dir": "alike"}, max_steps=3))
    check("the checkpoint was computed with kernels \"" in err, err)


cases.main()
