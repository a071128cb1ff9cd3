"""Runs under torchrun for test_megatron.py: megatron_training.py KILL_IN_SAVE FOLDER... trains, for each folder, a layer
that is divided among the ranks, by rows, until iteration 8, from the checkpoint that Megatron's tracker names. Every second
iteration it saves FOLDER/iter_N, and it prints the number of each iteration that begins. The last rank kills itself in the
last folder's save of iteration KILL_IN_SAVE."""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing

import libdcp.megatron

LAST, EVERY, ROWS, COLUMNS = 8, 2, 8, 1 << 10


class Training:
    def __init__(self, folder, kill_in_save):
        self.folder, self.kill_in_save = folder, kill_in_save
        self.tracker = folder / "latest_checkpointed_iteration.txt"  # as Megatron's training writes it
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)
        mine = ROWS // self.size
        self.iteration, self.weight = 0, torch.randn(ROWS, COLUMNS)[self.rank * mine:][:mine]
        self.moment = torch.zeros_like(self.weight)

    def state(self):
        def part(key, data):
            return dist_checkpointing.ShardedTensor.from_rank_offsets(key, data, (0, self.rank, self.size))
        return {"weight": part("linear.weight", self.weight), "iteration": self.iteration, "rng": torch.get_rng_state(),
                "moment": part("optimizer.state.exp_avg.linear.weight", self.moment)}

    def path(self, iteration):
        return self.folder / f"iter_{iteration:07}"

    def load(self):
        if self.tracker.exists():
            found = dist_checkpointing.load(self.state(), str(self.path(int(self.tracker.read_text()))))
            self.iteration, self.weight, self.moment = found["iteration"], found["weight"], found["moment"]
            torch.set_rng_state(found["rng"])

    def kill(self, done, total):
        if self.iteration == self.kill_in_save and self.rank == self.size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def save(self):
        if self.rank == 0:
            self.path(self.iteration).mkdir(parents=True, exist_ok=True)
        dist.barrier()
        dist_checkpointing.save(self.state(), str(self.path(self.iteration)), libdcp.megatron.SaveStrategy(progress=self.kill))
        dist.barrier()
        if self.rank == 0:
            self.tracker.write_text(str(self.iteration))

    def step(self):
        self.iteration += 1
        if self.rank == 0:
            print(self.iteration, flush=True)
        inputs, wanted = torch.randn(4, COLUMNS), torch.randn(1)
        total = (inputs @ self.weight.T).sum()  # over the rows of all ranks
        dist.all_reduce(total)
        self.moment = 0.9 * self.moment + 1e-6 * (total - wanted) * inputs.sum(0)
        self.weight = self.weight - self.moment
        if self.iteration % EVERY == 0:
            self.save()


dist.init_process_group("gloo")
for folder in sys.argv[2:]:
    training = Training(pathlib.Path(folder), int(sys.argv[1]) if folder == sys.argv[-1] else 0)
    training.load()
    dist.barrier()
    while training.iteration < LAST:
        training.step()
    assert training.weight.isfinite().all(), training.weight
dist.destroy_process_group()
