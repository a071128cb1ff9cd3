"""What test_union.py runs on each rank; the first argument is the group."""

import logging
import sys

import numpy as np
import torch

import libdcp


def save(group, directory, step, state, **options):
    """What was logged."""
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
    handler = Handler(logging.WARNING)
    logging.getLogger("libdcp").addHandler(handler)
    try:
        libdcp.save(directory, step, state, group=group, **options)
    finally:
        logging.getLogger("libdcp").removeHandler(handler)
    return lines


def load(group, directory, state, **options):
    """The state as it was filled."""
    libdcp.load(directory, state, group=group, **options)
    return state


def prove(group, state):
    return libdcp.prove(state, group=group).id


def save_declared(group, directory, state, steps, asynchronous):
    """Several steps of a declared state, whose tensors become the steps' numbers; how often ranks' names were united."""
    from libdcp import _union
    united = []
    unite = _union._unite
    _union._unite = lambda *arguments: united.append(1) or unite(*arguments)
    try:
        with libdcp.Store(directory, group=group) as store:
            declared = store.declare(state)
            for step in range(1, steps + 1):
                for tensor in state["model"].values():
                    tensor.fill_(step)
                if asynchronous:
                    store.save_async(step, declared).wait()
                else:
                    store.save(step, declared)
    finally:
        _union._unite = unite
    return len(united)


def tiers(group, directory, state, loaded):
    with libdcp.Store([libdcp.Tier(f"{directory}/fast", keep=2), libdcp.Tier(f"{directory}/slow")], group=group) as store:
        store.save(1, state)
        store.load(loaded)
    return loaded


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


tree_save = save


def tree_load(group, directory, state, options):
    libdcp.load(directory, state, group=group, **options)
    return state


def mpi(directory):
    """Under mpirun."""
    from mpi4py import MPI
    group = MPI.COMM_WORLD
    rank = group.Get_rank()

    def state(number):
        return {"model": {f"layers.{rank}.w": np.full(3, number, np.float32)}, f"n{rank}": number, "all": 5}
    lines = save(group, directory, 1, {**state(rank), "differs": rank}, replicas="warn")
    assert len(lines) == (rank == 0), lines
    found = state(-1)
    libdcp.load(directory, found, group=group)
    assert (found["model"][f"layers.{rank}.w"] == rank).all() and found[f"n{rank}"] == rank and found["all"] == 5, found


if __name__ == "__main__":
    mpi(sys.argv[1])
