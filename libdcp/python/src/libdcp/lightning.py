"""Checkpoints of Lightning's Trainer and Fabric with libdcp::

    trainer = Trainer(plugins=[libdcp.lightning.CheckpointIO()], ...)
    trainer.fit(model, ckpt_path="last")

Needs lightning, or pytorch_lightning or lightning_fabric, which are used if the program has imported them before;
``import libdcp`` needs none of them. A program that imports this module can also use
``LightningModule.load_from_checkpoint`` with such checkpoints.
"""

from __future__ import annotations

import abc
import contextlib
import ctypes
import functools
import glob
import importlib
import importlib.util
import os
import re
import shutil
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ._groups import Alone
from ._lightning_state import REST, by_names, checkpoint_of, moved, sections, step_of
from ._options import SaveKeywords
from ._paths import Path, given, sync_folder
from ._read import read
from ._training import Training, enumerated
from .errors import Error, Status
from .saving import Saving
from .store import Store, load, save, save_async, steps

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10

torch: Any = importlib.import_module("torch")

_FAMILIES = (("lightning.fabric", "lightning.pytorch"), ("lightning_fabric", "pytorch_lightning"))


def _families() -> list[tuple[Any, Any]]:
    """For each family of names that the program uses: Fabric's module, and the Trainer's, or None."""
    names = [family for family in _FAMILIES if any(name in sys.modules for name in family)]
    if not names:
        names = [family for family in _FAMILIES if importlib.util.find_spec(family[0].split(".")[0])][:1]
    if not names:
        raise ImportError("libdcp.lightning needs lightning: pip install lightning")
    return [(importlib.import_module(fabric), importlib.import_module(pytorch) if importlib.util.find_spec(
        pytorch.split(".")[0]) else None) for fabric, pytorch in names]


_USED = _families()
_Base: Any = abc.ABCMeta("_Base", tuple(fabric.plugins.io.TorchCheckpointIO for fabric, _ in _USED), {})


class _Target:
    """Where a checkpoint is written.

    The first step of a path is made in a hidden folder, which is renamed once it is complete: Lightning treats whatever
    is at the path as a checkpoint. A later step is added there, and replaces the older one.
    """

    def __init__(self, path: str, step: int) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._is_over = self._is_published = False
        self._outdated: list[str] = []
        newest = step
        if os.path.isdir(path) and not os.path.islink(path):
            _refuse_others(path)
            newest = max(steps(path), default=step)
        self._is_replaced = newest >= step
        self.place = _hidden(path, "new") if self._is_replaced else path
        if self._is_replaced:
            os.makedirs(os.path.dirname(self.place), exist_ok=True)
            _remove_unfinished(os.path.dirname(self.place))

    def publish(self) -> None:
        """Called once or twice, after the step has become durable."""
        with self._lock:
            if self._is_over:
                return
            if self._is_replaced:
                _replace(self.place, self.path)
            self._is_over = self._is_published = True
            for path in self._outdated:
                _remove(path)

    def give_up(self) -> None:
        """Called once or twice, after the save has failed."""
        with self._lock:
            if self._is_replaced and not self._is_over:
                _remove(self.place)
            self._is_over = True

    def remove_after(self, path: str) -> None:
        """Removes another checkpoint, but not before this one is complete."""
        with self._lock:
            if self._is_published:
                _remove(path)
            else:
                self._outdated.append(path)


def _refuse_others(path: str) -> None:
    """Refuses to replace a folder that is not a checkpoint. A killed program may have left one more step."""
    others = [name for name in os.listdir(path) if not re.fullmatch(r"\.lock|latest|(\..*)?step-\d+.*", name)]
    if not _is_own(path) and (others or len(steps(path)) > 2):
        raise IsADirectoryError(f"{path} is a directory with {', '.join(sorted(others)[:3]) or 'the steps of a run'}: a "
                                "checkpoint would replace it, so choose another path")


def _hidden(path: str, what: str) -> str:
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{what}")


def _remove_unfinished(folder: str) -> None:
    """Removes what killed programs have left in a folder, but not what other programs are writing."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.startswith(".") and name.endswith(".new") and os.path.isfile(os.path.join(path, ".lock")):
            with contextlib.suppress(Error, OSError):  # OSError: another program removes it, too
                Store(path, group=Alone()).close()
                meant = os.path.join(folder, name[1:-len(".new")])
                is_moved_away = os.path.lexists(_hidden(meant, "old")) and not os.path.lexists(meant)
                if steps(path) and is_moved_away:
                    _replace(path, meant)  # the kill came between the two renames
                else:
                    _remove(path)


def _exchange(one: str, other: str) -> bool:
    """Exchanges two names at once; returns False if the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)  # AT_FDCWD is -100, RENAME_EXCHANGE is 2
    return rename is not None and rename(-100, os.fsencode(one), -100, os.fsencode(other), 2) == 0


def _replace(new: str, path: str) -> None:
    os.stat(new)  # before anything is changed
    old = _hidden(path, "old")
    if os.path.isdir(path) and not os.path.islink(path) and _exchange(new, path):
        old = new
    else:
        if os.path.lexists(path):
            _remove(old)
            os.rename(path, old)
        os.rename(new, path)
    sync_folder(os.path.dirname(new))
    _remove(old)
    _remove(_hidden(path, "old"))  # left by a killed program


def _remove(path: str) -> None:
    """Removes a folder, file or link, if there is one."""
    if os.path.isdir(path) and not os.path.islink(path):
        hidden = path if os.path.basename(path).startswith(".") else _hidden(path, "old")
        if hidden != path:
            _remove(hidden)
            os.rename(path, hidden)
        shutil.rmtree(hidden)
    elif os.path.lexists(path):
        os.unlink(path)


def _is_own(path: str) -> bool:
    """Whether Lightning, or torch.save, has written what is at the path."""
    return os.path.isfile(path) or os.path.isfile(os.path.join(path, "meta.pt"))


class CheckpointIO(_Base):  # type: ignore[misc]
    """A plugin, ``Trainer(plugins=[CheckpointIO()])`` or ``Fabric(plugins=[CheckpointIO()])``, that saves and loads all
    checkpoints.

    As always, Lightning decides when to save, under which name, and which checkpoints to keep: ``ModelCheckpoint`` with
    ``monitor``, ``save_top_k`` and ``save_last``, ``trainer.save_checkpoint`` and ``fit(ckpt_path="last")`` work. What
    Lightning calls ``epoch=1-step=20.ckpt`` is a directory with one step, which is opened by that path. A step has
    ``/model/<parameter>``, ``/optimizer/<moment>/<parameter>``, for further optimizers ``/optimizer_1`` and so on, and
    everything else in the section "lightning". For Fabric's dictionaries, the state dicts of modules and optimizers are
    sections with the caller's keys; the step's number is "global_step" or "step", or the last number in the path.

    Nothing is pickled: what JSON cannot represent, in hyperparameters for example, is left out, and a warning names it.

    With FSDPStrategy and ModelParallelStrategy, each rank saves and loads its shards. Any checkpoint can be loaded on
    a different number of ranks, and with another strategy. Lightning's own files can be loaded as before.

    Args:
        save_async: a save returns once the state is copied. If the save then fails, the next save or the end of ``fit``
            raises the failure. Checkpoints that the save replaces are removed once it is complete. With Fabric, call
            :meth:`wait` at the end.
        copy_bytes: see :func:`libdcp.save_async`.
        options: options for saves; see :func:`libdcp.save`.

    Raises:
        ValueError: when a Trainer or Fabric is made with a strategy that does not save through plugins: DeepSpeed, XLA.
    """

    def __init__(self, *, save_async: bool = False, copy_bytes: int | None = None, **options: Unpack[SaveKeywords]) -> None:
        super().__init__()
        _use_strategies()
        self._save_async = save_async
        self._copy_bytes = copy_bytes
        self._options = options
        self._saving: tuple[Saving, _Target | None] | None = None
        self._warned: set[str] = set()

    def save_checkpoint(self, checkpoint: Mapping[str, Any], path: Path, storage_options: Any = None) -> None:
        """Saves the dictionary on this rank alone; the others need not call it.

        Raises:
            TypeError: ``storage_options`` were passed, which only a plugin for fsspec would use.
        """
        refuse_storage_options(storage_options)
        self.wait()
        place = given(path, "path")
        state, lost = sections(checkpoint)
        self.warn(lost)
        step = step_of(checkpoint, place)
        target = _Target(place, step)
        self.save(target, target.place, step, state, Alone())

    def warn(self, lost: list[str]) -> None:
        new = sorted(set(lost) - self._warned)
        self._warned |= set(new)
        if new:
            warnings.warn(f"libdcp.lightning: not in the checkpoint, since JSON cannot represent it: {', '.join(new)}. "
                          "Leave hyperparameters out with save_hyperparameters(ignore=[...]), and pass them to "
                          "load_from_checkpoint().", stacklevel=2)

    def save(self, target: _Target | None, place: str, step: int, state: Mapping[str, Any], group: Any) -> None:
        """Saves a state; the last save must have been waited for. Collective over the group.

        Args:
            target: the target, on the group's first rank; None on the others.
            place: the target's place.
        """
        if not self._save_async:
            with _published(target):
                save(place, step, state, group=group, keep=1, **self._options)
            return
        saving = save_async(place, step, state, group=group, keep=1, copy_bytes=self._copy_bytes, **self._options)
        self._saving = saving, target
        if target:
            saving.add_done_callback(functools.partial(_publish, target))

    def wait(self) -> None:
        """Returns once the last checkpoint is durable.

        Raises:
            libdcp.Error: its save has failed.
        """
        pending, self._saving = self._saving, None
        if pending is not None:
            saving, target = pending
            try:
                saving.wait()
            except Error:
                if target:
                    target.give_up()
                raise
            if target:
                target.publish()

    def load_checkpoint(self, path: Path, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Returns the dictionary that was saved. Each rank reads the whole dictionary by itself, onto the CPU.

        Args:
            path: the path of a checkpoint, of a step's folder, or of one of Lightning's own files.
            map_location: as in torch.load.
            weights_only: for Lightning's own files.

        Raises:
            libdcp.Error: NOT_FOUND, or CORRUPT, which names tensor and block.
        """
        self.wait()
        place = given(path, "path")
        if _is_own(place):
            own: dict[str, Any] = super().load_checkpoint(place, map_location, weights_only)
            return own
        return read_checkpoint(place, map_location)

    def remove_checkpoint(self, path: Path) -> None:
        """Removes a checkpoint, if it exists; while a save is in the background, only once that save is complete."""
        target = self._saving[1] if self._saving else None
        if target is None:
            _remove(given(path, "path"))
        else:
            target.remove_after(given(path, "path"))

    def teardown(self) -> None:
        """Called by the Trainer at the end: :meth:`wait`."""
        self.wait()


@contextlib.contextmanager
def _published(target: _Target | None) -> Iterator[None]:
    try:
        yield
    except BaseException:
        if target:
            target.give_up()
        raise
    if target:
        target.publish()


def _publish(target: _Target, saving: Saving) -> None:
    """Called once a save has ended."""
    with contextlib.suppress(Error), _published(target):  # a caller that waits for the save gets its failure
        saving.result()


def refuse_storage_options(given: Any) -> None:
    if given is not None:
        raise TypeError("libdcp.lightning: storage_options are not supported: pass options of saves to CheckpointIO")


def read_checkpoint(path: Path, map_location: Any = None) -> dict[str, Any]:
    """Reads the dictionary that Lightning has saved."""
    found: dict[str, Any] = moved(checkpoint_of(read(path, as_torch=True)), map_location)
    return found


class _Plain(abc.ABC):
    """Takes the place of methods of a strategy whose first rank saves everything with the plugin."""

    def __init__(self, io: CheckpointIO, strategy: Any) -> None:
        self.io = io
        self.strategy = strategy

    def replace(self) -> None:
        self.strategy.save_checkpoint = self.save

    def own(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Calls the strategy's own method of that name."""
        return getattr(type(self.strategy), method)(self.strategy, *args, **kwargs)

    @abc.abstractmethod
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Takes the place of ``save_checkpoint``."""


class _TrainerPlain(_Plain):
    def save(self, checkpoint: dict[str, Any], filepath: Path, storage_options: Any = None) -> None:
        if self.strategy.is_global_zero and "optimizer_states" in checkpoint:
            pairs = zip(checkpoint["optimizer_states"], self.strategy.optimizers)
            checkpoint["optimizer_states"] = [
                by_names(state, _unwrapped(optimizer), self.strategy.lightning_module) for state, optimizer in pairs]
        self.own("save_checkpoint", checkpoint, filepath, storage_options)


class _FabricPlain(_Plain):
    def save(self, path: Path, state: dict[str, Any], storage_options: Any = None, filter: Any = None) -> None:
        named = {key: self._named(value, state) if isinstance(value, torch.optim.Optimizer) else value
                 for key, value in state.items()}
        self.own("save_checkpoint", path, named, storage_options, filter)

    def _named(self, optimizer: Any, state: Mapping[str, Any]) -> Any:
        module = _owner(optimizer, _modules(state))
        found = self.strategy.get_optimizer_state(optimizer)
        return found if module is None else by_names(found, optimizer, module)


class _Sharded(_Plain):
    """Takes the place of methods of a strategy in which all ranks save shards."""

    def __init__(self, io: CheckpointIO, strategy: Any) -> None:
        super().__init__(io, strategy)
        for setting, value in ("_state_dict_type", "sharded"), ("_save_distributed_checkpoint", True):
            if hasattr(strategy, setting):
                setattr(strategy, setting, value)

    def replace(self) -> None:
        super().replace()
        self.strategy.load_checkpoint, self.strategy.teardown = self.load, self.teardown

    @abc.abstractmethod
    def load(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Takes the place of ``load_checkpoint``."""

    def teardown(self) -> None:
        try:
            self.io.teardown()
        finally:
            self.own("teardown")

    def save_shards(self, checkpoint: Mapping[str, Any], path: Path) -> None:
        """Collective. What is not sharded is taken from the first rank."""
        self.io.wait()
        path = given(self.strategy.broadcast(path), "path")
        step = step_of(checkpoint, path)
        state, lost = sections(checkpoint)
        if self.strategy.is_global_zero:
            self.io.warn(lost)
        else:
            del state[REST]
        self.io.save(*self._target(path, step), step, state, None)

    def _target(self, path: str, step: int) -> tuple[_Target | None, str]:
        """The target, or None on ranks other than the first, and its place. Collective."""
        target, failure = None, None
        try:
            target = _Target(path, step) if self.strategy.is_global_zero else None
        except Exception as e:
            failure = e
        place, told = self.strategy.broadcast((target and target.place, failure and str(failure)))
        if told:
            raise failure or Error(told, status=Status.IO, path=path)
        return target, place

    def load_shards(self, path: str, training: Training, strict: bool) -> dict[str, Any]:
        """Loads the modules and optimizers, and returns everything else. Collective."""
        state = training.state()
        loaded = load(path, state, strict=strict, only=[f"/{glob.escape(key)}/*" for key in state])
        if strict and loaded.unexpected:
            raise Error(f"{path} has what the modules and optimizers lack: {', '.join(loaded.unexpected[:8])}",
                        status=Status.MISMATCH, path=path)
        training.restore(state)
        return checkpoint_of(read(path, only=f"/{REST}/*", as_torch=True))

    def place(self, path: Path) -> str:
        """Waits until the last save is complete, and returns the path that the first rank passes. Collective."""
        self.io.wait()
        return given(self.strategy.broadcast(path), "path")


class _TrainerSharded(_Sharded):
    def save(self, checkpoint: dict[str, Any], filepath: Path, storage_options: Any = None) -> None:
        refuse_storage_options(storage_options)
        self.save_shards(checkpoint, filepath)

    def load(self, checkpoint_path: Path, *args: Any, **kwargs: Any) -> dict[str, Any]:
        strategy, place = self.strategy, self.place(checkpoint_path)
        if _is_own(place):
            own: dict[str, Any] = self.own("load_checkpoint", place, *args, **kwargs)
            return own
        is_fitting = strategy.lightning_module.trainer.state.fn.value == "fit"  # otherwise left from an earlier fit
        optimizers = [_unwrapped(optimizer) for optimizer in strategy.optimizers if is_fitting]
        training = Training({"model": strategy.model}, enumerated("optimizer", optimizers))
        loaded = self.load_shards(place, training, strategy.lightning_module.strict_loading)
        return {key: value for key, value in loaded.items() if key != "state_dict"}


class _FabricSharded(_Sharded):
    def save(self, path: Path, state: dict[str, Any], storage_options: Any = None, filter: Any = None) -> None:
        refuse_storage_options(storage_options)
        if filter is not None:
            raise NotImplementedError("libdcp.lightning: a filter is not supported where ranks save shards")
        rest = {key: value.state_dict() if hasattr(value, "state_dict") and hasattr(value, "load_state_dict") else value
                for key, value in _others(state).items()}
        self.save_shards({**_training(state).state(), **rest}, path)

    def load(self, path: Path, state: Any = None, strict: bool = True, *args: Any, **kwargs: Any) -> dict[str, Any]:
        place = self.place(path)
        if _is_own(place):
            own: dict[str, Any] = self.own("load_checkpoint", place, state, strict, *args, **kwargs)
            return own
        if not isinstance(state, dict):
            raise ValueError('libdcp.lightning: pass a dictionary with the module, such as load(path, {"model": model})')
        rest = self.load_shards(place, _training(state), strict)
        for key in _others(state):
            if strict and key not in rest:
                raise KeyError(f"{key!r} is not in the checkpoint {place}; pass strict=False to leave it as it is")
            _take(state, key, rest)
        return rest


def _take(state: dict[str, Any], key: str, rest: dict[str, Any]) -> None:
    """Moves a loaded value into the state, or into its object."""
    if key not in rest:
        return
    if hasattr(state[key], "load_state_dict"):
        state[key].load_state_dict(rest.pop(key))
    else:
        state[key] = rest.pop(key)


def _modules(state: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in state.items() if isinstance(value, torch.nn.Module)}
    return {key: value.module if isinstance(value, torch.nn.parallel.DistributedDataParallel) else value
            for key, value in found.items()}


def _others(state: Mapping[str, Any]) -> dict[str, Any]:
    """What is neither a module nor an optimizer."""
    return {key: value for key, value in state.items() if not isinstance(value, (torch.nn.Module, torch.optim.Optimizer))}


def _training(state: Mapping[str, Any]) -> Training:
    optimizers = {key: value for key, value in state.items() if isinstance(value, torch.optim.Optimizer)}
    return Training(_modules(state), optimizers)


def _owner(optimizer: Any, modules: Mapping[str, Any]) -> Any:
    own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return next((module for module in modules.values() if own <= set(map(id, module.parameters()))), None)


def _unwrapped(optimizer: Any) -> Any:
    """The optimizer inside a LightningOptimizer; other optimizers unchanged."""
    return getattr(optimizer, "_optimizer", optimizer)


def _within(io: Any) -> CheckpointIO | None:
    """The plugin, even if it is inside others, such as AsyncCheckpointIO; None if there is none."""
    while io is not None and not isinstance(io, CheckpointIO):
        io = getattr(io, "checkpoint_io", None)
    return io


_REFUSED = ("DeepSpeedStrategy", "XLAStrategy", "XLAFSDPStrategy", "SingleDeviceXLAStrategy")
_SHARDED = ("FSDPStrategy", "ModelParallelStrategy")


def _attach(given: Any, io: CheckpointIO, strategy: Any, plain: type[_Plain], sharded: type[_Sharded]) -> None:
    names = {kind.__name__ for kind in type(strategy).__mro__}
    if names & set(_REFUSED):
        raise ValueError(f"libdcp.lightning: {type(strategy).__name__} does not save by a CheckpointIO; DDP, FSDP, "
                         "ModelParallelStrategy and single devices are supported")
    is_sharded = bool(names & set(_SHARDED))
    if is_sharded and given is not io:
        raise ValueError(f"libdcp.lightning: {type(given).__name__} cannot save shards: pass "
                         "CheckpointIO(save_async=True) itself")
    (sharded if is_sharded else plain)(io, strategy).replace()


def _property(own: Any, plain: type[_Plain], sharded: type[_Sharded]) -> property:
    """A strategy's property for its plugin. In those of Fabric's strategies that save shards, Lightning's own property
    raises an error for any plugin."""
    def get(strategy: Any) -> Any:
        found = strategy._checkpoint_io
        return found if isinstance(found, CheckpointIO) else own.fget(strategy)

    def set(strategy: Any, given: Any) -> None:
        io = _within(given)
        if io is None:
            own.fset(strategy, given)
            return
        _attach(given, io, strategy, plain, sharded)
        strategy._checkpoint_io = given
    return property(get, set)


@functools.cache
def _use_strategies() -> None:
    """Lightning does not pass a plugin its strategy, without which the plugin can neither name moments nor save shards.
    So strategies get a property that does this."""
    for fabric, pytorch in _USED:
        for kind in "Strategy", "FSDPStrategy", "ModelParallelStrategy":
            _use_property(getattr(fabric.strategies.strategy if kind == "Strategy" else fabric.strategies, kind),
                          _FabricPlain, _FabricSharded)
        if pytorch:
            _use_property(pytorch.strategies.Strategy, _TrainerPlain, _TrainerSharded)


def _use_property(kind: Any, plain: type[_Plain], sharded: type[_Sharded]) -> None:
    own = vars(kind).get("checkpoint_io")
    if own is not None:
        kind.checkpoint_io = _property(own, plain, sharded)


def _use_load(saving: Any) -> None:
    """LightningModule.load_from_checkpoint reads files without a plugin: it gets our dictionaries from here instead."""
    own: Callable[..., Any] = saving.pl_load

    def pl_load(path: Any, map_location: Any = None, **options: Any) -> Any:
        is_ours = isinstance(path, (str, os.PathLike)) and os.path.isdir(path) and not _is_own(os.fsdecode(path))
        return read_checkpoint(path, map_location) if is_ours else own(path, map_location=map_location, **options)
    saving.pl_load = pl_load


for _, _pytorch in _USED:
    if _pytorch:
        _use_load(importlib.import_module(f"{_pytorch.__name__}.core.saving"))
