"""The steps of a training run, saved with libdcp."""

from __future__ import annotations

from typing import Any

import libdcp


class Checkpoints:
    def __init__(self, directory: str) -> None:
        self.store = libdcp.Store(directory)

    def newest(self) -> int | None:
        return self.store.newest()

    def load(self, state: dict[str, Any]) -> None:
        self.store.load(state)

    def save(self, step: int, state: dict[str, Any]) -> None:
        self.store.save_async(step, state)

    def close(self) -> None:
        self.store.close()
