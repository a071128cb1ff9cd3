"""What the adapters of training frameworks share: models and optimizers as a state, and the store of a run."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ._options import SaveKeywords
from ._paths import Path
from .saving import Saving
from .store import Store

_torch: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")


def numbered(name: str, number: int) -> str:
    """As accelerate names the second and later objects of a kind."""
    return f"{name}_{number}" if number else name


class Training:
    """Models and their optimizers as sections of a state, by parameters' names, whatever wraps them.

    Args:
        models, optimizers: as a program trains them; also optimizers that accelerate has wrapped.
    """

    def __init__(self, models: Sequence[Any], optimizers: Sequence[Any]) -> None:
        self._models = list(models)
        unwrapped = [getattr(optimizer, "optimizer", optimizer) for optimizer in optimizers]
        self._optimizers = [(self._owner(optimizer), optimizer) for optimizer in unwrapped]

    def _owner(self, optimizer: Any) -> Any:
        """The model whose parameters it updates."""
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for model in self._models:
            if any(id(parameter) in own for parameter in model.parameters()):
                return model
        raise ValueError(f"no model that accelerate has prepared has the parameters of {type(optimizer).__name__}")

    def state(self) -> dict[str, Any]:
        """The sections. An optimizer without moments gets them here, so that they can be loaded."""
        found = {numbered("model", i): _torch.get_model_state_dict(model) for i, model in enumerate(self._models)}
        for i, (model, optimizer) in enumerate(self._optimizers):
            found[numbered("optimizer", i)] = _torch.get_optimizer_state_dict(model, optimizer)
        return found

    def restore(self, state: Mapping[str, Any]) -> None:
        """Called after a load into :meth:`state`."""
        for i, model in enumerate(self._models):
            _torch.set_model_state_dict(model, state[numbered("model", i)])
        for i, (model, optimizer) in enumerate(self._optimizers):
            if numbered("optimizer", i) in state:
                _torch.set_optimizer_state_dict(model, optimizer, state[numbered("optimizer", i)])


class Steps:
    """The store of a run: opened at its first use, and closed, if it was opened here, by :meth:`close`.

    Args:
        given: the store, or its directory.
        save_async: saves continue in the background.
        copy_bytes: see :func:`libdcp.save_async`.
        options: of saves.
    """

    def __init__(self, given: Store | Path, save_async: bool, copy_bytes: int | None, options: SaveKeywords) -> None:
        self._given = given
        self._opened: Store | None = None
        self._save_async = save_async
        self._copy_bytes = copy_bytes
        self._options = options
        self._saving: Saving | None = None

    def store(self, keep: int | None = None) -> Store:
        """Opens it if necessary. Collective.

        Raises:
            ValueError: the program has opened it, so ``keep`` cannot be set.
        """
        if isinstance(self._given, Store):
            if keep:
                raise ValueError(f"a limit of {keep} steps: the libdcp.Store that was passed has its own keep")
            return self._given
        if self._opened is None:
            self._opened = Store(self._given, keep=keep or 0)
        return self._opened

    def save(self, step: int, state: Mapping[Any, Any], json: Mapping[str, Any] | None = None) -> None:
        if self._save_async:
            self._saving = self.store().save_async(step, state, json=json, copy_bytes=self._copy_bytes, **self._options)
        else:
            self.store().save(step, state, json=json, **self._options)

    def wait(self) -> None:
        """Returns once the last step is durable, and raises the failure of its save."""
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.wait()

    def close(self) -> None:
        try:
            self.wait()
        finally:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.close()
