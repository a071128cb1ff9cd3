"""Orbax on one process with N devices of the host, which is how JAX runs many shards on one machine.
Usage: peer_orbax.py save|load|async DIR --ranks N ... (work.py)"""

import os
import shutil
import time

import work

args = work.arguments()
args.dir = os.path.abspath(args.dir)
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={args.ranks}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402: its flags come first
import numpy  # noqa: E402
import orbax.checkpoint as ocp  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def make_state(sharding):
    """Returns the arrays, or for a load their descriptions."""
    state = {}
    for name, shape in work.shapes(args).items():
        if args.op == "load":
            state[name] = jax.ShapeDtypeStruct(shape, numpy.float32, sharding=sharding)
        else:
            state[name] = jax.device_put(work.rows(name, shape, 0, shape[0]), sharding)
    return state if args.op == "load" else jax.block_until_ready(state)


def check(loaded):
    for name, shape in work.shapes(args).items():
        for row in (0, shape[0] - 1):
            if not (numpy.asarray(loaded[name][row : row + 1]) == work.rows(name, shape, row, row + 1)).all():
                raise SystemExit(f"{name}, row {row}: not what was saved")


def main():
    sharding = NamedSharding(Mesh(jax.devices(), ("x",)), PartitionSpec("x"))
    state = make_state(sharding)
    checkpointer = ocp.StandardCheckpointer()
    for repeat in range(args.repeat):
        stall = 0.0
        if args.op == "load":
            work.make_cold(args.dir)
        else:
            shutil.rmtree(args.dir, ignore_errors=True)
            os.sync()
        start = time.perf_counter()
        if args.op == "load":
            loaded = jax.block_until_ready(checkpointer.restore(args.dir, state))
        else:
            checkpointer.save(args.dir, state)
            stall = time.perf_counter() - start
            checkpointer.wait_until_finished()
            work.make_durable(args.dir)
        seconds = time.perf_counter() - start
        if args.op == "load" and repeat == 0:
            check(loaded)
        work.report(args, seconds, stall if args.op == "async" else 0.0)


main()
