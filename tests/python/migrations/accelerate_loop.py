import os

import accelerate
import torch


def train(until):
    accelerator = accelerate.Accelerator(cpu=True, project_config=accelerate.utils.ProjectConfiguration(
        ".", automatic_checkpoint_naming=True))
    torch.manual_seed(1)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    is_continued = os.path.exists("checkpoints")
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
    if is_continued:
        accelerator.load_state()
    for step in range(4 if is_continued else 1, until + 1):
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 4) * step) ** 2).sum()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        if step == 3:
            accelerator.save_state()
    accelerator.end_training()
    return loss.item()
