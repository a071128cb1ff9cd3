#!/usr/bin/env python3
"""Tasks of srun without PMI do not train. Open MPI refuses to start if it knows that srun started it. If it does
not know, each task is a world of one rank to MPI; all tasks end with exit status 2, and one of them says how to
start them."""
import os
from slurm_lib import cases, slurm, text
from train_lib import TRAINER, check, config, make_text


def run(log, *environment):
    """Runs four tasks of a job with these options of env. Returns their output."""
    make_text()
    small = config(max_steps=2)
    job = slurm.submit("--nodes=2", "--ntasks-per-node=2", "--time=5", f"--output={log}",
                       f"--wrap=srun --mpi=none env {' '.join(environment)} {TRAINER} {small}; echo ended with $?")
    slurm.wait(job, "COMPLETED")
    check(not os.path.exists("ckpt"), f"tasks have trained in one directory: {text(log)}")
    return text(log)


def test_each_task_is_alone_and_one_says_how_to_start_them():
    said = run("alone", "-u", "SLURM_NODELIST")
    check(said.count("SLURM_STEP_NUM_TASKS says that this is one of 4 processes") == 1, said)
    check("srun --mpi=pmix" in said and "ended with 2" in said, said)


def test_open_mpi_refuses_to_begin():
    said = run("refused")
    check("was not built with SLURM's PMI support" in said, said)


cases.main()
