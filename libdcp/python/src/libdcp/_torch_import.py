"""Reads the state in a file of torch.save for conversion to a step."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from . import _names, _paths
from ._dcp_archive import Files
from ._torch_values import Skip, Values
from .errors import Error, Status

_ZIP = b"PK\3\4"
_FLAT = ("flat_param", "_flat_param")  # of FSDP1's LOCAL_STATE_DICT


@contextlib.contextmanager
def opened(folder: str) -> Iterator[Files]:
    """The files of a folder, until the end of the block."""
    files = Files(folder)
    try:
        yield files
    finally:
        files.close()


def begins_as_zip(path: str) -> bool:
    """Returns true for a file that torch.save may have written."""
    with open(_paths.open_regular(path), "rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def _refuse_flat(path: str, state: dict[Any, Any]) -> None:
    """Refuses the flat parameters of FSDP1, which have lost the parameters' names and shapes."""
    for mapping in (state, *(inner for inner in state.values() if isinstance(inner, dict))):
        found = next((key for key in mapping if isinstance(key, str) and key.split(".")[-1] in _FLAT), None)
        if found is not None:
            raise Error(f"{path}: {found} is a flat parameter of FSDP1 (LOCAL_STATE_DICT): save with SHARDED_STATE_DICT by "
                        "torch.distributed.checkpoint, or with FULL_STATE_DICT, and convert that",
                        status=Status.UNSUPPORTED, path=path)


def state_in(files: Files, name: str, skip: Skip | None = None) -> dict[Any, Any]:
    """The state in a file, with :func:`libdcp._source_state.source_in` for each tensor. If it is the state of an
    optimizer alone, it becomes the section "optimizer".

    Args:
        files: must stay open until the state is saved.

    Raises:
        libdcp.Error: it is not a state that torch.save wrote, or is damaged.
    """
    values = Values(files, name, skip)
    found = values.value(values.root())
    path = os.path.join(files.folder, name)
    if not isinstance(found, dict):
        raise Error(f"{path} has a {type(found).__name__}, not a mapping of names to tensors: save a state_dict()",
                    status=Status.UNSUPPORTED, path=path)
    _refuse_flat(path, found)
    return {"optimizer": found} if _names.is_optimizer(found) else found
