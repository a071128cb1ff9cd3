"""Trains under torchrun; started again, on any number of workers, it continues from the newest step.

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc-per-node 4 --max-restarts 3 train.py DIRECTORY

Without that variable, workers that torchrun has restarted can find the addresses of dead ones in its store, and hang
(seen with torch 2.15 and gloo).
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.nn.functional import cross_entropy

from digits import BATCH, Samples, make_model, state_of


def train(checkpoints: Any, steps: int, every: int, kill_at: int | None) -> None:
    """Trains up to step ``steps``, and saves every ``every`` steps. If the run started from the beginning, its last
    worker kills itself after step ``kill_at``."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    model, optimizer = make_model()
    samples = Samples()
    begun = checkpoints.newest()
    if begun is not None:
        state = state_of(model, optimizer, samples, loss=0)
        checkpoints.load(state)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        samples.load_state_dict(state["samples"])
        if rank == 0:
            print(f"{workers} workers go on from step {begun}, loss {state['loss']:.6f}", flush=True)
    for step in range(samples.seen // BATCH + 1, steps + 1):
        images, labels = samples.next()
        loss = cross_entropy(model(images), labels, reduction="sum") / BATCH
        mean_of_sums = loss * workers  # FSDP takes the mean of the workers' gradients
        mean_of_sums.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach_())
        if rank == 0:
            print(f"step {step:3}  loss {loss.item():.6f}  {samples.seen} samples, {workers} workers", flush=True)
        if step % every == 0 or step == steps:
            checkpoints.save(step, state_of(model, optimizer, samples, loss.item()))
        if step == kill_at and begun is None and rank == workers - 1:
            os.kill(os.getpid(), signal.SIGKILL)


def options(description: str, module: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("directory", help="of the checkpoints")
    parser.add_argument("--with", default=module, dest="module", metavar="MODULE",
                        help=f"what saves and loads: {module}, or the same for torch.distributed.checkpoint")
    parser.add_argument("--steps", type=int, default=60, help="the last step")
    parser.add_argument("--every", type=int, default=5, help="steps between saves")
    parser.add_argument("--kill-at", type=int, metavar="STEP", help="a worker kills itself after it, once")
    return parser


def main() -> None:
    given = options("Trains a vision transformer on digits, under torchrun.", "checkpoint_libdcp").parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    checkpoints = importlib.import_module(given.module).Checkpoints(given.directory)
    train(checkpoints, given.steps, given.every, given.kill_at)
    checkpoints.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
