"""The storage writer for torch.distributed.checkpoint."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from . import _checked, _dcp_nested, _dcp_ranks, _dcp_state, _options, _paths, _signals
from ._dcp_contents import Stored
from ._dcp_place import Place, place_of, place_within
from ._dcp_planner import saves_by_default, variable_of_torch
from ._options import Report, SaveKeywords
from ._comm import attempted, working
from .checkpoint import Checkpoint
from .store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10


class Writer(StorageWriter):
    """Saves steps: the ``storage_writer`` of torch.distributed.checkpoint's ``save`` and ``async_save``.

    Args:
        path: a directory of steps, or a step in it: see :mod:`libdcp.dcp`.
        step: the step's number; by default the number in the path or the checkpoint_id, or, if they contain none, the
            number after the newest step's.
        keep, replace: see :class:`libdcp.Store`.
        continue_from: the run continues from this step: later ones are set aside before the save.
        json: additional members of the checkpoint's JSON object.
        options: as in :func:`libdcp.save`: layout, engine, replicas, staging_bytes, progress and others.

    Failures are :class:`libdcp.Error` inside torch's CheckpointException, on all ranks; older steps are not changed. An
    object that JSON cannot represent causes a TypeError there, which names the object's key.

    Attributes:
        report: the last save's report; None before the first save.
    """

    def __init__(self, path: str | os.PathLike[str], *, step: int | None = None, keep: int = 0, replace: bool = False,
                 continue_from: int | None = None, json: Mapping[str, Any] | None = None,
                 **options: Unpack[SaveKeywords]) -> None:
        super().__init__()
        _options.save_options(_options.Failures(), options)  # rejects invalid options now
        self._place = place_of(path, step)
        stores = _checked.checked("libdcp.dcp.Writer", {"keep": keep, "replace": replace}, _checked.STORES)
        _checked.checked("libdcp.dcp.Writer", {"json": json}, _checked.SAVES)
        self._keep, self._replace = stores["keep"], stores["replace"]
        self._continue_from = None if continue_from is None else _checked.step(continue_from)
        self._json = dict(json or {})
        self._options = options
        self._plans_itself = False
        self._has_plans = True  # false for a save without collectives
        self._wrapper: Any = None  # torch's, of this save
        self._written = ""
        self.report: Report | None = None

    @property
    def checkpoint_id(self) -> str:
        """The target of the next save."""
        return self._place.path

    def __getstate__(self) -> dict[str, Any]:
        """The state to pickle when another process saves instead of this one."""
        return {**self.__dict__, "_wrapper": None}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Returns true for a path in a file system."""
        return not _paths.is_url(checkpoint_id)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._place = place_within(self._place, checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._plans_itself = saves_by_default(variable_of_torch("planner"))
        self._has_plans = bool(kwargs.get("use_collectives", True))
        self._wrapper = variable_of_torch("distW")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        rank = _dcp_ranks.own_rank()
        if self._plans_itself:
            return SavePlan([], storage_data=rank, planner_data={})
        return dataclasses.replace(plan, storage_data=rank)

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return [dataclasses.replace(plan, usable=True) if self._plans_itself else plan
                for plan in _dcp_ranks.give_ranks(plans)]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        wrapper, self._wrapper = self._wrapper, None
        with _signals.Shield():
            with closing(_dcp_ranks.group_of(plan.storage_data, wrapper) if self._has_plans else
                         _dcp_ranks.group_without_plans(wrapper)) as group:
                with working(group) as comm:
                    state, inside = attempted(comm, lambda: self._of_plan(plan, planner))
                added = {_dcp_nested.TORCH: {_dcp_nested.INSIDE: inside}} if inside else {}
                self._save(group, state, {**self._json, **added})
        done: Future[list[WriteResult]] = Future()
        done.set_result([])
        return done

    def _of_plan(self, plan: SavePlan, planner: SavePlanner) -> tuple[dict[Any, Any], dict[str, str]]:
        if _dcp_nested.TORCH in self._json:
            raise ValueError(f"json has the key {_dcp_nested.TORCH!r}, which is reserved for data about torch's state "
                             "dict")
        return _dcp_state.of_plan(plan, planner)

    def _save(self, group: _dcp_ranks.Ranks, state: Mapping[Any, Any], members: Mapping[str, Any]) -> None:
        with Store(self._place.directory, group=group, keep=self._keep, replace=self._replace) as store:
            if self._continue_from is not None:
                store.continue_from(self._continue_from)
            step = self._place.step
            if step is None:
                newest = store.newest()
                step = 0 if newest is None else newest + 1
            self.report = store.save(step, state, json=members, **self._options)
        self._written = Place(self._place.directory, step).path

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Gives torch the metadata of what was saved, if it has none from its own planning."""
        if self._plans_itself:
            with Checkpoint(self._written) as checkpoint:
                stored = Stored(checkpoint).metadata()
            metadata.state_dict_metadata.update(stored.state_dict_metadata)
            metadata.planner_data = stored.planner_data
