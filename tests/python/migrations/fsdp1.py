import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, StateDictType


def train(until):
    torch.manual_seed(1)
    model = FSDP(torch.nn.Linear(4, 2), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    first = 1
    if os.path.exists("checkpoints"):
        first = 4
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
            saved = torch.load("checkpoints/3.pt")
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(FSDP.optim_state_dict_to_load(model, optimizer, saved["optimizer"]))
    for step in range(first, until + 1):
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 4) * step) ** 2).sum()
        loss.backward()
        optimizer.step()
        if step % 3 == 0:
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
                state = {"model": model.state_dict(), "optimizer": FSDP.optim_state_dict(model, optimizer)}
            os.makedirs("checkpoints", exist_ok=True)
            if dist.get_rank() == 0:
                torch.save(state, f"checkpoints/{step}.pt")
            dist.barrier()
    return loss.item()
