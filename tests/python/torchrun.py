"""Runs programs of this folder on several ranks of this host."""

import os
import subprocess
import sys


def torchrun(ranks, program, *arguments, options=(), limit_s=300, folder=None, **environment):
    """Runs a program under torchrun, with options for torchrun, in a folder. Returns the result of subprocess.run,
    with the output."""
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *options, program, *arguments],
        cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1", **environment}, timeout=limit_s, capture_output=True, text=True)
