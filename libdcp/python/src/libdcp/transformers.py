"""Saves the checkpoints of Hugging Face transformers' Trainer as steps of a libdcp store::

    trainer = Trainer(model, args, callbacks=[libdcp.transformers.CheckpointCallback("checkpoints")], ...)
    trainer.train(resume_from_checkpoint=True)

Needs transformers and accelerate; ``import libdcp`` does not.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _names
from ._directory import Pin
from ._options import SaveKeywords
from ._paths import Path
from ._training import Steps, Training, agreed, agreed_steps, is_directory
from .errors import Error, Status, has_status
from .ranks import PerRank, random_state, set_random_state
from .store import Store, load

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10

_transformers: Any = importlib.import_module("transformers")
_callbacks: Any = importlib.import_module("transformers.trainer_callback")
log = logging.getLogger("libdcp")

_STATE, _FILE = "trainer_state", "trainer_state.json"
Own = Callable[..., Any]


class _Damaged(Exception):
    """The Trainer must begin again, with an older step."""


@dataclass
class _Resumed:
    """A step from which the Trainer continues.

    Attributes:
        step: the step's number in the store; None: the step is elsewhere, at ``path``.
        may_fall_back: if this step is damaged, an older one is used.
        has_rest: the step contains more than the model and the Trainer's state.
        random: the states of the random number generators that were loaded.
        folder: a temporary folder, from which the Trainer reads trainer_state.json.
    """

    step: int | None
    path: str = ""
    may_fall_back: bool = False
    has_rest: bool = True
    has_scaler: bool = False
    random: Mapping[str, PerRank] = field(default_factory=dict)
    folder: Any = None

    def load(self, store: Store, state: dict[str, Any], only: str | None = None) -> dict[str, Any]:
        """Loads the step, and makes the store continue from it. Collective."""
        try:
            if self.step is not None:
                return store.load(state, step=self.step, only=only)
            loaded = load(self.path, state, only=only)
        except Error as e:
            if has_status(e, Status.CORRUPT) and self.may_fall_back:
                raise _Damaged from e
            raise
        store.continue_from(loaded["step"])
        return loaded


class CheckpointCallback(_transformers.TrainerCallback):  # type: ignore[misc]
    """Saves and resumes a Trainer with libdcp, in a single process, under DDP, or under FSDP2.

    As always, the Trainer decides when to save (``save_strategy``, ``save_steps``), how many steps to keep
    (``save_total_limit``), and which is the best one (``metric_for_best_model``, ``load_best_model_at_end``), but it
    writes no ``checkpoint-N`` folders of its own. Step N is the state after N updates: ``/model/<parameter>``,
    ``/optimizer/<moment>/<parameter>`` and the states of each rank's random number generators; its JSON has the
    scheduler, the gradient scaler, the model's configuration and, in "trainer_state", what the Trainer would write to
    trainer_state.json.

    ``train(resume_from_checkpoint=True)`` continues from the newest step that is not damaged, on any number of ranks. A
    path can be that of a step, of a directory of steps, or of a folder that the Trainer itself has written, from which
    the Trainer then resumes. As long as there are no steps, True means such a folder in ``output_dir``. The next save
    is a step even then.

    Args:
        store_or_dir: a directory of steps, which ``train`` keeps open until it ends; or a :class:`libdcp.Store`, whose
            own ``keep`` takes the place of ``save_total_limit``. With a store that is a list of stores, the best step
            cannot be kept, and training cannot be resumed from the path of a step.
        save_async: a save returns once the state is copied; the next save, or the end of ``train``, raises its failure.
        copy_bytes: see :func:`libdcp.save_async`.
        options: options for saves; see :func:`libdcp.save`.

    While ``save_total_limit`` steps are newer than the best step, one step more than this limit may exist until the
    next save.
    """

    def __init__(self, store_or_dir: Store | Path, *, save_async: bool = True, copy_bytes: int | None = None,
                 **options: Unpack[SaveKeywords]) -> None:
        _use_callbacks()
        self._steps = Steps(store_or_dir, save_async, copy_bytes, options)
        self._resumed: _Resumed | None = None
        self._best: Pin | None = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._keep_best(self._steps.store(args.save_total_limit), state, args.save_total_limit)
        finally:
            self._best = None
            self._steps.close()

    def train(self, own: Own, trainer: Any, resume_from_checkpoint: str | bool | None = None, *args: Any,
              **kwargs: Any) -> Any:
        """Takes the place of the Trainer's method, ``own``."""
        _refuse_others(trainer)
        store = self._steps.store(trainer.args.save_total_limit)
        _check_list(store, trainer.args, resume_from_checkpoint)
        if not resume_from_checkpoint and store.newest() is not None:
            raise ValueError(f"there are steps of an earlier run, up to {store.newest()}: pass resume_from_checkpoint=True "
                             "to train(), or another directory to libdcp.transformers.CheckpointCallback")
        for resumed in _candidates(store, resume_from_checkpoint):
            try:
                self._resumed = resumed
                _prepare(store, resumed)
                return own(trainer, resumed.folder.name, *args, **kwargs)
            except _Damaged as e:
                log.warning("step %s is damaged (%s): falling back to an older one", resumed.step, e.__cause__)
            finally:
                self._resumed = None
        return own(trainer, resume_from_checkpoint, *args, **kwargs)

    def save(self, own: Own, trainer: Any, model: Any, trial: Any) -> None:
        """Takes the place of the Trainer's ``_save_checkpoint``."""
        if trial is not None:
            raise ValueError("libdcp.transformers: a hyperparameter search has several runs, and a store has one")
        store, state, limit = self._steps.store(trainer.args.save_total_limit), trainer.state, trainer.args.save_total_limit
        trainer.store_flos()
        self._keep_best(store, state, limit)
        best = state.best_global_step
        if best and is_directory(store) and (best == state.global_step or best in agreed_steps(store)):
            state.best_model_checkpoint = store.path(best)
        has_rest = not trainer.args.save_only_model
        saved = _sections(trainer, _training(trainer, has_rest), has_rest)
        if state.is_world_process_zero:  # ranks measure different times
            saved[_STATE] = _trainer_state(trainer)
        config = getattr(trainer.model, "config", None)
        self._steps.save(state.global_step, saved, config and {"model": json.loads(config.to_json_string())})

    def _keep_best(self, store: Store, state: Any, limit: int | None) -> None:
        """Protects the best step from removal, and removes other steps instead. Collective."""
        if state.best_model_checkpoint is None or not is_directory(store):
            return
        self._steps.wait()

        def outdated() -> list[int]:
            steps, best = store.steps(), _step_of(store, state.best_model_checkpoint)
            if best in steps:
                self._best = store.pin(best)
            others = [step for step in steps[:-1] if step != best]
            return others[:max(0, len(steps) - limit)] if limit else []
        for step in agreed(store, outdated):
            store.remove(step)

    def load(self, own: Own, trainer: Any, checkpoint: str | None) -> None:
        """Takes the place of the Trainer's ``_load_optimizer_and_scheduler``, and loads everything else as well."""
        resumed = self._resumed
        if resumed is None:
            own(trainer, checkpoint)
            self._steps.store().continue_from(trainer.state.global_step)
            return
        resumed.folder.cleanup()
        training = _training(trainer, resumed.has_rest)
        state = _sections(trainer, training, resumed.has_rest, resumed.has_scaler)
        resumed.load(self._steps.store(), state)
        training.restore(state)
        resumed.random = state.get("rng", {})
        if not resumed.has_rest:
            log.warning("step %d has no optimizer, since it was saved with save_only_model=True: its moments and the "
                        "scheduler begin anew", trainer.state.global_step)

    def load_nothing(self, own: Own, trainer: Any, *args: Any, **kwargs: Any) -> None:
        """Takes the place of methods that each load a part of the state."""
        if self._resumed is None:
            own(trainer, *args, **kwargs)

    def load_random(self, own: Own, trainer: Any, checkpoint: str | None) -> None:
        """Takes the place of ``_load_rng_state``, which the Trainer calls after it has skipped batches."""
        if self._resumed is None:
            own(trainer, checkpoint)
        else:
            set_random_state(self._resumed.random)

    def load_best(self, own: Own, trainer: Any) -> None:
        """Takes the place of ``_load_best_model``."""
        path = trainer.state.best_model_checkpoint
        if _is_trainers(path):
            own(trainer)
            return
        self._steps.wait()
        training = _training(trainer, False)
        state = training.state()
        load(path, state, only="/model/*")
        training.restore(state)


def _refuse_others(trainer: Any) -> None:
    others = {"DeepSpeed": trainer.is_deepspeed_enabled, "XLA": trainer.is_fsdp_xla_enabled,
              f"hub_strategy={trainer.args.hub_strategy.value!r}, which uploads the Trainer's files":
              trainer.args.push_to_hub and trainer.args.hub_strategy.value != "end"}
    for name, is_used in others.items():
        if is_used:
            raise ValueError(f"libdcp.transformers: not with {name}")


def _check_list(store: Store, args: Any, resume_from_checkpoint: str | bool | None) -> None:
    """If the store is a list, refuses everything that needs the path of a step."""
    if is_directory(store):
        return
    if args.load_best_model_at_end or args.metric_for_best_model:
        raise ValueError("libdcp.transformers: load_best_model_at_end and metric_for_best_model, which lr_scheduler_type="
                         "'reduce_lr_on_plateau' sets, need one directory of steps, not a list of stores")
    if isinstance(resume_from_checkpoint, str) and not _is_trainers(resume_from_checkpoint):
        raise ValueError("libdcp.transformers: pass resume_from_checkpoint=True for a list of stores, not a path")


def _is_trainers(path: str) -> bool:
    return os.path.isfile(os.path.join(path, _FILE))


def _step_of(store: Store, path: str) -> int:
    """The number of the store's step at ``path``; -1 if the path is not that of a step of the store."""
    name = os.path.basename(os.path.realpath(path))
    number = name.removeprefix("step-")
    if not number.isdigit() or os.path.realpath(path) != os.path.realpath(store.path(int(number))):
        return -1
    return int(number)


def _candidates(store: Store, given: str | bool | None) -> list[_Resumed]:
    """The steps from which to continue, in order of preference. If there are none, the Trainer decides.
    Collective."""
    if not given or given is not True and _is_trainers(given):
        return []
    if given is not True and os.path.realpath(given) != os.path.dirname(os.path.realpath(store.path(0))):
        step = _step_of(store, given)
        return [_Resumed(None if step < 0 else step, given)]
    newest = store.newest()
    steps = [] if newest is None else [newest, *(step for step in reversed(agreed_steps(store)) if step < newest)]
    return [_Resumed(step, may_fall_back=step != steps[-1]) for step in steps]


def _prepare(store: Store, resumed: _Resumed) -> None:
    """Reads the Trainer's state, which the Trainer needs first. Collective."""
    members = resumed.load(store, {_STATE: {}}, only=f"/{_STATE}/*").get(_names.OBJECTS, {})
    if _STATE not in members:
        raise Error(f"{resumed.path or resumed.step}: no step of libdcp.transformers: it has no {_STATE}",
                    status=Status.MISMATCH)
    resumed.has_rest, resumed.has_scaler = "optimizer" in members, "scaler" in members
    best = members[_STATE]["best_model_checkpoint"]
    if not is_directory(store):  # a list keeps no best step
        members[_STATE]["best_model_checkpoint"] = members[_STATE]["best_global_step"] = None
    elif best is not None:
        directory = os.path.dirname(os.path.realpath(resumed.path)) if resumed.step is None else os.path.dirname(store.path(0))
        members[_STATE]["best_model_checkpoint"] = os.path.join(directory, best)
    resumed.folder = tempfile.TemporaryDirectory(prefix="libdcp-trainer-")
    with open(os.path.join(resumed.folder.name, _FILE), "w", encoding="utf-8") as file:
        json.dump(members[_STATE], file)


def _trainer_state(trainer: Any) -> Any:
    """What trainer_state.json would contain, but with only the name of the best step instead of its path, since
    directories may be moved."""
    own = [callback for callback in [*trainer.callback_handler.callbacks, trainer.control]
           if isinstance(callback, _callbacks.ExportableState)]
    trainer.state.stateful_callbacks = _callbacks.TrainerState(stateful_callbacks=own).stateful_callbacks
    found = json.loads(json.dumps(dataclasses.asdict(trainer.state)))
    if found["best_model_checkpoint"] is not None:
        found["best_model_checkpoint"] = os.path.basename(found["best_model_checkpoint"])
    return found


def _training(trainer: Any, has_optimizer: bool) -> Training:
    return Training({"model": trainer.model}, {"optimizer": trainer.optimizer} if has_optimizer else {})


def _sections(trainer: Any, training: Training, has_rest: bool, has_scaler: bool = True) -> dict[str, Any]:
    """What is saved and loaded, except the Trainer's own state."""
    state = training.state()
    if has_rest:
        state |= {"scheduler": trainer.lr_scheduler, "rng": random_state()}
        scaler = getattr(trainer.accelerator, "scaler", None)
        if scaler is not None and has_scaler:
            state["scaler"] = scaler
    return state


_REPLACED: dict[str, Own] = {"train": CheckpointCallback.train, "_save_checkpoint": CheckpointCallback.save,
             "_load_from_checkpoint": CheckpointCallback.load_nothing, "_load_scaler": CheckpointCallback.load_nothing,
             "_load_optimizer_and_scheduler": CheckpointCallback.load, "_load_rng_state": CheckpointCallback.load_random,
             "_load_best_model": CheckpointCallback.load_best}


@functools.cache
def _use_callbacks() -> None:
    """Makes the Trainer's methods for saves and loads ask the callback first: otherwise, a callback is not notified of
    loads, and cannot replace saves."""
    for name, method in _REPLACED.items():
        if not hasattr(_transformers.Trainer, name):
            raise ImportError(f"libdcp.transformers: the Trainer of transformers {_transformers.__version__} has no {name}")
        setattr(_transformers.Trainer, name, _asking(getattr(_transformers.Trainer, name), method))


def _asking(own: Own, method: Own) -> Own:
    @functools.wraps(own)
    def call(trainer: Any, *args: Any, **kwargs: Any) -> Any:
        for callback in trainer.callback_handler.callbacks:
            if isinstance(callback, CheckpointCallback):
                return method(callback, own, trainer, *args, **kwargs)
        return own(trainer, *args, **kwargs)
    return call
