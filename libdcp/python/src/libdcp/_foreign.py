"""Guesses what a directory or file without steps is, and how its contents can become a step: for messages."""

from __future__ import annotations

import fnmatch
import itertools
import logging
import os
from collections.abc import Callable
from typing import NamedTuple

from . import _paths
from .errors import Error, Status

log = logging.getLogger("libdcp")

_MOST_NAMES = 10000  # examined in a directory
_MOST_FOLDERS = 100  # of these names, tried as folders and examined inside
_TORCH_FILES = ("*.pt", "*.pth", "*.ckpt", "*.bin", "*.tar")
_ZIP, _PICKLE, _HDF5 = b"PK\3\4", b"\x80\2", b"\x89HDF\r\n\x1a\n"
_USER_BLOCK = 4096  # bytes of a step's file before HDF5's own header


class _Look(NamedTuple):
    """What was found in a directory."""

    path: str
    names: list[str]

    def find(self, *globs: str) -> str | None:
        """The first name that matches one of the globs."""
        return next((name for glob in globs for name in fnmatch.filter(self.names, glob)), None)


def _of_accelerate(at: _Look) -> str | None:
    if at.find("random_states_[0-9]*.pkl") and at.find("model.safetensors", "pytorch_model*.bin"):
        return (f"{at.path} is a folder of accelerate's save_state: `python -m libdcp.convert {at.path} DIRECTORY` makes a "
                "step of it")
    found = at.find("pytorch_model_fsdp_[0-9]*")
    if found and os.path.isfile(os.path.join(at.path, found, ".metadata")):
        return (f"{at.path} is a checkpoint of accelerate in torch.distributed.checkpoint's format: "
                f"`python -m libdcp.convert {at.path} DIRECTORY` makes a step of model and optimizer")
    return None


def _of_torch_distributed(at: _Look) -> str | None:
    if at.find(".metadata", "__*.metadata"):
        return (f"{at.path} is a checkpoint of torch.distributed.checkpoint: `python -m libdcp.convert {at.path} DIRECTORY` "
                "makes a step of it")
    if at.find("*.distcp"):
        return (f"{at.path} has files of torch.distributed.checkpoint and no .metadata, which is written last: that save has "
                "not been completed")
    return None


def _of_deepspeed(at: _Look) -> str | None:
    if at.find("zero_to_fp32.py", "mp_rank_*_model_states.pt", "zero_pp_rank_*"):
        return f"{at.path} is a checkpoint of DeepSpeed: `python -m libdcp.convert {at.path} DIRECTORY` makes a step of it"
    return None


def _of_orbax(at: _Look) -> str | None:
    if at.find("_CHECKPOINT_METADATA", "manifest.ocdbt", "ocdbt.process_*"):
        return (f"{at.path} is a checkpoint of Orbax: restore it with Orbax as numpy arrays, and save these with "
                "libdcp.save")
    return None


def _of_hugging_face(at: _Look) -> str | None:
    if at.find("*.safetensors", "*.safetensors.index.json"):
        return (f"{at.path} is a Hugging Face folder: `libdcp import {at.path} DIRECTORY` makes step 0 of its weights; "
                "the program that wrote other files of the folder can read them")
    return None


def _of_torch_save(at: _Look) -> str | None:
    if at.find("about.json"):  # a step, whose files of redundancy have the same suffix as torch's
        return None
    found = at.find(*_TORCH_FILES)
    path = os.path.join(at.path, found or "")
    return f"{at.path} has files of torch.save, such as {found}: {_by_torch(path)}" if found and os.path.isfile(path) else None


def _by_torch(path: str) -> str:
    return f"`python -m libdcp.convert {path} DIRECTORY` makes a step of it"


def _own(at: _Look) -> str | None:
    found = at.find("step-[0-9]*")
    inside = found and (_look(os.path.join(at.path, found)) or _Look("", [])).find("state.h5", "shard-*.h5")
    return f"the steps are in {at.path}" if inside else None


def _look(path: str) -> _Look | None:
    try:
        with os.scandir(path) as found:
            return _Look(path, sorted(entry.name for entry in itertools.islice(found, _MOST_NAMES)))
    except OSError:
        return None


_KINDS: tuple[Callable[[_Look], str | None], ...] = (_of_accelerate, _of_torch_distributed, _of_deepspeed, _of_orbax,
                                                     _of_hugging_face)


def _kind_of_directory(at: _Look) -> str | None:
    inner = filter(None, (_look(os.path.join(at.path, name)) for name in at.names[:_MOST_FOLDERS]))
    folders = ((folder, kind) for folder in inner for kind in (_own, *_KINDS, _of_torch_save))
    looks = itertools.chain(((at, kind) for kind in _KINDS), folders, [(at, _of_torch_save)])
    return next(filter(None, (kind(where) for where, kind in looks)), None)


def _kind_of_file(path: str) -> str | None:
    try:
        with open(_paths.open_regular(path), "rb") as file:
            begin = file.read(_USER_BLOCK + len(_HDF5))
    except (OSError, Error):
        return None
    if begin[_USER_BLOCK:] == _HDF5 and os.path.basename(path).startswith(("state", "shard-")):
        return f"it is a file of a step: pass its folder, {os.path.dirname(path) or '.'}"
    if path.endswith(".safetensors"):
        return "it is a file of safetensors: `libdcp import FOLDER DIRECTORY` makes a step of the folder that it is in"
    if begin.startswith(_PICKLE):
        return ('it seems to be a pickle, maybe of torch.save before PyTorch 1.6: libdcp.save(DIRECTORY, step, torch.load('
                f'"{path}", map_location="cpu", weights_only=True)) makes a step of it')
    if begin.startswith(_ZIP):
        return f"it seems to be a file of torch.save: {_by_torch(path)}"
    return None


def kind(path: str) -> str | None:
    """What the path is; None if it is of no known kind, or cannot be read."""
    at = _look(path)
    return _kind_of_directory(at) if at else _kind_of_file(path)


def told(error: Error, path: str) -> str:
    """An error's message, and, if it may mean that there is no step at the path, what is there instead."""
    found = kind(path) if error.status in (Status.NOT_FOUND, Status.CORRUPT, Status.ARG) else None
    return f"{error}; {found}" if found else str(error)


def warn(path: str) -> None:
    """Warns about a store's directory without steps: a run that looks for steps there would silently start anew."""
    found = kind(path)
    if found:
        log.warning("%s has no steps; %s", path, found)
