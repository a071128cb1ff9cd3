"""Runs under mpirun for test_union.py, without torch: mpi_ranks.py DIR."""

import logging
import sys

import numpy as np
from mpi4py import MPI

import libdcp

group = MPI.COMM_WORLD
rank = group.Get_rank()
logging.basicConfig(stream=sys.stdout)


def state(number):
    return {"model": {f"layers.{rank}.w": np.full(3, number, np.float32)}, f"n{rank}": number, "all": 5}


libdcp.save(sys.argv[1], 1, {**state(rank), "differs": rank}, group=group)
found = state(-1)
libdcp.load(sys.argv[1], found, group=group)
assert (found["model"][f"layers.{rank}.w"] == rank).all() and found[f"n{rank}"] == rank and found["all"] == 5, found
