"""Trains with accelerate under torchrun, or alone, for test_accelerate.py: accelerate_ranks.py SCRATCH NAME OPTIONS, a JSON
object.

Its members: fsdp; seed; seedable; dropout; resume; kill_at: the last rank kills itself as that update begins; stateful: the data
loader is torchdata's; register and project: options of libdcp.accelerate.register, and of ProjectConfiguration. Steps go
to SCRATCH/NAME, losses to SCRATCH/NAME.losses.
"""

import json
import os
import pathlib
import signal
import sys

import accelerate
import torch
from torch import nn

import libdcp
import libdcp.accelerate

SAMPLES, WIDTH, BATCH, STEPS, EVERY = 96, 16, 8, 20, 4


class Kept:
    """An object of register_for_checkpointing: the sum of all losses, and a tensor."""

    def __init__(self):
        self.sum, self.largest = 0.0, torch.zeros(2)

    def note(self, loss):
        self.sum += loss
        self.largest[0] = max(self.largest[0], loss)

    def state_dict(self):
        return {"sum": self.sum, "largest": self.largest}

    def load_state_dict(self, state):
        self.sum, self.largest = state["sum"], state["largest"]


def force_fsdp(**options):
    """Returns a plugin for FSDP2. accelerate uses DDP on CPUs, whatever is requested; its own tests set the type of the
    accelerator's state."""
    accelerate.PartialState(cpu=True).distributed_type = accelerate.DistributedType.MULTI_HPU
    return accelerate.FullyShardedDataParallelPlugin(fsdp_version=2, **options)


def make_data(world):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(SAMPLES, WIDTH, generator=generator)
    data = torch.utils.data.TensorDataset(inputs, inputs.cumsum(1).tanh())
    generator = torch.Generator().manual_seed(torch.initial_seed())
    return torch.utils.data.DataLoader(data, batch_size=BATCH // world, shuffle=True, generator=generator)


class Training:
    """A training whose order of samples depends on seeds only."""

    def __init__(self, scratch, name, options):
        fsdp = force_fsdp(auto_wrap_policy="size_based_wrap", min_num_params=500) if options.get("fsdp") else None
        self.accelerator = accelerate.Accelerator(
            cpu=True, fsdp_plugin=fsdp, step_scheduler_with_optimizer=False,
            project_config=accelerate.utils.ProjectConfiguration(**options.get("project", {})),
            dataloader_config=accelerate.DataLoaderConfiguration(
                use_seedable_sampler=options.get("seedable", True), data_seed=options.get("seed", 3),
                use_stateful_dataloader=options.get("stateful", False)))
        assert self.accelerator.is_fsdp2 == bool(fsdp)
        world = self.accelerator.num_processes
        accelerate.utils.set_seed(options.get("seed", 3))
        model = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Dropout(options.get("dropout", 0.1)), nn.Linear(64, WIDTH))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1 / (1 + i))
        self.model, self.optimizer, self.loader, self.schedule = self.accelerator.prepare(
            model, optimizer, make_data(world), schedule)
        accelerate.utils.set_seed(options.get("seed", 3), device_specific=True)
        self.kept = Kept()
        self.accelerator.register_for_checkpointing(self.kept)
        self.done = 0
        self.stateful = options.get("stateful", False)
        self.losses = scratch / f"{name}.losses"
        libdcp.accelerate.register(self.accelerator, scratch / name, **options.get("register", {}))

    def resume(self, folder=None):
        """Continues from a step, whose number is that of updates."""
        self.accelerator.load_state(folder)
        self.done = self.accelerator.save_iteration - 1

    def batches(self):
        """Epoch after epoch; those of the first epoch that were used are skipped."""
        used = self.done % (SAMPLES // BATCH)
        if used:
            yield from self.rest_of_epoch(used)
            if not self.stateful:
                self.loader.set_epoch(self.loader.iteration + 1)
        while True:
            yield from self.loader

    def rest_of_epoch(self, used):
        """A new iterator draws a number, which that of the interrupted run has drawn at the beginning of the epoch."""
        generator = torch.get_rng_state()
        rest = iter(self.loader if self.stateful else self.accelerator.skip_first_batches(self.loader, used))
        first = next(rest)
        torch.set_rng_state(generator)
        yield first
        yield from rest

    def run(self, steps=STEPS, kill_at=None):
        for inputs, wanted in self.batches():
            accelerator = self.accelerator
            if self.done == steps:
                break
            if self.done + 1 == kill_at and accelerator.process_index == accelerator.num_processes - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            loss = nn.functional.mse_loss(self.model(inputs), wanted)
            accelerator.backward(loss)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            self.done += 1
            mean = float(accelerator.reduce(loss.detach(), "mean"))
            self.kept.note(mean)
            if accelerator.is_main_process:
                with open(self.losses, "a") as out:
                    print(self.done, repr(mean), file=out)
            if self.done % EVERY == 0:
                accelerator.save_state(f"update_{self.done}")


def main():
    scratch, name, options = pathlib.Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    torch.set_num_threads(1)
    training = Training(scratch, name, options)
    if options.get("resume"):
        training.resume()
    training.run(kill_at=options.get("kill_at"))
    training.accelerator.end_training()


if __name__ == "__main__":
    main()
