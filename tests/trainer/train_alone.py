#!/usr/bin/env python3
"""A process that its launcher has started as one of several, and that MPI knows alone, does not
train: all of them would, in one directory. Real launchers: Slurm's srun is in tests/slurm; here it
is dcp-run, whose ranks lose what their MPI finds the others by."""
import re
from train_lib import *

make_text()
small = config(max_steps=2)
SIZES = {"OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK", "PMI_SIZE": "PMI_RANK", "SLURM_STEP_NUM_TASKS": "SLURM_PROCID",
         "WORLD_SIZE": "RANK"}


def alone(expect, *arguments, **environment):
    done = subprocess.run([TRAINER, small, *arguments], env={**os.environ, **environment}, capture_output=True, text=True,
                          timeout=TIMEOUT)
    check(done.returncode == expect, f"{environment}: exit {done.returncode}: {done.stderr}")
    return done.stderr


for size, rank in SIZES.items():
    err = alone(2, **{size: "4", rank: "0"})
    check(f"{size} says that this is one of 4 processes" in err and f"unset {size}" in err, err)
    check("srun --mpi=pmix" in err and not os.path.exists("ckpt"), err)
    check(not alone(2, **{size: "4", rank: "1"}).strip(), "each process prints it")
    alone(2, "--dry-run", **{size: "4", rank: "0"})
alone(0, "--dry-run", WORLD_SIZE="4")  # of something else, as there is no RANK
alone(0, SLURM_STEP_NUM_TASKS="1", SLURM_PROCID="0", WORLD_SIZE="1", RANK="0")

# What hides the peers from MPI, in a wrapper, leaves what dcp-run says of them.
hidden = ["sh", "-c", "for v in $(env | sed -n 's/^\\(\\(PMIX\\|OMPI\\|ORTE\\)_[A-Za-z0-9_]*\\)=.*/\\1/p'); do unset $v; done; "
          "exec \"$@\"", "sh", TRAINER, small, "checkpoint.dir=hidden"]
done = subprocess.run([f"{BIN}/dcp-run", "-n", "2", "--", *hidden], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                      timeout=TIMEOUT, env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1"})
check(done.returncode == 2 and "dcp-run has started 2 ranks, and MPI knows of none but this one" in done.stderr, f"{done}")
check(not os.path.exists("hidden"), "two processes have trained in one directory")
