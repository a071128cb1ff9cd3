"""Trains under Ray Train, which restarts the workers after a failure. If the program is started again, even with a
different number of --workers, it continues where it was.

    python train_ray.py DIRECTORY --workers 4
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import ray
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from train import options, train


def train_worker(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    checkpoints = importlib.import_module(config["module"]).Checkpoints(config["directory"])
    train(checkpoints, config["steps"], config["every"], config["kill_at"])
    checkpoints.close()


def main() -> None:
    parser = options("Trains a vision transformer on digits, by Ray Train.", "ray_libdcp")
    parser.add_argument("--workers", type=int, default=4)
    given = parser.parse_args()
    given.directory = os.path.abspath(given.directory)  # Ray's directory for a run: storage_path/name
    ray.init(num_cpus=given.workers + 1)
    storage, name = os.path.split(given.directory)
    result = TorchTrainer(
        train_worker, train_loop_config=vars(given), scaling_config=ScalingConfig(num_workers=given.workers),
        run_config=RunConfig(storage_path=storage, name=name, failure_config=FailureConfig(max_failures=2))).fit()
    print(f"Ray's result: {result.metrics}, {result.checkpoint.path if result.checkpoint else 'no checkpoint'}")


if __name__ == "__main__":
    main()
