"""Ray Train's checkpoints, saved with torch.distributed.checkpoint."""

from __future__ import annotations

import tempfile
from typing import Any

import ray.train
import torch.distributed.checkpoint as dcp


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.found = ray.train.get_checkpoint()

    def newest(self) -> int | None:
        return int(self.found.path[-8:]) if self.found else None

    def load(self, state: dict[str, Any]) -> None:
        assert self.found
        with self.found.as_directory() as folder:
            dcp.load(state, checkpoint_id=folder)  # type: ignore[attr-defined]

    def save(self, step: int, state: dict[str, Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            dcp.save(state, checkpoint_id=folder)  # type: ignore[attr-defined]
            ray.train.report({"step": step, "loss": state["loss"]}, ray.train.Checkpoint.from_directory(folder),
                             checkpoint_dir_name=f"step-{step:08}")

    def close(self) -> None:
        """Does nothing: no save is in the background."""
