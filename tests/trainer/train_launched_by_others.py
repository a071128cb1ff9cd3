#!/usr/bin/env python3
"""The launcher of another MPI than that of the build: its ranks don't find each other, say so once, and end with 2, without
a restart and without a step. DCP_OTHER_MPIRUN may name one; otherwise an installed one is used."""
import os, shutil, subprocess
from train_lib import BIN, cases, check, config, make_text, TIMEOUT, TRAINER


def version(program):
    return subprocess.run([program, "--version"], capture_output=True, text=True).stdout


def is_mpich(program):
    return "HYDRA" in version(program)


def test_ranks_that_do_not_find_each_other_end_with_2():
    named = os.environ.get("DCP_OTHER_MPIRUN")
    installed = [named] if named else filter(shutil.which, ("mpirun.mpich", "mpirun.openmpi"))
    others = [p for p in installed if is_mpich(p) != is_mpich(os.environ["DCP_MPIEXEC"])]
    if not others:
        cases.skip("no launcher of another MPI is installed, such as Debian's mpirun.mpich or mpirun.openmpi")

    make_text()
    small = config(max_steps=2)
    os.mkdir("other")
    with open("other/mpirun", "w") as f:
        f.write(f'#!/bin/sh\nexec "{shutil.which(others[0])}" "$@"\n')
    os.chmod("other/mpirun", 0o755)
    done = subprocess.run([f"{BIN}/dcp-run", "-n", "2", "--", TRAINER, small], stdin=subprocess.DEVNULL,
                          capture_output=True,
                          text=True, timeout=TIMEOUT, env={**os.environ,
                                                           "PATH": f"{os.getcwd()}/other:{os.environ['PATH']}"})
    check(done.returncode == 2, f"exit {done.returncode}: {done.stderr}")
    check(done.stderr.count("dcp-run has started 2 ranks, but MPI knows only this one") == 1, done.stderr)
    check("start 2" not in done.stderr, done.stderr)
    check(not os.path.exists("ckpt"), "two processes have trained in one directory")


cases.main()
