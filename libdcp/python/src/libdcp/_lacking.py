"""New arrays for tensors of a checkpoint for which the state has no place: in objects, and in what is replaced as a
whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Set
from typing import Any

import numpy as np

from . import _arrays
from ._lookup import Lookup
from ._tree import Flat, OwnArray, Row, Trail
from ._words import Keys
from .errors import Error, Status
from .ranks import PerRank

Selects = Callable[[str], bool]


class New:
    """Tensors of the checkpoint that are loaded into new arrays, since the state has none in their places.

    Args:
        flat: the state.
        stored: the checkpoint.
        selects: returns true for a path in the state if what it names is loaded.
        left_out: paths of tensors that other ranks have.

    Attributes:
        rows: the new arrays.
        unnamed: the paths of those new arrays that are omitted if another rank's state names them.
        near: rows of the object for which arrays are being made; empty if they are not for an object.
    """

    def __init__(self, flat: Flat, stored: Lookup, selects: Selects, left_out: Set[str]) -> None:
        self._flat, self._stored, self._selects, self._left_out = flat, stored, selects, left_out
        self._made: dict[str, Any] = {}
        self.rows: list[Row] = []
        self.unnamed: set[str] = set()
        self.near: list[Row] = []

    def is_taken(self, name: str | None) -> bool:
        """Returns true if a mapping receives the tensor that has this path in the state."""
        if name is None or name in self._left_out or not self._selects(name):
            return False
        self.unnamed.add(name)
        return True

    def fits(self, value: Any, name: str | None) -> bool:
        """Returns true if a tensor can be loaded into what an object has in its place; otherwise a new array may
        replace that value."""
        if name is None or not self._selects(name) or not _arrays.is_plain(value):
            return True
        return not _arrays.is_uninitialized(value) and self._stored.shape(name) in (None, tuple(value.shape))

    def selected(self, own: OwnArray, keys: Trail) -> OwnArray:
        """Returns an array within a value that this rank has separately, if the array is loaded."""
        path = own.row.path
        if not self._selects(path):  # the value would have an array that nothing has filled
            raise Error(f"{Keys(keys)}: this rank's value contains the tensor {path}, which is not among what is "
                        "loaded", status=Status.MISMATCH, tensor=path)
        return own

    def array(self, name: str | None, path: str, keys: Trail) -> Any:
        """A new array for a tensor, given its paths in the state and in the checkpoint."""
        if name is None or not self._selects(name):
            raise Error(f"{Keys(keys)}: the state has nothing in the place of the tensor {path}, which is not among what is "
                        "loaded", status=Status.MISMATCH, tensor=path)
        if name not in self._made:
            shape, dtype = self._stored.shape(name), self._stored.dtype(name)
            if shape is None or dtype is None:
                raise Error(f"{Keys(keys)}: the checkpoint's JSON has the tensor {path} here, and the checkpoint has no such "
                            "tensor", status=Status.UNSUPPORTED, tensor=path)  # the words' checksum is right
            self._made[name] = _arrays.new_array(self._like(), dtype, shape)
            self.rows.append(Row(name, Keys(keys), self._made[name]))
        return self._made[name]

    def _like(self) -> Any:
        """An array of the object, or of the state, that decides between numpy and torch."""
        for rows in (self.near, self._flat.all_rows):
            for row in rows:
                value = row.value.value if isinstance(row.value, PerRank) else row.value
                if isinstance(value, np.ndarray) or _arrays.is_torch_tensor(value):
                    return value
        return None


def told_by(name: str, hint: Any) -> Trail:
    """The keys of an object's tensor in older versions' files, as far as the object's mappings show them."""
    if isinstance(hint, Mapping):
        for key, inner in hint.items():
            if isinstance(inner, Mapping) and name.startswith(f"{key}.") and name not in hint:
                return (key, *told_by(name.removeprefix(f"{key}."), inner))
    return (name,)


def is_module(value: Any) -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def takes_more(value: Any, keys: Trail) -> bool:
    """Returns true if an object can receive a tensor that its own state dict lacks. A torch module that loads as
    torch's own modules do cannot, since those refuse such a tensor."""
    if not is_module(value):
        return True
    plain: Any = sys.modules["torch"].nn.Module
    for part in str(keys[0]).split("."):
        kind = type(value)
        if (kind.load_state_dict is not plain.load_state_dict or value._load_state_dict_pre_hooks
                or kind._load_from_state_dict is not plain._load_from_state_dict):
            return True
        value = value._modules.get(part)
        if value is None:
            break
    return False
