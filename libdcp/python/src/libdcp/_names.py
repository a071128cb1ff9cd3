"""Converts the keys of a nested mapping to a checkpoint's names, and back."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import _arrays
from ._words import Keys as Keys
from .ranks import Loader, PerRank

OBJECTS = "state"  # the member of the checkpoint's JSON for what is not a tensor
_LARGEST_BITS = 1024  # for an integer that is written in decimal; Python refuses to convert very large ones
_WORDS = (str, int, float, bool, type(None))

_tensors: dict[type, bool] = {}  # whether a type's values are tensors; states have thousands of values of few types


def is_tensor(value: Any) -> bool:
    """Returns true if the value becomes a tensor in the checkpoint; otherwise it goes into the JSON."""
    kind = type(value)
    if kind is PerRank:
        return bool(value.is_array)
    found = _tensors.get(kind)
    if found is None:
        found = _tensors[kind] = _arrays.is_tensor_type(kind) or issubclass(kind, Loader) or (
            not issubclass(kind, _WORDS) and hasattr(value, "__cuda_array_interface__"))
    return found


def is_optimizer(value: Any) -> bool:
    """Returns true for the form of torch's get_state_dict: {"state": {parameter: {moment: tensor}}, "param_groups":
    [...]}."""
    return isinstance(value, Mapping) and set(value) == {"state", "param_groups"} and isinstance(value["state"], Mapping)


def _text(key: Any) -> str:
    """A key in a path."""
    return hex(key) if type(key) is int and key.bit_length() > _LARGEST_BITS else str(key)


def path_of(keys: tuple[Any, ...], is_moment: bool = False) -> str:
    """The path of the tensor to which the keys lead.

    Args:
        is_moment: it is a tensor of an optimizer's section: (section, "state", parameter, moment).
    """
    if len(keys) == 1:
        return f"/model/{_text(keys[0])}"
    if is_moment:
        return f"/{_text(keys[0])}/{_text(keys[3])}/{_text(keys[2])}"
    return f"/{_text(keys[0])}/" + ".".join(map(_text, keys[1:]))


_DOUBTFUL = re.compile("/(?:\\.{0,2})(?:/|$)|[\0\ud800-\udfff]")
_NO_PARTS = ("", ".", "..")
_MOST = 1024  # bytes


def may_be_fine(path: str) -> bool:
    """Returns true if the library certainly accepts the path for a tensor. Returns false for long paths, even if their
    bytes are within the limit."""
    return len(path) * 4 <= _MOST and _DOUBTFUL.search(path) is None


def are_fine(section: str, names: Mapping[str, Any]) -> bool:
    """Returns true if all names of a section are certainly valid."""
    text = section + "".join(names)
    if "/" in text or "\0" in text or not text.isascii() and _DOUBTFUL.search(text):
        return False
    if section in _NO_PARTS or any(part in names for part in _NO_PARTS):
        return False
    return 4 * (len(section) + max(map(len, names), default=0) + 2) <= _MOST


def refuse_wrong(path: str, keys: Keys) -> None:
    """Refuses a path that is not valid for a tensor.

    Raises:
        ValueError: it is not a tensor's path.
    """
    found = _DOUBTFUL.search(path)
    if found is not None and found[0][:1] != "/":
        raise ValueError(f"{keys}: a name with {'a NUL' if found[0] == chr(0) else repr(found[0])}")
    if found is not None:
        raise ValueError(f"{keys}: the tensor would be {path!r}, and no part of a path may be empty, '.' or '..'")
    n = len(path.encode())
    if n > _MOST:
        raise ValueError(f"{keys}: the tensor's path would have {n} bytes, and at most {_MOST} are possible")


def object_path(keys: tuple[Any, ...]) -> str:
    """The path of what is not a tensor, for globs and renames: like a tensor's, but "/epoch" at the top level."""
    return "/".join(("", *map(_text, keys[:1]), *([".".join(map(_text, keys[1:]))] if len(keys) > 1 else [])))


def keys_told(path: str, has_groups: bool) -> tuple[str, ...]:
    """The keys that lead to a tensor, as far as its path gives them: in a section's mapping, or in the moments of an
    optimizer.

    Args:
        has_groups: the section is an optimizer's.
    """
    section, name = path[1:].split("/", 1)
    if "/" in name and has_groups:
        moment, parameter = name.split("/", 1)
        return section, "state", parameter, moment
    return section, name


def keys_of(path: str, objects: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that lead to a tensor, also using what the checkpoint's JSON says about the section.

    Args:
        objects: what was not a tensor, from the checkpoint's JSON.
    """
    section = path[1:].split("/", 1)[0]
    described = objects.get(section)
    return keys_told(path, section == "optimizer" or isinstance(described, dict) and "param_groups" in described)


def is_below(path: str, keys: tuple[Any, ...]) -> bool:
    """Returns true if a tensor lies below the mapping to which the keys lead."""
    section, *rest = map(_text, keys)
    if not path.startswith(f"/{section}/"):
        return False
    if rest[:1] == ["state"] and "/" in path[len(section) + 2:]:  # an optimizer's
        return not rest[1:] or path.endswith("/" + ".".join(rest[1:]))
    return not rest or path.startswith(f"/{section}/{'.'.join(rest)}.")


_FLOAT = "float"  # {"float": "inf"} represents a number that JSON lacks


def word(value: Any, keys: Keys) -> Any:
    """The value in JSON without tags.

    Raises:
        TypeError: JSON cannot represent it; the message names the keys.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: str(value)}
    if isinstance(value, _WORDS) or (isinstance(value, (Mapping, Sequence)) and not value):
        return value
    raise TypeError(f"{keys}: a {type(value).__name__} is neither a tensor nor a number, a text, a list or a "
                    "mapping, and nothing is pickled; save what it consists of")
