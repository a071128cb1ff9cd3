"""Converts a torch.distributed.checkpoint directory to a step, piece by piece and without torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _dcp_archive, _dcp_metadata, _dcp_nested, _source_state, _torch_values, _words
from ._arrays import TORCH, Shard
from ._dcp_archive import Files, refuse
from ._dcp_rename import Renames
from ._options import Progress, Report
from ._pickles import Budget
from ._source_state import source_in
from ._sources import Box, Source
from ._torch_values import SKIPS
from .errors import Error, Status
from .store import Path

_JSON_CHARACTERS = 16 << 20

Skip = Callable[[str, str], None]  # arguments: an object's name, and the reason
Leaves = dict[_dcp_metadata.Keys, Any]


def _source(files: Files, fqn: str, tensor: _dcp_metadata.Tensor) -> Source:
    boxes = []
    for chunk in tensor.chunks:
        stored = _dcp_archive.read_tensor(files, chunk.place)
        if (stored.dtype, stored.shape) != (tensor.dtype, chunk.count):
            raise refuse(files.folder, chunk.place.file,
                         f"at byte {chunk.place.offset} there is {stored.dtype} of shape {stored.shape}, but {fqn} "
                         f"should have {tensor.dtype} of shape {chunk.count} there")
        boxes.append(Box(chunk.start, chunk.count, functools.partial(stored.read_into, files)))
    return Source(TORCH[tensor.dtype], tensor.shape, boxes)


def _objects(files: Files, contents: _dcp_metadata.Contents, skip: Skip | None) -> dict[str, Any]:
    """The objects by flat names. An unreadable one is reported to ``skip``; if that is None, it is an error."""
    found: dict[str, Any] = {}
    budget = Budget(_JSON_CHARACTERS)
    for fqn, place in contents.objects.items():
        try:
            values = _torch_values.Values(files, place, budget=budget)
            found[fqn] = values.value(values.root(), (fqn,))
            if any(True for _ in _dcp_nested.arrays_in(found[fqn], lambda value: isinstance(value, (Shard, np.ndarray)))):
                raise TypeError("an object that contains a tensor or an array")
            _words.encoded(found[fqn], (fqn,))
        except (Error, TypeError, ValueError) as e:
            if skip is None:
                raise Error(f"{fqn}: {str(e).removesuffix(SKIPS)}{SKIPS}", status=Status.UNSUPPORTED) from None
            skip(fqn, str(e))
            found[fqn] = _words.Absent()
    return found


class _Part(NamedTuple):
    """A directory, and its contents according to its metadata."""

    files: Files
    contents: _dcp_metadata.Contents


_Name = tuple[int, str]  # the part's number, and the flat name in it


def _refuse_twice(parts: list[_Part], keys: Mapping[_Name, _dcp_metadata.Keys]) -> None:
    had: dict[_dcp_metadata.Keys, _Name] = {}
    for name, leading in keys.items():
        other = had.setdefault(leading, name)
        if other == name:
            continue
        first, second = (parts[number].files.folder for number, _ in (other, name))
        if first == second:
            raise refuse(first, _dcp_metadata.FILE, "several tensors or objects have the same keys")
        raise Error(f"{first} and {second} both have {name[1]}: convert one of them alone", status=Status.UNSUPPORTED,
                    path=second)


def _declare(parts: list[_Part], renames: Renames, skip: Skip | None) -> dict[Any, Any]:
    keys = renames.of_all({(i, fqn): part.contents.keys.get(fqn, (fqn,)) for i, part in enumerate(parts)
                           for fqn in (*part.contents.tensors, *part.contents.objects)})
    _refuse_twice(parts, keys)
    leaves: Leaves = {}
    for i, (files, contents) in enumerate(parts):
        leaves.update({keys[i, fqn]: value for fqn, value in _objects(files, contents, skip).items()})
        leaves.update({keys[i, fqn]: source_in(_source(files, fqn, t)) for fqn, t in contents.tensors.items()})
    return _dcp_nested.nested(leaves)


def state_in(opened: list[Files], renames: Renames, skip: Skip | None) -> dict[Any, Any]:
    """The nested state in directories, which must stay open until the state is saved. The other arguments, and the
    errors, are those of :func:`convert`."""
    return _declare([_Part(files, _dcp_metadata.read(files)) for files in opened], renames, skip)


def convert(folders: Sequence[str], directory: Path, step: int, *, renames: Renames = Renames(()), skip: Skip | None = None,
            progress: Progress | None = None) -> Report:
    """Makes a step from a torch.distributed.checkpoint directory, or from several that contain parts of one state.

    Args:
        folders: the directories, each with ``.metadata`` in it.
        directory: the directory of the steps.
        step: the number of the new step, which must not exist.
        renames: other keys for some of what was saved.
        skip: called with the name of each object that is not a tensor and cannot be stored, and the reason; None: that
            is an error.
        progress: as in :func:`libdcp.save`.

    Raises:
        libdcp.Error: CORRUPT: the directory is damaged, or is not what it seems; or the step could not be saved.
        ValueError, TypeError: a step cannot have these names or objects.
    """
    opened = list(map(Files, folders))
    try:
        return _source_state.save(directory, step, state_in(opened, renames, skip), progress)
    finally:
        for files in opened:
            files.close()
