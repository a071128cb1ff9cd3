import os

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


class Module(LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.1)

    def training_step(self, batch, i):
        return (self.linear(batch) ** 2).sum()


def train(until):
    torch.manual_seed(1)
    model = Module()
    batches = torch.utils.data.DataLoader([torch.ones(4) * i for i in range(3)])
    callbacks = [ModelCheckpoint("checkpoints", save_last=True)]
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    trainer = Trainer(callbacks=callbacks, max_epochs=until, **quiet)
    trainer.fit(model, batches, ckpt_path="last" if os.path.exists("checkpoints") else None)
    return model.linear.weight.sum().item()
