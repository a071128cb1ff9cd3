"""Saves the checkpoints of torchtitan 0.3 and later as steps of a libdcp store.

In the function of a ``config_registry`` that makes the trainer's configuration::

    checkpoint=libdcp.torchtitan.CheckpointManager.Config(enable=True, interval=500, async_mode="async")

or, for a configuration with torchtitan's own manager, on the command line::

    --override.imports libdcp.torchtitan.use_libdcp

Needs torchtitan; ``import libdcp`` does not.
"""

from __future__ import annotations

import glob
import importlib
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _hf_export, _names, _paths, _tree, store
from ._arrays import Shard
from ._comm import attempted, working
from .checkpoint import Checkpoint
from .errors import Error, Status
from .ranks import Loader, Rows, Shape, Stateful
from .saving import Saving

torch: Any = importlib.import_module("torch")
_dist: Any = importlib.import_module("torch.distributed")
_base: Any = importlib.import_module("torchtitan.components.checkpointer.base")
_own: Any = importlib.import_module("torchtitan.components.checkpointer.dcp")
_data: Any = importlib.import_module("torchtitan.components.dataloader")
_config: Any = importlib.import_module("torchtitan.config")
_override: Any = importlib.import_module("torchtitan.config.override")
_trace: Any = importlib.import_module("torchtitan.observability.structured_logger")
_files: Any = importlib.import_module("torchtitan.tools.filesystem")
_log: Any = importlib.import_module("torchtitan.tools.logging").logger

MODEL, OPTIMIZER, DATALOADER = "model", "optimizer", "dataloader"
_TUPLE, _ITEMS = "tuple", "items"  # keys of JSON objects that represent what JSON cannot
_LEAST_ROOM = 4096


def _to_json(value: Any) -> Any:
    """Represents tuples, and keys that are not strings: JSON has neither, but the states of torchtitan's loaders have
    both."""
    if isinstance(value, tuple):
        return {_TUPLE: [_to_json(inner) for inner in value]}
    if isinstance(value, list):
        return [_to_json(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if all(type(key) is str for key in value) and not value.keys() & {_TUPLE, _ITEMS}:
        return {key: _to_json(inner) for key, inner in value.items()}
    return {_ITEMS: [[_to_json(key), _to_json(inner)] for key, inner in value.items()]}


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {_TUPLE}:
        return tuple(_from_json(inner) for inner in value[_TUPLE])
    if value.keys() == {_ITEMS}:
        return {_from_json(key): _from_json(inner) for key, inner in value[_ITEMS]}
    return {key: _from_json(inner) for key, inner in value.items()}


class _Unpickled:
    """A data loader whose state JSON can represent: torchtitan's class returns its base class's state as a pickle."""

    def __init__(self, dataloader: Any) -> None:
        pickling = _data.ParallelAwareDataloader
        inherits = isinstance(dataloader, pickling) and type(dataloader).state_dict is pickling.state_dict
        self._loader: Any = super(pickling, dataloader) if inherits else dataloader
        self.source = dataloader

    def state_dict(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = _to_json(self._loader.state_dict())
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loader.load_state_dict(_from_json(state_dict))


class _Rows(Loader):
    """A data loader's state, one row per data-parallel rank: ranks that share a batch have equal rows."""

    hook = "a function `reshard` of the data loader"

    def __init__(self, dataloader: Any) -> None:
        own: Any = getattr(dataloader, "reshard", None)

        def reshard(states: list[dict[str, Any]], rank: int, size: int) -> Mapping[str, Any]:
            found: Mapping[str, Any] = _to_json(own([_from_json(state) for state in states], rank, size))
            return found

        super().__init__(_Unpickled(dataloader), reshard=None if own is None else reshard)
        self._place: tuple[int, int] = (getattr(dataloader, "dp_rank", _dist.get_rank()),
                                        getattr(dataloader, "dp_world_size", _dist.get_world_size()))

    @property
    def _source(self) -> Any:
        return self.loader.source  # type: ignore[attr-defined]

    def needs(self) -> int:
        """The size of the state as JSON, without tensors, in bytes; 0 if JSON cannot represent the state: then the save
        reports this error on all ranks."""
        try:
            text, arrays = self._text()
        except (TypeError, ValueError):
            return 0
        return len(text) - arrays

    def part(self, rank: int, size: int, stored: Shape | None) -> Shard:
        return super().part(*self._place, stored)

    def restore(self, rows: Rows, rank: int, size: int, name: str) -> None:
        try:
            super().restore(rows, *self._place, name)
        except Error as e:
            if e.status != Status.MISMATCH:
                raise
            raise Error(f'{e}; checkpoint.exclude_from_loading=["{DATALOADER}"] begins with the data anew',
                        status=e.status, tensor=e.tensor) from None


class _Optimizers:
    """torchtitan's container of optimizers. Its state has flat names, ``state.<parameter>.<moment>`` and
    ``param_groups.<parameter>.<option>``, like those that torch's get_state_dict gives to one optimizer's state."""

    def __init__(self, container: Stateful) -> None:
        self._container = container
        self._flat: dict[str, Any] = dict(container.state_dict())
        self._options: dict[str, dict[str, Any]] = {}
        for name, value in self._flat.items():
            if name.startswith("param_groups."):
                parameter, option = name.removeprefix("param_groups.").rsplit(".", 1)
                self._options.setdefault(parameter, {})[option] = value

    def moments(self) -> dict[str, dict[str, Any]]:
        """The moments, by parameter and name."""
        found: dict[str, dict[str, Any]] = {}
        for name, value in self._flat.items():
            if name.startswith("state."):
                parameter, moment = self._split(name.removeprefix("state."))
                found.setdefault(parameter, {})[moment] = value
        return found

    def _split(self, name: str) -> tuple[str, str]:
        """Splits a name into the parameter and the moment. A nested moment has a dot in its name."""
        parameter, _, moment = name.rpartition(".")
        while parameter and parameter not in self._options:
            parameter, _, inner = parameter.rpartition(".")
            moment = f"{inner}.{moment}"
        if not parameter:
            raise ValueError(f"the optimizers' state has {name!r}, which belongs to none of their parameters")
        return parameter, moment

    def groups(self) -> list[dict[str, Any]]:
        """Groups the parameters with the same options.

        Raises:
            TypeError: JSON cannot represent an option.
        """
        found = _grouped([{"params": [parameter], **{option: _number(value) for option, value in options.items()}}
                          for parameter, options in self._options.items()])
        _tree.Flat({OPTIMIZER: {"param_groups": found}})
        return found

    def restore(self, groups: Iterable[Mapping[str, Any]]) -> None:
        """Gives the options to the optimizers, which may process them further. Called after the moments were loaded in
        place."""
        for group in groups:
            for parameter in group["params"]:
                for option in self._options.get(parameter, {}).keys() & group.keys():
                    name = f"param_groups.{parameter}.{option}"
                    self._flat[name] = _as_before(group[option], self._flat[name])
        self._container.load_state_dict(self._flat)


def _grouped(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for group in groups:
        options = {option: value for option, value in group.items() if option != "params"}
        first = found.setdefault(repr(options), {"params": [], **options})
        first["params"] += group["params"]
    return list(found.values())


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _as_before(value: Any, before: Any) -> Any:
    """Converts a value to the type that it had before it was saved, if that was a tuple or a tensor (such as a learning
    rate that a compiled step reads): JSON has neither."""
    if isinstance(before, tuple):
        return tuple(value)
    return torch.full_like(before, value) if isinstance(before, torch.Tensor) else value


class CheckpointManager(_base.BaseCheckpointManager):  # type: ignore[misc]
    """Saves and loads a torchtitan trainer's model, optimizers, learning rates, data loader and progress.

    A step is ``<dump_folder>/<folder>/step-00000500``, with the tensors ``/model/<parameter>``,
    ``/optimizer/<moment>/<parameter>`` and ``/dataloader/state``, one row per data-parallel rank; the rest is in its
    JSON, and nothing is pickled. A step loads on any number of ranks and with any parallelism. The data loader's state
    loads on the same number of data-parallel ranks as saved it. It also loads on a different number if it shows which
    samples were read (:class:`libdcp.Loader`), or if the data loader has a method ``reshard(states, rank, size)`` that
    converts it.

    Build it with :meth:`Config.build`, as torchtitan does; collective.

    Raises:
        libdcp.Error: the same on all ranks; older steps are not changed.
        ValueError: a setting that makes no sense here.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(_base.BaseCheckpointManager.Config):  # type: ignore[misc]
        """torchtitan's checkpoint settings; remote folders are refused."""

        async_mode: Literal["disabled", "async"] = "disabled"
        """Whether a save returns once the step is durable, or continues in the background while training goes on; the
        optimizer's step then waits until the save has copied or written the memory."""

        def __post_init__(self) -> None:
            _base.BaseCheckpointManager.Config.__post_init__(self)
            if self.async_mode not in ("disabled", "async"):
                raise ValueError(f"checkpoint.async_mode={self.async_mode!r}: it is \"disabled\" or \"async\", which "
                                 "copies no more than it has to")
            for name in ("folder", "initial_load_path"):
                _refuse_remote(name, getattr(self, name) or "")

    def __init__(self, config: Config, *, dataloader: Any, model_parts: list[Any], optimizers: Any, lr_schedulers: Any,
                 states: dict[str, Any], sd_adapter: Any, base_folder: str = "") -> None:
        self.enable = config.enable
        self.save_future: Saving | None = None
        if not self.enable:
            return
        self.config = config
        self.folder = os.path.join(base_folder, config.folder)
        _refuse_remote("folder", self.folder)
        self.states = states
        self.states.update({MODEL: _base.ModelWrapper(model_parts), OPTIMIZER: optimizers,
                            _base.LR_SCHEDULER: lr_schedulers, DATALOADER: dataloader})
        unknown = set(config.exclude_from_loading) - set(states)
        if unknown:
            raise ValueError(f"checkpoint.exclude_from_loading: the state has {sorted(states)}, not {sorted(unknown)}")
        if config.last_save_in_hf and sd_adapter is None:
            raise ValueError("checkpoint.last_save_in_hf: needs a model with a state dict adapter")
        self._adapter = sd_adapter
        self._group: Any = _dist.new_group(backend="gloo")
        self._store: store.Store | None = None

    def _load(self, step: int = -1) -> bool:
        with _trace.log_trace_span("checkpoint_load"), torch.no_grad():
            if not self.config.load_only:
                self._opened()
            step = self._newest() if step == -1 else step
            if step >= 0:  # 0 is a seed checkpoint
                path = store.step_path(self.folder, step)
                self._refuse_foreign(path)  # from step 10,000,000 on, torchtitan's own manager uses the same name
                self._load_from(path, step, model_only=step == 0)
                return True
            self._refuse_foreign(os.path.join(self.folder, "step-*"))
            return self._load_initial()

    def _load_initial(self) -> bool:
        path = self.config.initial_load_path
        if self.config.initial_load_in_hf:
            self._load_hugging_face(path)
        elif path:
            self._refuse_foreign(path)
            self._load_from(path, None, model_only=self.config.initial_load_model_only)
        else:
            _log.info(f"{self.folder} has no checkpoint, and there is no initial one: a fresh start.")
            return False
        return True

    def _load_hugging_face(self, path: str | None) -> None:
        """Loads the model's weights under their names in Hugging Face's files, with torch's reader of such files."""
        path = path or getattr(self._adapter, "hf_assets_path", None)
        if self._adapter is None or not path:
            raise ValueError("checkpoint.initial_load_in_hf: needs a model with a state dict adapter, and "
                             "initial_load_path or hf_assets_path")
        _log.info(f"Loading the weights in {path}.")
        theirs = self._adapter.to_hf(self.states[MODEL].state_dict())
        reader = self._adapter.get_hf_storage_reader(path, self.config.initial_load_in_hf_quantized)
        importlib.import_module("torch.distributed.checkpoint").load(theirs, storage_reader=reader)
        self.states[MODEL].load_state_dict(self._adapter.from_hf(theirs))

    def _load_from(self, path: str, step: int | None, *, model_only: bool) -> None:
        """Loads a checkpoint. If ``step`` is not None, this is that step of the run's own folder, and the run continues
        from it."""
        _log.info(f"Loading the checkpoint {path}.")
        excluded = self.states.keys() - {MODEL} if model_only else set(self.config.exclude_from_loading)
        state, optimizers = self._state(self.states.keys() - excluded)
        if optimizers:
            state[OPTIMIZER]["param_groups"] = []  # replaced by what is stored, like any other object
        only = [f"/{key}/*" for key in state] if excluded else None
        if step is None or self.config.load_only:
            members = store.load(path, state, group=self._group, only=only)
        else:
            members = self._opened().load(state, step=step, only=only)
        self._give_back(path, state, optimizers, members.get(_names.OBJECTS, {}))

    def _give_back(self, path: str, state: dict[str, Any], optimizers: _Optimizers | None,
                   objects: Mapping[str, Any]) -> None:
        """Passes the state, whose tensors were loaded in place, to the objects to which its parts belong."""
        for key, value in state.items():
            if key not in (MODEL, DATALOADER) and key not in objects:
                raise Error(f"{path}: has no {key}; name it in checkpoint.exclude_from_loading", path=path,
                            status=Status.NOT_FOUND)
            if optimizers and key == OPTIMIZER:
                optimizers.restore(value["param_groups"])
            elif key != DATALOADER:  # has received it already
                self.states[key].load_state_dict(value)

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        if not self._is_due(curr_step, last_step):
            return False
        with _trace.log_trace_span("checkpoint_save"), torch.no_grad():
            _trace.add_step_tag("checkpoint_save")
            self.maybe_wait_for_saving()
            if last_step and self.config.last_save_in_hf:
                self._save_hugging_face(curr_step)
                return True
            if last_step and self.config.last_save_model_only:
                state: dict[str, Any] = {MODEL: self._exported()}
            else:
                state, _ = self._state(self.states)
            self._make_room(state)
            if last_step or self.config.async_mode == "disabled":
                report = self._opened().save(curr_step, state)
                _log.info(f"Saved the checkpoint of step {curr_step}: {report.bytes} bytes in {report.total_s:.2f} s.")
            else:
                self.save_future = self._opened().save_async(curr_step, state, copy=self.config.async_mode == "async")
                _log.info(f"Saving the checkpoint of step {curr_step} beside the training.")
        return True

    def _save_hugging_face(self, step: int) -> None:
        """Writes the model under its names in Hugging Face's files into ``<folder>/step-N``, as torchtitan's own
        manager does, and replaces anything that is there. Writes no config.json, which torchtitan does not have."""
        out, work = self._exports_to(step), os.path.join(self.folder, f".hf-step-{step}")
        theirs = self._adapter.to_hf(self._exported())
        split = getattr(self._adapter, "fqn_to_index_mapping", None) or _hf_export.ONE_FILE
        with working(self._group) as comm:
            attempted(comm, lambda: None if comm.rank else shutil.rmtree(work, ignore_errors=True))
        store.save(work, step, {MODEL: theirs}, group=self._group)

        def export() -> None:
            replaced = os.path.join(work, "replaced")
            try:
                with Checkpoint(work) as checkpoint:
                    _hf_export.write(checkpoint, os.path.join(work, "hf"), None, split)
                if os.path.lexists(out):
                    os.rename(out, replaced)
                os.rename(os.path.join(work, "hf"), out)
                _paths.sync_folder(self.folder)
            except BaseException:
                if os.path.lexists(replaced) and not os.path.lexists(out):
                    os.rename(replaced, out)
                raise
            finally:
                shutil.rmtree(work, ignore_errors=True)
        with working(self._group) as comm:
            attempted(comm, lambda: None if comm.rank else export())
        _log.info(f"Saved the model as the Hugging Face folder {out}.")

    def _exports_to(self, step: int) -> str:
        """torchtitan's path for a step. From step 10,000,000 on, libdcp uses the same path, so an exported folder might
        replace a step: then "-hf" is appended to the path."""
        path = os.path.join(self.folder, f"step-{step}")
        return f"{path}-hf" if os.path.basename(path) == os.path.basename(store.step_path("", step)) else path

    def _is_due(self, step: int, last_step: bool) -> bool:
        if self.config.load_only:
            return False
        first = step == 1 and self.config.enable_first_step_checkpoint
        return first or last_step or step % self.config.interval == 0

    def _state(self, keys: Iterable[str]) -> tuple[dict[str, Any], _Optimizers | None]:
        """Returns what is saved or loaded, one section per key, and the optimizers if they are included."""
        found: dict[str, Any] = {}
        optimizers = None
        for key in sorted(keys):
            value = self.states[key]
            if key == OPTIMIZER:
                optimizers = _Optimizers(value)
                found[key] = {"state": optimizers.moments(), "param_groups": optimizers.groups()}
            elif key != DATALOADER:
                found[key] = dict(value.state_dict())
            elif value is not None:
                found[key] = {"state": _Rows(value)}
        return found, optimizers

    def _make_room(self, state: Mapping[str, Any]) -> None:
        """Gives all rows of the data loader's state the same length, if possible the previous one. Collective."""
        if DATALOADER in state:
            rows = state[DATALOADER]["state"]
            needed = torch.tensor(rows.needs(), device="cpu")
            _dist.all_reduce(needed, _dist.ReduceOp.MAX, group=self._group)
            rows.room = max(_LEAST_ROOM, 1 << (int(needed) - 1).bit_length())

    def _exported(self) -> dict[str, Any]:
        dtype = _config.TORCH_DTYPE_MAP[self.config.export_dtype]
        return {name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for name, value in self.states[MODEL].state_dict().items()}

    def _newest(self) -> int:
        """The newest step of the folder; -1 if there is none. Collective."""
        return max(self._of_first(lambda: store.steps(self.folder)[-1:]), default=-1)

    def _of_first(self, look: Callable[[], list[int]]) -> list[int]:
        """Returns on all ranks what the function returns on rank 0, or fails on all: file systems may show changes of
        the folder late to some ranks. Collective."""
        with working(self._group) as comm:
            return comm.numbers(attempted(comm, lambda: [] if comm.rank else look()))

    def _refuse_foreign(self, pattern: str) -> None:
        """Raises ValueError, or libdcp.Error on the other ranks, if rank 0 sees a checkpoint of
        torch.distributed.checkpoint: otherwise the run would ignore its existing steps and start anew. Collective."""
        def look() -> list[int]:
            for path in glob.glob(os.path.join(pattern, ".metadata")):
                raise ValueError(f"{os.path.dirname(path)} is a checkpoint of torch.distributed.checkpoint; convert "
                                 "it by python -m libdcp.convert, or load and save it by torchtitan's own manager")
            return []
        self._of_first(look)

    def _opened(self) -> store.Store:
        if self._store is None:
            self._store = store.Store(self.folder, group=self._group, keep=self.config.keep_latest_k)
        return self._store

    def _maybe_wait_for_staging(self) -> None:
        if self.save_future is not None:
            self.save_future.fence()

    def _wait_for_saving(self) -> None:
        assert self.save_future is not None  # ensured by the base class
        saving, self.save_future = self.save_future, None
        saving.wait()

    def _close(self) -> None:
        opened, self._store, self.save_future = self._store, None, None
        if opened is not None:
            opened.close()


def _refuse_remote(name: str, path: str) -> None:
    if _files.is_remote(path):
        raise ValueError(f"checkpoint.{name}={path}: libdcp saves to and loads from file systems")


def use_libdcp(config: Any) -> CheckpointManager.Config:
    """Replaces torchtitan's own manager, with the same settings."""
    found: CheckpointManager.Config = _override.derive(config, CheckpointManager.Config)
    return found


_override.override(target=_own.CheckpointManager.Config, exact=True, description="checkpoints by libdcp")(use_libdcp)
