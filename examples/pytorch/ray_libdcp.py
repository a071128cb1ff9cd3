"""Ray Train's checkpoints, saved with libdcp where Ray stores them, so that Ray has nothing to copy."""

from __future__ import annotations

from typing import Any

import libdcp
import ray.train


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.store = libdcp.Store(directory)

    def newest(self) -> int | None:
        """The newest complete step, whether or not Ray had learned of it when a worker died."""
        return self.store.newest()

    def load(self, state: dict[str, Any]) -> None:
        self.store.load(state)

    def save(self, step: int, state: dict[str, Any]) -> None:
        self.store.save(step, state)
        ray.train.report({"step": step, "loss": state["loss"]}, ray.train.Checkpoint.from_directory(self.store.path(step)),
                         checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD)

    def close(self) -> None:
        self.store.close()
