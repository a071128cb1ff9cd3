"""What the adapters of training frameworks share: models and optimizers as a state, and the store of a run."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._comm import attempted
from ._directory import Directory, step_path
from ._options import SaveKeywords
from ._paths import Path
from ._tiers import Tier
from .saving import Saving
from .store import Store

_torch: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")


def numbered(name: str, number: int) -> str:
    """A name with a number for the second and later objects of a kind, as accelerate names them."""
    return f"{name}_{number}" if number else name


def enumerated(name: str, objects: Sequence[Any]) -> dict[str, Any]:
    """Objects of a kind by their names."""
    return {numbered(name, i): given for i, given in enumerate(objects)}


class Training:
    """Models and their optimizers as sections of a state, by parameters' names, whatever wraps them.

    Args:
        models, optimizers: as a program trains them, by section; accelerate may have wrapped the optimizers.
    """

    def __init__(self, models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> None:
        self._models = dict(models)
        unwrapped = {key: getattr(optimizer, "optimizer", optimizer) for key, optimizer in optimizers.items()}
        self._optimizers = {key: (self._owner(optimizer), optimizer) for key, optimizer in unwrapped.items()}

    def _owner(self, optimizer: Any) -> Any:
        """The model whose parameters the optimizer updates."""
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in self._models.values():
            if any(id(parameter) in own for parameter in model.parameters()):
                return model
        raise ValueError(f"none of the models has the parameters of {type(optimizer).__name__}")

    def state(self) -> dict[str, Any]:
        """The sections. An optimizer without moments gets them here, so that they can be loaded."""
        found = {key: _torch.get_model_state_dict(model) for key, model in self._models.items()}
        for key, (model, optimizer) in self._optimizers.items():
            found[key] = _torch.get_optimizer_state_dict(model, optimizer)
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Called after a load into :meth:`state`."""
        for key, model in self._models.items():
            _torch.set_model_state_dict(model, state[key])
        for key, (model, optimizer) in self._optimizers.items():
            if key in state:
                _torch.set_optimizer_state_dict(model, optimizer, state[key])


def is_directory(store: Store) -> bool:
    """Returns true if the store is one directory, so that its steps have paths, and false if it is a list."""
    return isinstance(store._backend, Directory)


def agreed(store: Store, decide: Callable[[], list[int]]) -> list[int]:
    """Returns on all ranks what the function returns on rank 0. The function may use those methods of the store that
    are not collective, and whose results may differ between ranks: rank 0 removes steps after the last vote of a save,
    and file systems may show changes late. Collective; only for a directory."""
    with store._raising_work() as earlier:
        def decided() -> list[int]:
            if earlier:
                raise earlier
            return [] if store._comm.rank else decide()
        return store._comm.numbers(attempted(store._comm, decided))


def agreed_steps(store: Store) -> list[int]:
    """The complete steps, ascending, the same on all ranks. Collective."""
    return agreed(store, store.steps) if is_directory(store) else store.steps()


class Steps:
    """The store of a run: opened at its first use, and closed, if it was opened here, by :meth:`close`.

    Args:
        given: the store, or its directory, or a list of stores.
        save_async: saves continue in the background.
        copy_bytes: see :func:`libdcp.save_async`.
        options: options for saves.
    """

    def __init__(self, given: Store | Path | Sequence[Tier], save_async: bool, copy_bytes: int | None,
                 options: SaveKeywords) -> None:
        self._given = given
        self._opened: Store | None = None
        self._save_async = save_async
        self._copy_bytes = copy_bytes
        self._options = options
        self._saving: Saving | None = None

    def store(self, keep: int | None = None) -> Store:
        """The store, which is opened if necessary. Collective.

        Raises:
            ValueError: the program has opened the store, so ``keep`` cannot be set.
        """
        if isinstance(self._given, Store):
            if keep:
                raise ValueError(f"a limit of {keep} steps: the libdcp.Store that was passed has its own keep")
            return self._given
        if self._opened is None:
            self._opened = Store(self._given, keep=keep or 0)
        return self._opened

    def path(self, step: int) -> str:
        """A step's folder; for a list of stores, whose folders may differ between ranks, only the name of the step's
        folder."""
        store = self.store()
        return store.path(step) if is_directory(store) else os.path.basename(step_path("", step))

    def save(self, step: int, state: Mapping[Any, Any], json: Mapping[str, Any] | None = None) -> None:
        store = self.store()
        if not self._save_async:
            store.save(step, state, json=json, **self._options)
            return
        self._saving = None  # the call reports its outcome
        try:
            self._saving = store.save_async(step, state, json=json, copy_bytes=self._copy_bytes, **self._options)
        except BaseException:
            self._saving = store._saving  # if the call raises an earlier save's failure, the new save continues
            raise

    def wait(self) -> None:
        """Returns once the last step is durable, and raises the failure of its save, unless that was raised before."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.settle()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close()
