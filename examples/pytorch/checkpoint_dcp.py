"""The steps of a training run, saved with torch.distributed.checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.group: Any = dist.new_group(backend="gloo")  # keeps background saves apart from training's messages
        self.saving: Any = None

    def newest(self) -> int | None:
        return max((int(file.parent.name[5:]) for file in self.directory.glob("step-*/.metadata")), default=None)

    def load(self, state: dict[str, Any]) -> None:
        folder = self.directory / f"step-{self.newest():08}"
        dcp.load(state, checkpoint_id=folder)  # type: ignore[attr-defined]

    def save(self, step: int, state: dict[str, Any]) -> None:
        self.close()
        folder = self.directory / f"step-{step:08}"
        self.saving = dcp.async_save(  # type: ignore[attr-defined]
            state, checkpoint_id=folder, process_group=self.group)

    def close(self) -> None:
        if self.saving:
            self.saving.result()
