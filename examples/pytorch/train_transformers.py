"""Trains a small vision transformer on digits with the Trainer of transformers; started again, alone or under torchrun, on
any number of workers, it continues from the newest step.

    torchrun --nproc-per-node 2 train_transformers.py DIRECTORY
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import libdcp
import libdcp.transformers
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification

BATCH = 48  # over all workers


def samples() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns the samples for training, and those for evaluation."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    found = [{"pixel_values": image, "labels": int(label)} for image, label in zip(images, digits.target)]
    return found[:-297], found[-297:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", help="of the checkpoints")
    parser.add_argument("--steps", type=int, default=60, help="the last step")
    parser.add_argument("--limit", type=int, default=3, help="steps that remain, the best one included")
    given = parser.parse_args()
    torch.set_num_threads(1)
    args = TrainingArguments(
        output_dir=f"{given.directory}-output", use_cpu=not torch.cuda.is_available(), report_to="none", disable_tqdm=True,
        per_device_train_batch_size=BATCH // int(os.environ.get("WORLD_SIZE", 1)), learning_rate=3e-3,
        lr_scheduler_type="constant_with_warmup", warmup_steps=10, logging_steps=5, max_steps=given.steps,
        eval_strategy="steps", eval_steps=10, save_steps=10, save_total_limit=given.limit, load_best_model_at_end=True)
    model = ViTForImageClassification(ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=256, id2label={i: str(i) for i in range(10)}))
    training, evaluation = samples()
    trainer = Trainer(model, args, train_dataset=training, eval_dataset=evaluation,
                      callbacks=[libdcp.transformers.CheckpointCallback(given.directory)])
    trainer.train(resume_from_checkpoint=bool(libdcp.steps(given.directory)))
    print(f"best: step {trainer.state.best_global_step}, loss {trainer.state.best_metric}")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
