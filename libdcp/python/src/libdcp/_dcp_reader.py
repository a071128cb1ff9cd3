"""The storage reader for torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
import io
import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from . import _arrays, _calls, _dcp_ranks, _dcp_state, _options, _paths
from ._arrays import Piece, Shard
from ._comm import attempted, working
from ._dcp_contents import Stored
from ._dcp_place import Place, place_of, place_within
from ._dcp_planner import loads_by_default, variable_of_torch
from ._options import Engine, Progress
from .checkpoint import Checkpoint
from .errors import Error, Status


class Reader(StorageReader):
    """Loads a step, on any number of ranks: the ``storage_reader`` of torch.distributed.checkpoint's ``load``.

    Args:
        path: a step, or a directory of steps, whose newest step is loaded: see :mod:`libdcp.dcp`.
        step: the number of the step in the directory, instead of one in the path.
        cast: tensors of a different dtype are converted; without it, they are an error.
        engine, progress: as in :func:`libdcp.load`.

    A missing key, or a tensor of a different shape, is an error of torch's planner; all other errors are
    :class:`libdcp.Error` inside torch's CheckpointException, on all ranks.
    """

    def __init__(self, path: str | os.PathLike[str], *, step: int | None = None, cast: bool = False,
                 engine: Engine = "auto", progress: Progress | None = None) -> None:
        super().__init__()
        self._place = place_of(path, step)
        self._options = _options.checked_load({"cast": cast, "engine": engine, "progress": progress, "strict": False})
        self._checkpoint: Checkpoint | None = None
        self._stored: Stored | None = None
        self._failure: Error | None = None
        self._plans_itself = False
        self._wrapper: Any = None  # torch's, of this load

    @property
    def checkpoint_id(self) -> str:
        """What the next load reads."""
        return self._place.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns true for a path from which a step can be loaded."""
        return not _paths.is_url(checkpoint_id) and os.path.isdir(place_of(checkpoint_id).path)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._place = place_within(self._place, checkpoint_id)

    def read_metadata(self, *args: Any, **ignored: Any) -> Metadata:
        """The contents, as torch's planners require them. A failure is raised in the function that torch calls next,
        since here torch would turn it into another exception."""
        self._close()
        try:
            self._checkpoint = Checkpoint(self._place.path)
            self._stored = Stored(self._checkpoint)
            return self._stored.metadata()
        except BaseException as e:
            self._close()
            if not isinstance(e, Error):
                raise
            self._failure = e
            return Metadata({})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        self._plans_itself = loads_by_default(variable_of_torch("planner"))
        self._wrapper = variable_of_torch("distW")

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        assert self._checkpoint is not None
        data = (_dcp_ranks.own_rank(), self._checkpoint.step)
        return LoadPlan([], storage_data=data) if self._plans_itself else dataclasses.replace(plan, storage_data=data)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        found = {plan.storage_data[1] for plan in plans}
        if len(found) > 1:
            raise Error(f"{self._place.path}: ranks see different newest steps, {sorted(found)}; name the step",
                        status=Status.MISMATCH, path=self._place.path)
        return _dcp_ranks.give_ranks([dataclasses.replace(p, storage_data=p.storage_data[0]) for p in plans])

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        assert self._checkpoint is not None and self._stored is not None
        load = _Load(self._stored)
        wrapper, self._wrapper = self._wrapper, None
        try:
            with closing(_dcp_ranks.group_of(plan.storage_data, wrapper)) as group, working(group) as comm:
                attempted(comm, lambda: load.collect(plan, planner))
                whole = _dcp_state.by_path(load.tensors)
                if not comm.all(not whole):
                    _calls.load_path(comm, self._checkpoint.path, whole, self._options)
        finally:
            self._close()
        load.finish()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _close(self) -> None:
        if self._checkpoint is not None:  # a checkpoint without tensors is falsy
            self._checkpoint.close()
        self._checkpoint = self._stored = None


class _Load:
    """What a rank loads: the addresses of tensors, and what to do after they are filled."""

    def __init__(self, stored: Stored) -> None:
        self._stored = stored
        self.tensors: _dcp_state.Tensors = {}
        self._after: list[Callable[[], None]] = []

    def collect(self, plan: LoadPlan, planner: Any) -> None:
        with torch.no_grad():  # inside it, getting the local tensors of DTensors is fast
            if loads_by_default(planner):
                for name, value in planner.state_dict.items():
                    self._add(name, value, planner)
            else:
                for item in plan.items:
                    self._add_item(item, planner)

    def finish(self) -> None:
        for function in self._after:
            function()

    def _add_pieces(self, path: str, found: list[Piece]) -> None:
        self.tensors.setdefault(path, []).extend(found)

    def _add(self, name: str, value: Any, planner: Any) -> None:
        """Adds what a planner like torch's default one has under a name."""
        if name in self._stored.paths:
            self._add_pieces(self._stored.paths[name], _arrays.pieces(value, name))
        elif self._stored.has_object(name):
            arrays = self._arrays(name)
            keys = planner.mappings.get(name, (name,))
            root = planner.original_state_dict if planner.flatten_state_dict else planner.state_dict

            def put() -> None:
                loaded = self._stored.object(name, arrays)
                as_tuple = isinstance(value, tuple) and isinstance(loaded, list)
                set_element(root, keys, tuple(loaded) if as_tuple else loaded)
            self._after.append(put)

    def _arrays(self, name: str) -> dict[str, Any]:
        """Memory for the arrays in an object, by path."""
        made: dict[str, Any] = {}
        for path, kind in self._stored.arrays_of(name).items():
            entry = self._stored.entry(path)
            made[path] = (np.empty(entry.shape, _arrays.numpy_dtype(entry.dtype)) if kind == "numpy" else
                          torch.empty(entry.shape, dtype=_arrays.torch_dtype(_arrays.dtype_number(entry.dtype)), device="cpu"))
            self._add_pieces(path, _arrays.pieces(made[path], path))
        return made

    def _add_item(self, item: ReadItem, planner: Any) -> None:
        name = item.storage_index.fqn
        if item.type == LoadItemType.BYTE_IO:
            arrays = self._arrays(name)
            self._after.append(lambda: planner.load_bytes(item, _as_bytes(self._stored.object(name, arrays))))
            return
        target = planner.resolve_tensor(item)
        start = tuple(a + b for a, b in zip(item.storage_index.offset or (), item.storage_offsets))
        path = self._stored.paths[name]
        self._add_pieces(path, _arrays.pieces(Shard(target.detach(), self._stored.entry(path).shape, start), name))
        self._after.append(lambda: planner.commit_tensor(item, target))


def _as_bytes(value: Any) -> io.BytesIO:
    """An object in the form that planners require: they read it with torch.load."""
    made = io.BytesIO()
    torch.save(value, made)
    made.seek(0)
    return made
