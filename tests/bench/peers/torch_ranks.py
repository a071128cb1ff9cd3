"""Runs a peer of PyTorch on several ranks of this host: processes with gloo, whose state consists of DTensors."""

import os
import shutil
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

import work


def make_state(args, mesh, rank):
    state = {}
    for name, shape in work.shapes(args).items():
        first, end = work.rows_of(shape, rank, args.ranks)
        if args.op == "load":
            local = torch.zeros((end - first,) + shape[1:])
        else:
            local = torch.from_numpy(work.rows(name, shape, first, end))
        whole = torch.empty(shape, device="meta")
        state[name] = DTensor.from_local(
            local, mesh, [Shard(0)], shape=whole.shape, stride=whole.stride(), run_check=False
        )
    return state


def check(args, state, rank):
    """Checks that the first and last row of each tensor's shard have the saved values."""
    for name, shape in work.shapes(args).items():
        first, end = work.rows_of(shape, rank, args.ranks)
        for row in {first, end - 1} if end > first else ():
            want = torch.from_numpy(work.rows(name, shape, row, row + 1))
            if not torch.equal(state[name].to_local()[row - first : row - first + 1], want):
                raise RuntimeError(f"{name}, row {row}: not what was saved")


def measure(args, peer, state, rank):
    """Returns the seconds of one operation on all ranks, and of its call alone."""
    if rank == 0 and args.op == "load":
        work.make_cold(args.dir)
    if rank == 0 and args.op != "load":
        shutil.rmtree(args.dir, ignore_errors=True)
        os.sync()
    dist.barrier()
    start = time.perf_counter()
    stall = 0.0
    if args.op == "load":
        peer.load(args.dir, state)
    elif args.op == "save":
        peer.save(args.dir, state)
    else:
        pending = peer.start(args.dir, state)
        stall = time.perf_counter() - start
        pending.result()
    dist.barrier()
    if args.op != "load":
        work.make_durable(args.dir, rank, args.ranks)
        dist.barrier()
    return time.perf_counter() - start, stall


def run(rank, args, make_peer, port):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    state = make_state(args, init_device_mesh("cpu", (args.ranks,)), rank)
    for _ in range(args.repeat):
        peer = make_peer()  # torch_checkpointing's second save would otherwise lack its metadata
        seconds, stall = measure(args, peer, state, rank)
        if args.op == "load":
            check(args, state, rank)
        if rank == 0:
            work.report(args, seconds, stall)
    dist.destroy_process_group()


def main(make_peer):
    args = work.arguments()
    args.dir = os.path.abspath(args.dir)
    if args.op == "async" and not hasattr(make_peer, "start"):
        raise SystemExit("it has no asynchronous save on a CPU")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(run, (args, make_peer, port), nprocs=args.ranks)
