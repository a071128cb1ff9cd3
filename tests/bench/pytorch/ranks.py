"""One program under torchrun that saves and loads the same DTensors by libdcp and by its peers, in turns.

  ranks.py save|load|async DIR --ranks N --layers L --hidden H --vocab V --rounds R --systems NAME,...

Rank 0 prints one line of JSON per call: system, op, seconds, the seconds of the call alone, and bytes. libdcp's program
waits at a fence; libdcp_copied has no fence, and its call copies. For libdcp_copied the line has the slowest rank's
seconds of the call, and memcpy_s: the time of memcpy on that rank, with all ranks copying simultaneously, from the
tensors' memory into a piece of memory that was used before. The time of a save ends when it is durable; a load is cold,
and its values are checked. libdcp's store is opened and the state declared before the time starts, as in a program that
saves now and then, and as in dcp-bench; libdcp_at_once is a single call of libdcp.load."""

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import libdcp

sys.path.insert(0, str(Path(__file__).parents[1] / "peers"))
import torch_ranks  # noqa: E402
import work  # noqa: E402


class Libdcp:
    copies = False

    def __init__(self, folder, state):
        self.step = max(libdcp.steps(folder), default=0)
        self.store = libdcp.Store(folder, keep=1)
        self.state = self.store.declare({"model": state})

    def save(self, state):
        self.step += 1
        self.store.save(self.step, self.state)

    def start(self, state):
        self.step += 1
        return self.store.save_async(self.step, self.state, copy=self.copies)

    def load(self, state):
        self.store.load(self.state)

    def close(self):
        self.store.close()


class LibdcpCopied(Libdcp):
    """A program that does not wait at a fence."""

    copies = True

    def __init__(self, folder, state):
        super().__init__(folder, state)
        self.parts = [tensor.to_local().numpy().reshape(-1) for tensor in state.values()]
        self.copy = np.ones(sum(map(len, self.parts)), self.parts[0].dtype)

    def memcpy(self):
        dist.barrier()
        start = time.perf_counter()
        np.concatenate(self.parts, out=self.copy)
        return slowest(time.perf_counter() - start)


def slowest(seconds):
    """Returns the largest value of all ranks."""
    most = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    return float(most)


class LibdcpAtOnce:
    """The call of a program that has neither a store nor a declared state."""

    def __init__(self, folder, state):
        self.folder = folder

    def load(self, state):
        libdcp.load(self.folder, {"model": state})


class Peer:
    """One of the systems that tests/bench/peers.sh runs."""

    def __init__(self, module, folder):
        self.make, self.folder = module.Peer, folder
        if hasattr(module.Peer, "start"):
            self.start = lambda state: self.make().start(self.emptied(), state)

    def emptied(self):
        if dist.get_rank() == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
        dist.barrier()
        return self.folder

    def save(self, state):
        self.make().save(self.folder, state)

    def load(self, state):
        self.make().load(self.folder, state)


def make_system(name, folder, state):
    if name == "libdcp":
        return Libdcp(folder, state)
    if name == "libdcp_copied":
        return LibdcpCopied(folder, state)
    if name == "libdcp_at_once":
        return LibdcpAtOnce(f"{os.path.dirname(folder)}/libdcp", state)
    return Peer(__import__(f"peer_{name}"), folder)


def measure(args, name, system, state):
    """Returns the seconds until the state is durable or loaded on all ranks, and those of this rank's call."""
    folder, rank = f"{args.dir}/{name.removesuffix('_at_once')}", dist.get_rank()
    if args.op == "load" and rank == 0:
        work.make_cold(folder)
    if args.op != "load" and not name.startswith("libdcp") and rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
        os.sync()
    dist.barrier()
    start = time.perf_counter()
    if args.op == "async":
        pending = system.start(state)
        call = time.perf_counter() - start
        pending.result()
        if getattr(system, "copies", False):
            call = slowest(call)
    else:
        getattr(system, args.op)(state)
        call = time.perf_counter() - start
    dist.barrier()
    if args.op != "load" and not name.startswith("libdcp"):
        work.make_durable(folder, rank, args.ranks)
        dist.barrier()
    return time.perf_counter() - start, call


def arguments():
    parser = work.parser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--systems", default="libdcp")
    return parser.parse_args()


def main():
    args = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    state = torch_ranks.make_state(args, init_device_mesh("cpu", (args.ranks,)), rank)
    systems = {name: make_system(name, f"{args.dir}/{name}", state) for name in args.systems.split(",")}
    for _ in range(args.rounds):
        for name, system in systems.items():
            if args.op == "load":
                for tensor in state.values():
                    tensor.to_local().zero_()
            more = {"memcpy_s": round(system.memcpy(), 4)} if hasattr(system, "memcpy") else {}
            seconds, call = measure(args, name, system, state)
            if args.op == "load":
                torch_ranks.check(args, state, rank)
            if rank == 0:
                work.report(args, seconds, call, system=name, **more)
    for system in systems.values():
        if hasattr(system, "close"):
            system.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
