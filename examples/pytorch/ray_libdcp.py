"""Ray Train's checkpoints, by libdcp: saved where Ray keeps them, so that it has nothing to copy."""

from __future__ import annotations

from typing import Any

import libdcp
import ray.train


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.found = ray.train.get_checkpoint()

    def newest(self) -> int | None:
        return int(self.found.path[-8:]) if self.found else None

    def load(self, state: dict[str, Any]) -> None:
        assert self.found
        libdcp.load(self.found.path, state)

    def save(self, step: int, state: dict[str, Any]) -> None:
        libdcp.save(self.directory, step, state, replace=True)
        ray.train.report({"step": step, "loss": state["loss"]},
                         ray.train.Checkpoint.from_directory(f"{self.directory}/step-{step:08}"),
                         checkpoint_upload_mode=ray.train.CheckpointUploadMode.NO_UPLOAD)

    def fence(self) -> None:
        """The state's memory may change at once, as it is saved."""

    def close(self) -> None:
        """There is no save in flight."""
