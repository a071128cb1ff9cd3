"""The meaning of a checkpoint_id of torch.distributed.checkpoint; ``libdcp.dcp`` documents the rules."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from . import _checked, _paths
from ._paths import Path
from .store import step_path

_STEP = re.compile(r"step[-_=]?([0-9]{1,19})")  # without other text, which would not be in the step's folder


@dataclass(frozen=True)
class Place:
    """A directory of steps, and a step in it; None: for a load the newest one, for a save the next one."""

    directory: str
    step: int | None

    @property
    def path(self) -> str:
        return self.directory if self.step is None else step_path(self.directory, self.step)


def place_of(path: Path, step: int | None = None) -> Place:
    """The place that a path means.

    Args:
        step: the number of the step if ``path`` is a directory of steps, instead of one in the path.

    Raises:
        ValueError: it is a URL.
    """
    text = _paths.given(path, "path")
    if step is not None:
        return Place(text, _checked.step(step))
    folder, name = os.path.split(text.rstrip("/"))
    found = _STEP.fullmatch(name)
    return Place(folder or ".", int(found[1])) if found else Place(text, None)


def place_within(place: Place, checkpoint_id: Path | int) -> Place:
    """The place that a checkpoint_id means in an adapter for ``place``."""
    text = str(checkpoint_id) if isinstance(checkpoint_id, int) else os.fspath(checkpoint_id)
    if os.path.basename(text) != text:
        return place_of(text)
    if text.isascii() and text.isdigit():
        return Place(place.directory, int(text))
    found = _STEP.fullmatch(text)
    return Place(place.directory, int(found[1])) if found else Place(text, None)
