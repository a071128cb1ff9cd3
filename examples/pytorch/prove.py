"""Loads the newest step of a training run on the workers of torchrun, and saves it again from them: proves that the
state is equal, and the file identical, whatever the number of workers.

    torchrun --nproc-per-node 2 prove.py DIRECTORY OTHER_DIRECTORY
"""

from __future__ import annotations

import sys

import libdcp
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import set_state_dict

from digits import Samples, make_model, state_of


def main() -> None:
    directory, other = sys.argv[1:]
    dist.init_process_group("gloo")
    model, optimizer = make_model()
    samples = Samples()
    state = state_of(model, optimizer, samples, loss=0)
    loaded = libdcp.load(directory, state)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    samples.load_state_dict(state["samples"])
    state = state_of(model, optimizer, samples, state["loss"])
    proof = libdcp.prove(state)
    with libdcp.Checkpoint(directory) as checkpoint:
        if checkpoint.proof() != proof:
            sys.exit(f"step {checkpoint.step}: the file has state id {checkpoint.proof().id}, the model {proof.id}")
    libdcp.save(other, loaded["step"], state)
    if dist.get_rank() == 0:
        print(f"step {loaded['step']}: state id {proof.id} in the file, and of the model on "
              f"{dist.get_world_size()} workers")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
