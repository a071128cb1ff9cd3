"""numpy's arrays and numbers in a pickle that :mod:`libdcp._pickles` has read."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np

from ._pickles import Call, Global, PickleError

_DTYPE = re.compile(r"[biufc]\d{1,2}|b1")
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_ARRAYS = frozenset(Global(module, "_reconstruct") for module in _MODULES)
_NUMBERS = frozenset(Global(module, "scalar") for module in _MODULES)
_TEXT = Global("_codecs", "encode")
_NO_BYTES = frozenset(Global(module, "bytes") for module in ("__builtin__", "builtins"))


def bytes_in(made: Any) -> bytes | None:
    """The bytes that a value is, or represents in the form of pickle's protocol 2; None: it is something else."""
    if isinstance(made, bytes):
        return made
    if isinstance(made, Call) and made.of in _NO_BYTES and not made.arguments:
        return b""
    if isinstance(made, Call) and made.of == _TEXT and len(made.arguments) == 2 and made.arguments[1] == "latin1":
        text = made.arguments[0]
        try:
            return text.encode("latin1") if isinstance(text, str) else None
        except UnicodeEncodeError:
            return None
    return None


def _dtype(made: Any) -> np.dtype[Any]:
    is_dtype = isinstance(made, Call) and made.of == Global("numpy", "dtype") and made.arguments
    name, state = (made.arguments[0], made.state) if is_dtype else (None, None)
    order = state[1] if isinstance(state, tuple) and len(state) > 1 else "|"
    if not isinstance(name, str) or not _DTYPE.fullmatch(name) or order not in ("<", "|", "="):
        raise PickleError("an array of numpy whose type is not that of little-endian numbers")
    try:
        return np.dtype(name)
    except TypeError:
        raise PickleError(f"an array of numpy of an unknown type, {name}") from None


def value_of(made: Call) -> np.ndarray[Any, Any] | np.generic | None:
    """The array or number that a call makes; None: it makes something else.

    Raises:
        PickleError: an array that is damaged, or not of numbers.
    """
    if made.of in _NUMBERS and len(made.arguments) == 2:
        dtype, data = _dtype(made.arguments[0]), bytes_in(made.arguments[1])
        if data is None or len(data) != dtype.itemsize:
            raise PickleError("a number of numpy without its bytes")
        return np.frombuffer(data, dtype)[0]  # type: ignore[no-any-return]
    if made.of not in _ARRAYS:
        return None
    if not isinstance(made.state, tuple) or len(made.state) != 5 or not isinstance(made.state[1], tuple):
        raise PickleError("an array of numpy without its state")
    _, shape, dtype, is_fortran, data = made.state[0], made.state[1], _dtype(made.state[2]), *made.state[3:]
    data = bytes_in(data)
    if any(type(n) is not int or n < 0 for n in shape) or data is None or len(data) != prod(shape) * dtype.itemsize:
        raise PickleError(f"an array of numpy of shape {shape}, whose bytes do not match")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if is_fortran else "C")
