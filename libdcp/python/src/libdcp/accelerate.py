"""Hugging Face accelerate's ``save_state`` and ``load_state`` with a libdcp store::

    accelerator = Accelerator()
    libdcp.accelerate.register(accelerator, "checkpoints")

Afterwards ``accelerator.save_state()`` saves a step, and ``accelerator.load_state()`` loads the newest one, on any number
of processes. Needs accelerate; ``import libdcp`` does not.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._options import SaveKeywords
from ._paths import Path
from ._tiers import Tier
from ._training import Steps, Training, enumerated, numbered
from .errors import Error, Status
from .ranks import Loader, Reshard, random_state, set_random_state
from .store import Store

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10

torch: Any = importlib.import_module("torch")
_data: Any = importlib.import_module("accelerate.data_loader")

_SUPPORTED = ("NO", "FSDP")  # and all that begin with MULTI_
_ROOM = 1 << 16  # bytes reserved for a data loader's state


class _Loader(Loader):
    hook = "libdcp.accelerate.register(..., reshard=function)"


class _Epoch:
    """The epoch of a data loader (the next one, after its last batch), and its sampler's seed or generator."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._sampler = loader.get_sampler()
        self._has_seed = isinstance(self._sampler, _data.SeedableRandomSampler)
        self._generator = None if self._has_seed else getattr(self._sampler, "generator", None)

    def state_dict(self) -> dict[str, Any]:
        active = self._loader.gradient_state.active_dataloader  # may be from skip_first_batches
        is_over = active is not None and active.dataset is self._loader.dataset and active.end_of_dataloader
        return {"epoch": self._loader.iteration + is_over, "seed": self._sampler.initial_seed if self._has_seed else None,
                "generator": None if self._generator is None else self._generator.get_state().numpy().tobytes()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._loader.set_epoch(state["epoch"])
        if self._has_seed and state["seed"] is not None:
            self._sampler.initial_seed = state["seed"]
        if self._generator is not None and state["generator"] is not None:
            self._generator.set_state(torch.frombuffer(bytearray(state["generator"]), dtype=torch.uint8))


class _States:
    """The methods that replace those of an accelerator."""

    def __init__(self, accelerator: Any, steps: Steps, reshard: Reshard | None) -> None:
        self._accelerator = accelerator
        self._steps = steps
        self._reshard = reshard
        self._load_own = accelerator.load_state
        self._end_own = accelerator.end_training

    def _store(self) -> Store:
        project = self._accelerator.project_configuration
        return self._steps.store(project.total_limit if project.automatic_checkpoint_naming else None)

    def _state(self, training: Training) -> dict[str, Any]:
        """Everything that is saved, as sections named like accelerate's files."""
        accelerator = self._accelerator
        state = {**training.state(), "rng": random_state()}
        for i, scheduler in enumerate(accelerator._schedulers):
            state[numbered("scheduler", i)] = scheduler
        for i, loader in enumerate(accelerator._dataloaders):
            is_stateful = getattr(loader, "use_stateful_dataloader", False)
            own = {"state": _Loader(loader, room=_ROOM, reshard=self._reshard)} if is_stateful else {}
            state[numbered("dataloader", i)] = {"epoch": _Epoch(loader), **own}
        if accelerator.scaler is not None:
            state["scaler"] = accelerator.scaler
        for i, given in enumerate(accelerator._custom_objects):
            state[f"custom_checkpoint_{i}"] = given
        state["accelerator"] = {"step": accelerator.step, "custom_checkpoints": len(accelerator._custom_objects)}
        return state

    def _training(self) -> Training:
        accelerator = self._accelerator
        if accelerator._save_model_state_pre_hook or accelerator._load_model_state_pre_hook:
            raise ValueError("hooks of save_state and load_state get files' folders, which libdcp's steps don't have: save "
                             "what they write beside the steps, or register it with register_for_checkpointing")
        return Training(enumerated("model", accelerator._models), enumerated("optimizer", accelerator._optimizers))

    def save_state(self, output_dir: str | None = None, safe_serialization: bool = True, **unknown: Any) -> str:
        """Replaces :meth:`accelerate.Accelerator.save_state`.

        Args:
            output_dir: the last number in it is the step's; by default, and with automatic naming, steps are numbered
                consecutively.
            safe_serialization: has no effect: nothing is pickled.

        Returns:
            The step's folder; if there is a list of stores, only its name. Either can be passed to :meth:`load_state`.
        """
        _refuse(unknown)
        project = self._accelerator.project_configuration
        is_counted = output_dir is None or project.automatic_checkpoint_naming
        step = project.iteration if output_dir is None or is_counted else _number(output_dir)
        self._store()
        state = self._state(self._training())
        project.iteration = step + 1  # even if the save raises an exception, since it may have begun
        self._steps.save(step, state)
        return self._steps.path(step)

    def load_state(self, input_dir: str | None = None, load_kwargs: dict[str, Any] | None = None,
                   **unknown: Any) -> None:
        """Replaces :meth:`accelerate.Accelerator.load_state`.

        Args:
            input_dir: its last number is the step's; None: the newest step. A folder that accelerate wrote is loaded by
                accelerate.
            load_kwargs: only for folders that accelerate wrote.
        """
        if input_dir is not None and _is_own(input_dir):
            self._load_own(input_dir, load_kwargs, **unknown)
            return
        _refuse(unknown)
        training = self._training()
        state = self._state(training)
        accelerator, count = self._accelerator, state["accelerator"]["custom_checkpoints"]
        loaded = self._store().load(state, step=None if input_dir is None else _number(input_dir))
        training.restore(state)
        accelerator.step = state["accelerator"]["step"]
        accelerator.project_configuration.iteration = loaded["step"] + 1
        set_random_state(state["rng"])
        stored = state["accelerator"]["custom_checkpoints"]
        if stored != count:
            raise Error(f"step {loaded['step']} has {stored} objects of register_for_checkpointing, and {count} are "
                        "registered", status=Status.MISMATCH)

    def end_training(self) -> None:
        """Replaces :meth:`accelerate.Accelerator.end_training`: also closes the store."""
        self._steps.close()
        self._end_own()


def _refuse(unknown: Mapping[str, Any]) -> None:
    if unknown:
        raise TypeError(f"libdcp.accelerate: {', '.join(unknown)}: an option of files that libdcp does not write")


def _number(path: str) -> int:
    """The number of the step in a folder's name, such as checkpoint_3 or step-00000003."""
    found = re.search(r"(\d+)\D*$", os.path.basename(os.path.normpath(path)))
    if found is None:
        raise ValueError(f"{path}: libdcp's steps have numbers: name the folder checkpoint_3, for example, or no folder")
    return int(found[1])


def _is_own(path: str) -> bool:
    """Whether accelerate has written the folder."""
    return os.path.isfile(os.path.join(os.path.expanduser(path), "random_states_0.pkl"))


def register(accelerator: Any, store_or_dir: Store | Path | Sequence[Tier], *, save_async: bool = False,
             copy_bytes: int | None = None, reshard: Reshard | None = None, **options: Unpack[SaveKeywords]) -> None:
    """Makes an accelerator's ``save_state``, ``load_state`` and ``end_training`` use a store.

    A step contains what accelerate's folders contain: models, optimizers, schedulers, the scaler, objects of
    ``register_for_checkpointing`` and each rank's random number generators. Its sections have the names of accelerate's
    files: ``/model/<parameter>``, ``/optimizer/<moment>/<parameter>``, for a second model ``/model_1``, and so on. For
    each data loader, a step has the epoch, the sampler's seed or generator, and, if the loader is stateful, its state.
    A step loads on any number of ranks, with FSDP2, DDP or in one process; nothing is pickled.

    As with accelerate, a program calls ``skip_first_batches`` to skip the batches of an epoch that were already used.
    Without ``DataLoaderConfiguration(use_seedable_sampler=True)``, it may skip other batches, because the order of the
    samples changes. On a different number of ranks, this option is needed even if the program continues at the
    beginning of an epoch. A learning rate schedule continues on a different number of ranks only with
    ``Accelerator(step_scheduler_with_optimizer=False)``, since schedulers count the steps of all processes by default.
    With ``use_stateful_dataloader=True`` as well as ``use_seedable_sampler=True``, an epoch of a map-style dataset
    continues on any number of ranks. If the total batch size is the same, so are the batches; otherwise some samples
    are used twice, but fewer than one total batch has.

    A step's number is ``ProjectConfiguration.iteration``, or the last number in ``output_dir``. A load sets
    ``iteration`` to the number after that of the loaded step. With ``automatic_checkpoint_naming``, ``total_limit`` is
    how many steps are kept. A load without ``input_dir`` takes the newest step that is not damaged.

    Args:
        store_or_dir: a directory of steps, opened at the first save or load; or a list of :class:`libdcp.Tier`,
            likewise; or a :class:`libdcp.Store`.
        save_async: ``save_state`` returns once the state is copied. If the save then fails in the background, the next
            ``save_state`` or ``end_training`` raises that failure, so call ``end_training``.
        copy_bytes: see :func:`libdcp.save_async`.
        reshard: for stateful data loaders that cannot otherwise continue on a different number of ranks; see
            :class:`libdcp.Loader`.
        options: options for saves; see :func:`libdcp.save`.

    Raises:
        ValueError: the accelerator uses DeepSpeed, Megatron-LM or XLA.
    """
    kind = accelerator.distributed_type.value
    if kind not in _SUPPORTED and not kind.startswith("MULTI_"):
        raise ValueError(f"libdcp.accelerate: {kind} is not supported: FSDP, DDP and one process are")
    made = _States(accelerator, Steps(store_or_dir, save_async, copy_bytes, options), reshard)
    accelerator.save_state, accelerator.load_state = made.save_state, made.load_state
    accelerator.end_training = made.end_training
