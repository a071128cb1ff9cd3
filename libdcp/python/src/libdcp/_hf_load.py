"""Fills a state from the safetensors of a Hugging Face folder."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _arrays, _hf_names, _lacking, _paths, _union
from ._calls import Loaded
from ._capi import lib
from ._comm import Comm, attempted
from ._read_only import ReadOnly
from ._safetensors import BITS, Folder, Stored
from ._tree import Flat, Row
from .errors import Error, Status, call_all

_MODEL = "/model/"
_SAID_MOST = 8  # names in a message


class _Target(NamedTuple):
    """A tensor of the state and its name in the folder."""

    row: Row
    name: str


def _config(path: str) -> dict[str, Any]:
    """What config.json contains; empty if there is none."""
    file = os.path.join(path if os.path.isdir(path) else os.path.dirname(path), "config.json")
    try:
        with open(_paths.open_regular(file), encoding="utf-8") as stream:
            found = json.load(stream)
    except FileNotFoundError:
        return {}
    except OSError as e:
        raise Error(f"{file} cannot be read: {e.strerror}", status=Status.IO, path=file) from e
    except (ValueError, RecursionError) as e:
        raise Error(f"{file}: is no JSON ({e})", status=Status.CORRUPT, path=file) from None
    return found if isinstance(found, dict) else {}


def _targets(flat: Flat, tensors: Mapping[str, Stored]) -> list[_Target]:
    """The tensors of the state: those below "model" with their names in the folder, others with their paths."""
    names = [row.path.removeprefix(_MODEL) for row in flat.all_rows if row.path.startswith(_MODEL)]
    unwrapped = _hf_names.unwrapper(names)

    def name_of(path: str) -> str:
        name = path.removeprefix(_MODEL)
        return name if name == path or name in tensors else unwrapped(name)
    return [_Target(row, name_of(row.path)) for row in flat.all_rows]


def _sources(targets: Sequence[_Target], tensors: Mapping[str, Stored], config: Mapping[str, Any]) -> dict[str, str]:
    """For each name, the tensor of the folder from which it is loaded. If tensors share their memory, or config.json
    ties them, the folder needs only one of them."""
    found = {target.name: target.name for target in targets if target.name in tensors}
    by_memory = {_arrays.memory(target.row.value): target.name for target in targets if target.name in found}
    embedding = _hf_names.embedding_of(config, tensors)
    for target in targets:
        shared = _arrays.memory(target.row.value)
        if target.name in found:
            continue
        if shared is not None and shared in by_memory:
            found[target.name] = by_memory[shared]
        elif target.name == _hf_names.COPY and embedding:
            found[target.name] = embedding
    return found


def _listed(names: Sequence[str]) -> str:
    more = [f"{len(names) - _SAID_MOST} more"] if len(names) > _SAID_MOST else []
    return ", ".join([*names[:_SAID_MOST], *more])


def _refuse_differences(path: str, missing: Sequence[str], unexpected: Sequence[str]) -> None:
    said = [f"the folder lacks {_listed(missing)}"] if missing else []
    said += [f"the state lacks {_listed(unexpected)}"] if unexpected else []
    if said:
        raise Error(f"{path}: {'; '.join(said)}: make both sides agree, or load with strict=False", path=path,
                    status=Status.NOT_FOUND if missing else Status.MISMATCH)


def _pieces(target: _Target, stored: Stored, cast: bool, path: str, read_only: ReadOnly) -> list[_arrays.Piece]:
    found = _arrays.pieces(target.row.value, target.row.keys)
    wanted = Stored(found[0].dtype, found[0].shape)
    if wanted.shape != stored.shape or wanted.dtype != stored.dtype and not cast:
        hint = "; cast=True converts" if wanted.shape == stored.shape else ""
        raise Error(f"{target.row.keys}: {wanted.said} in the state, and {stored.said} in {path}{hint}", path=path,
                    status=Status.MISMATCH, tensor=target.row.path)
    if lib.convert(stored.dtype, None, wanted.dtype, None, 0):
        raise Error(f"{target.row.keys}: {stored.said} in {path} does not convert to {wanted.said}", path=path,
                    status=Status.UNSUPPORTED, tensor=target.row.path)
    for piece in found:
        if read_only.has(piece):
            raise ValueError(f"{target.row.keys}: a read-only array, which can't be loaded into")
        if not (piece.owner is None or isinstance(piece.owner, np.ndarray) or _arrays.is_torch_tensor(piece.owner)):
            raise TypeError(f"{target.row.keys}: a {type(piece.owner).__name__}; only numpy arrays and torch tensors "
                            "are loaded from a Hugging Face folder")
    return found


def _converted(bits: npt.NDArray[Any], of: int, to: int) -> npt.NDArray[Any]:
    if of == to:
        return bits
    made = np.empty(bits.shape, BITS[_arrays.n_bytes(_arrays.DTYPES[to - 1], ())])
    dense = np.ascontiguousarray(bits)
    lib.convert(of, dense.ctypes.data, to, made.ctypes.data, dense.size)
    return made


def _put(piece: _arrays.Piece, start: Sequence[int], bits: npt.NDArray[Any]) -> None:
    index: Any = (*(slice(s - first, s - first + n) for s, first, n in zip(start, piece.start, bits.shape)), ...)
    if isinstance(piece.owner, np.ndarray):
        piece.owner[index].view(bits.dtype)[...] = bits
        return
    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        piece.owner.detach()[index].copy_(torch.from_numpy(bits).view(piece.owner.dtype))


class _Loading:
    """A load on one rank."""

    def __init__(self, comm: Comm, folder: Folder, config: dict[str, Any], path: str, state: Mapping[Any, Any],
                 cast: bool) -> None:
        self._folder = folder
        self._path = path
        self._cast = cast
        self.config = config
        self._goes_on = comm.size > 1
        self._flat = Flat(state, asks_all=self._goes_on)
        self._targets = _targets(self._flat, folder.tensors)
        self._sources = _sources(self._targets, folder.tensors, config)
        self._planned: list[tuple[_arrays.Piece, str]] = []

    def told(self) -> dict[str, Any]:
        """For the other ranks: the names of this rank's tensors, and from which tensors of the folder they are
        loaded."""
        return {"names": dict.fromkeys((target.name for target in self._targets), 0), "sources": self._sources}

    def use(self, told: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Returns the names that only ranks' states have, and those that only the folder has."""
        self._sources = told["sources"]
        copy = {_hf_names.COPY} if _hf_names.embedding_of(self.config, self._folder.tensors) else set()
        used = copy | set(self._sources.values())
        return ([name for name in told["names"] if name not in self._sources],
                [name for name in self._folder.tensors if name not in used])

    def plan(self) -> None:
        """Called before anything is changed."""
        read_only = ReadOnly()
        for target in self._targets:
            source = self._sources.get(target.name)
            if source is not None:
                pieces = _pieces(target, self._folder.tensors[source], self._cast, self._path,
                                 read_only)
                self._planned += [(piece, source) for piece in pieces]

    def fill(self) -> None:
        for piece, source in self._planned:
            for start, bits in self._folder.boxes(source, piece.start, piece.extent):
                _put(piece, start, _converted(bits, self._folder.tensors[source].dtype, piece.dtype))

    def give_back(self) -> None:
        """Passes each object its state dict, whose tensors were loaded in place."""
        call_all((functools.partial(found.value.load_state_dict, found.given) for found in self._flat.objects.values()
                  if not _lacking.is_module(found.value)), self._goes_on)  # a module's state dict has its own tensors


def load(comm: Comm, path: str, strict: bool, cast: bool, state: Mapping[Any, Any]) -> Loaded:
    """See :func:`libdcp.hf.load`."""
    with contextlib.ExitStack() as closing:
        def opened() -> tuple[Folder, dict[str, Any]]:
            folder = Folder(path)
            closing.callback(folder.close)
            return folder, _config(path)
        folder, config = attempted(comm, opened)  # before state_dict() of the state's objects, which may be collective
        loading = attempted(comm, lambda: _Loading(comm, folder, config, path, state, cast), may_be_collective=True)
        part = _union.part_of(loading.told(), everywhere=True)
        comm.agree_on([part], 1, None)
        missing, unexpected = loading.use(part.value)
        attempted(comm, lambda: _refuse_differences(path, missing, unexpected) if strict else None)
        attempted(comm, loading.plan)
        attempted(comm, loading.fill)
        # Once all ranks have read everything, since load_state_dict() may be collective, too.
        attempted(comm, loading.give_back, may_be_collective=True)
        return Loaded({"model": loading.config} if loading.config else {}, missing, unexpected)
