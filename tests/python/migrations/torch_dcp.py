import os

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict


def train(until):
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": moments, "step": 0}
    if os.path.exists("checkpoints"):
        newest = 3
        dcp.load(state, checkpoint_id=f"checkpoints/{newest}")
        set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    for step in range(state["step"] + 1, until + 1):
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 4) * step) ** 2).sum()
        loss.backward()
        optimizer.step()
        weights, moments = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": moments, "step": step}
        if step % 3 == 0:
            dcp.save(state, checkpoint_id=f"checkpoints/{step}")
    return loss.item()
