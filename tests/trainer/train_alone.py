#!/usr/bin/env python3
"""A process that its launcher has started as one of several, and whose MPI does not know the others, does not train:
otherwise all of them would, in one directory. tests/slurm has a real srun; here the launcher is dcp-run, and its ranks
lose the variables by which their MPI finds the others."""
import os, subprocess
from train_lib import BIN, cases, check, config, make_text, TIMEOUT, TRAINER

SIZES = {"OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK", "PMI_SIZE": "PMI_RANK", "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
         "WORLD_SIZE": "RANK"}


def alone(expect, *arguments, **environment):
    done = subprocess.run([TRAINER, "config.json", *arguments], env={**os.environ, **environment},
                          capture_output=True, text=True,
                          timeout=TIMEOUT)
    check(done.returncode == expect, f"{environment}: exit {done.returncode}: {done.stderr}")
    return done.stderr


@cases.shared
def inputs():
    make_text()
    config(max_steps=2)


def test_each_launcher_is_recognized():
    cases.use(inputs)
    for size, rank in SIZES.items():
        with cases.part(f"{size}"):
            err = alone(2, **{size: "4", rank: "0"})
            check(f"{size} says that this is one of 4 processes" in err and f"unset {size}" in err, err)
            check("srun --mpi=pmix" in err and not os.path.exists("ckpt"), err)
            check(not alone(2, **{size: "4", rank: "1"}).strip(), "each process prints it")
            alone(2, "--dry-run", **{size: "4", rank: "0"})


def test_other_uses_of_the_variables_are_accepted():
    cases.use(inputs)
    alone(0, "--dry-run", WORLD_SIZE="4")  # set for something else, since RANK is not set
    alone(0, SLURM_STEP_NUM_TASKS="1", SLURM_PROCID="0", WORLD_SIZE="1", RANK="0")


def test_dcp_run_says_that_there_are_others():
    cases.use(inputs)
    # A wrapper hides the peers from MPI, and leaves the variables of dcp-run.
    hidden = ["sh", "-c", "for v in $(env | sed -n 's/^\\(\\(PMIX\\|OMPI\\|ORTE\\)_[A-Za-z0-9_]*\\)=.*/\\1/p'); do unset $v; done; "
              "exec \"$@\"", "sh", TRAINER, "config.json", "checkpoint.dir=hidden"]
    done = subprocess.run([f"{BIN}/dcp-run", "-n", "2", "--", *hidden], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True,
                          timeout=TIMEOUT, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"})
    check(done.returncode == 2 and "dcp-run has started 2 ranks, but MPI knows only this one" in done.stderr,
          f"{done}")
    check(not os.path.exists("hidden"), "two processes have trained in one directory")


cases.main()
