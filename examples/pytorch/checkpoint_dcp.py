"""The steps of a training, by torch.distributed.checkpoint."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)
        self.group = dist.new_group(backend="gloo")  # for saves beside the training's own collectives
        self.saving: Future[Any] | None = None

    def newest(self) -> int | None:
        return max((int(file.parent.name[5:]) for file in self.directory.glob("step-*/.metadata")), default=None)

    def load(self, state: dict[str, Any]) -> None:
        dcp.load(state, checkpoint_id=self.directory / f"step-{self.newest():08}")

    def save(self, step: int, state: dict[str, Any]) -> None:
        self.close()
        saving = dcp.async_save(state, checkpoint_id=self.directory / f"step-{step:08}", process_group=self.group)
        assert isinstance(saving, Future)
        self.saving = saving

    def fence(self) -> None:
        """The state's memory may change at once, as async_save has copied all of it."""

    def close(self) -> None:
        if self.saving:
            self.saving.result()
