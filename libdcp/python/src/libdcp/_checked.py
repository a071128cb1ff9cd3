"""Checks options as soon as callers pass them. There is a rule for each option, and all messages have one form: the
option's name, its value, and what is expected."""

from __future__ import annotations

import difflib
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ._words import is_text

Rule = Callable[[str, Any], Any]  # arguments: an option's name and value; returns the value to use

LAYOUTS = ("global", "sharded")
ENGINES = ("auto", "direct", "mpio")
REPLICAS = ("check", "warn", "trust")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _of_type(name: str, value: Any, right: str) -> TypeError:
    return TypeError(f"{name}: {_shown(value)} is of type {type(value).__name__}, and not {right}")


def _integer(least: int, most: int) -> Rule:
    def check(name: str, value: Any) -> int:
        right = f"an integer from {least} to {most}"
        if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
            raise _of_type(name, value, right)
        try:
            number = operator.index(value)
        except TypeError:  # for an array
            raise _of_type(name, value, right) from None
        if not least <= number <= most:
            raise ValueError(f"{name}: {number} is {'negative, and ' if number < 0 else ''}not {right}")
        return number
    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (int, np.bool_)):
        raise _of_type(name, value, "True or False")
    if value not in (0, 1):
        raise ValueError(f"{name}: {_shown(value)} is neither True nor False")
    return bool(value)


def _word(names: tuple[str, ...]) -> Rule:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, str):
            raise _of_type(name, value, f"one of {', '.join(names)}")
        if value not in names:
            near = difflib.get_close_matches(value, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name}: {value!r} is none of {', '.join(names)}{hint}")
        return value
    return check


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _of_type(name, value, "a text")
    if not is_text(value):
        raise ValueError(f"{name}: {_shown(value)} contains a character that no name can contain")
    return value


def _globs(name: str, value: Any) -> list[str]:
    if isinstance(value, str):
        return [_text(name, value)]
    if isinstance(value, (bytes, Mapping)) or not isinstance(value, Iterable):
        raise _of_type(name, value, "a glob of paths or a list of them")
    return [_text(name, glob) for glob in value]


def _renames(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise _of_type(name, value, "a mapping from names in the state to those in the checkpoint")
    names = {_text(name, here): _text(name, there) for here, there in value.items()}
    for pattern in (*names, *names.values()):
        if not pattern.startswith(("/", "*")):
            raise ValueError(f'{name}: {_shown(pattern)} matches no path, since paths begin with "/", such as "/model/*"')
    return names


def _redundancy(name: str, value: Any) -> str:
    if not re.fullmatch(r"none|partner|rs\([0-9]+\)", _text(name, value)):
        raise ValueError(f"{name}: {_shown(value)} is none of \"none\", \"partner\" and \"rs(K)\", such as \"rs(2)\"")
    return str(value)


def _indices(name: str, value: Any) -> tuple[int, ...]:
    right = "a tuple of integers, one for each dimension"
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise _of_type(name, value, right)
    found = tuple(value)
    try:
        return tuple(map(operator.index, found))
    except TypeError:
        raise TypeError(f"{name}: {_shown(found)} is not {right}") from None


def _check_json(name: str, value: Any) -> None:
    """Raises TypeError or ValueError for a value that JSON, or the library's parser, cannot represent; the message
    names the keys that lead to the value."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, (str, int, float)) and key is not None:  # json converts these to texts
                raise TypeError(f"{name}: the key {_shown(key)} is no text, which JSON requires")
            _check_json(f"{name}[{key!r}]", inner)
    elif isinstance(value, (list, tuple)):
        for i, inner in enumerate(value):
            _check_json(f"{name}[{i}]", inner)
    elif isinstance(value, str):
        if not is_text(value):
            raise ValueError(f"{name}: {_shown(value)} contains NUL or surrogates; save it in the state")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{name}: {value} is no number of JSON; save it in the state")
    elif isinstance(value, int):
        if not -2**63 <= value < 2**64:
            raise ValueError(f"{name}: {_shown(value)} is outside -2^63 to 2^64 - 1; save it in the state")
    elif value is not None:
        raise TypeError(f"{name}: JSON has no {type(value).__name__}; save it in the state")


def _members(name: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise _of_type(name, value, "a mapping, the members of a JSON object")
    _check_json(name, value)
    return value


def _about(name: str, value: Any) -> Any:
    return _text(name, value) if isinstance(value, str) else _members(name, value)


def _function(name: str, value: Any) -> Any:
    if not callable(value):
        raise _of_type(name, value, "a function")
    return value


def or_none_function(name: str, value: Any) -> Any:
    return None if value is None else _function(name, value)


def _or_none(rule: Rule) -> Rule:
    return lambda name, value: None if value is None else rule(name, value)


_COUNT = _integer(0, 2**32 - 1)
_WORD = _integer(0, 2**64 - 1)

STRIPES: dict[str, Rule] = {"stripe_count": _integer(-1, 2**63 - 1), "stripe_bytes": _WORD}
POLICIES: dict[str, Rule] = {"keep": _COUNT, "keep_every": _WORD, "keep_seconds": _WORD, "keep_best": _COUNT,
                             "keep_metric": _text, "keep_highest": _flag}
STORES: dict[str, Rule] = {"replace": _flag, "take_over": _flag, **POLICIES, **STRIPES}
TIERS: dict[str, Rule] = {"every": _WORD, "private": _flag, "redundancy": _redundancy, "layout": _word(LAYOUTS),
                          "domain": _text, **POLICIES, **STRIPES}
SAVES: dict[str, Rule] = {
    "layout": _word(LAYOUTS), "engine": _word(ENGINES), "shards": _integer(0, 99999), "about": _or_none(_about),
    "staging_bytes": _WORD, "replicas": _word(REPLICAS), "make_room": _flag, "progress": _or_none(_function),
    "json": _or_none(_members), "copy": _flag, "copy_bytes": _or_none(_integer(0, 2**64 - 1))}
LOADS: dict[str, Rule] = {
    "only": _or_none(_globs), "rename": _or_none(_renames), "cast": _flag, "strict": _flag, "engine": _word(ENGINES),
    "progress": _or_none(_function), "fall_back": _flag, "step": _or_none(lambda name, value: step(value))}
READS: dict[str, Rule] = {"only": LOADS["only"], "as_torch": _or_none(_flag), "lazy": _flag}
BOXES: dict[str, Rule] = {"start": _or_none(_indices), "count": _or_none(_indices)}
PROVES: dict[str, Rule] = {"replicas": _word(REPLICAS)}
VERIFIES: dict[str, Rule] = {"progress": _or_none(_function)}


def checked(what: str, given: Mapping[str, Any], rules: Mapping[str, Rule]) -> dict[str, Any]:
    """The options with the values to use.

    Args:
        what: the function or class to which the options belong, for messages.

    Raises:
        TypeError: an option has a wrong type, or no option has that name.
        ValueError: an option has a wrong value.
    """
    for name in given:
        if name not in rules:
            raise _unknown(what, name, rules)
    return {name: rules[name](name, value) for name, value in given.items()}


def _unknown(what: str, name: str, rules: Mapping[str, Rule]) -> TypeError:
    """The error about an unknown option. Unlike Python's own error, it suggests a similar name."""
    of_stores = ("group", *STORES)
    if name in of_stores:
        return TypeError(f"{what}: {name!r} is an argument of libdcp.Store")
    near = difflib.get_close_matches(name, (*rules, *of_stores), 1)
    hint = f"; did you mean {near[0]!r}?" if near else f": they are {', '.join(rules)}"
    return TypeError(f"{what}: there is no argument {name!r}{hint}")


def step(value: Any) -> int:
    """A step's number as an int.

    Raises:
        TypeError, ValueError: it is not a step's number.
    """
    if isinstance(value, (bool, np.bool_)) or not hasattr(type(value), "__index__"):
        raise TypeError(f"step: a {type(value).__name__} is no integer; the arguments are libdcp.save(directory, step, state) "
                        "and store.save(step, state)")
    number = int(_WORD("step", value))
    return number
