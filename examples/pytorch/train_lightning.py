"""Trains a small vision transformer on digits with Lightning; started again, alone or under torchrun, on any number of
workers, it continues from the last epoch.

    torchrun --nproc-per-node 2 train_lightning.py DIRECTORY
"""

from __future__ import annotations

import argparse
import os

import libdcp.lightning
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from digits import BATCH, VisionTransformer


class Classifier(LightningModule):
    def __init__(self, rate: float = 3e-3) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.transformer = VisionTransformer()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.hparams["rate"])

    def training_step(self, batch: list[torch.Tensor], i: int) -> torch.Tensor:
        loss = cross_entropy(self.transformer(batch[0]), batch[1])
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.print(f"epoch {self.current_epoch}  loss {float(self.trainer.callback_metrics['loss']):.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="of the checkpoints: the best two epochs, and the last one")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seed_everything(1, verbose=False)
    digits = load_digits()
    samples = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target))
    trainer = Trainer(max_epochs=given.epochs, devices=int(os.environ.get("WORLD_SIZE", 1)), logger=False,
                      enable_progress_bar=False, plugins=[libdcp.lightning.CheckpointIO()],
                      callbacks=[ModelCheckpoint(given.directory, monitor="loss", save_top_k=2, save_last=True)])
    batches = DataLoader(samples, BATCH // trainer.world_size, shuffle=True, drop_last=True)
    trainer.fit(Classifier(), batches, ckpt_path="last")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
