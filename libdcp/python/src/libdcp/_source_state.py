"""A nested state in which a :class:`Source` represents each tensor, to be saved without being in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from . import _arrays, _tree, _words
from ._arrays import Shard
from ._options import Progress, Report
from ._sources import Box, Source, SourceState
from .store import Path, Store


def source_in(source: Source) -> Shard:
    """The value that represents the tensor in a state."""
    return Shard(source, source.shape, (0,) * len(source.shape))


def of_array(array: Any) -> Source:
    """The source for an array in memory."""
    data = array.tobytes()

    def read(offset: int, into: memoryview) -> None:
        into[:] = data[offset:offset + len(into)]
    dtype = _arrays.DTYPES[_arrays.pieces(array, "")[0].dtype - 1]
    return Source(dtype, array.shape, [Box((0,) * array.ndim, array.shape, read)] if array.size else [])


def _is_empty(value: Any) -> bool:
    return isinstance(value, dict) and not value


def without_absent(value: Any) -> Any:
    """A copy of the value without its :class:`Absent` members, and without mappings that contained nothing else. Lists
    keep their length: None replaces an absent item."""
    if type(value) in (dict, OrderedDict):
        kept = {key: without_absent(inner) for key, inner in value.items() if not isinstance(inner, _words.Absent)}
        return type(value)((key, inner) for key, inner in kept.items() if not _is_empty(inner) or _is_empty(value[key]))
    if isinstance(value, list):
        return [None if isinstance(inner, _words.Absent) else without_absent(inner) for inner in value]
    return value


def _declare(nested: Mapping[Any, Any]) -> SourceState:
    sources = {path: value.array if isinstance(value, Shard) else of_array(value)
               for path, _, value in _tree.tensors(nested)}
    for path, source in sources.items():
        if path.startswith("/files/") and (source.dtype, len(source.shape)) != ("U8", 1):
            raise ValueError(f"{path}: in the section files, an import stores files, as bytes, for an export; --rename "
                             "files=NEW puts these tensors into another section")
    return SourceState(sources, without_absent(nested))


def save(directory: Path, step: int, nested: Mapping[Any, Any], progress: Progress | None = None) -> Report:
    """Makes a step of a state.

    Args:
        directory: the directory of the steps.
        step: the new step's number; there must be no such step.
        nested: the state, with the results of :func:`source_in` as tensors; :class:`libdcp._words.Absent` members are
            left out.

    Raises:
        libdcp.Error: a tensor could not be read, or the step could not be saved.
        ValueError, TypeError: a step cannot have these names or objects.
    """
    state = _declare(nested)
    try:
        with Store(directory) as store:
            return store.save(step, state, progress=progress)
    finally:
        state.close()
