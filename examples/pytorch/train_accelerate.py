"""Trains a small vision transformer on digits with accelerate; started again, alone or under torchrun, on any number of
workers, it continues from the newest step.

    torchrun --nproc-per-node 2 train_accelerate.py DIRECTORY
"""

from __future__ import annotations

import argparse

import libdcp
import libdcp.accelerate
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from accelerate.utils import DataLoaderConfiguration, ProjectConfiguration, set_seed  # type: ignore[import-untyped]
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from digits import BATCH, VisionTransformer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="of the checkpoints, one of each epoch")
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(), step_scheduler_with_optimizer=False,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
        project_config=ProjectConfiguration(automatic_checkpoint_naming=True, total_limit=2, project_dir=given.directory))
    set_seed(1)
    digits = load_digits()
    samples = TensorDataset(torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16, torch.tensor(digits.target))
    batches = DataLoader(samples, BATCH // accelerator.num_processes, shuffle=True, drop_last=True)
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    model, optimizer, batches, schedule = accelerator.prepare(model, optimizer, batches, schedule)
    libdcp.accelerate.register(accelerator, given.directory)
    if libdcp.steps(given.directory):
        accelerator.load_state()
    for epoch in range(accelerator.save_iteration, given.epochs):
        for images, labels in batches:
            loss = cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        schedule.step()
        accelerator.print(f"epoch {epoch}  loss {accelerator.reduce(loss.detach(), 'mean').item():.6f}")
        accelerator.save_state()
    accelerator.end_training()


if __name__ == "__main__":
    main()
