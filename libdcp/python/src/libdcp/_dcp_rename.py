"""During a conversion, renames keys to those that the loading program uses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ._names import Keys

Name = TypeVar("Name", bound=Hashable)


class Unusable(ValueError):
    """A renaming that is invalid, or matches nothing."""


def _parsed(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    old, is_pair, new = text.partition("=")
    found = tuple(old.split(".")), tuple(new.split("."))
    if not is_pair or not all(map(all, found)):
        raise Unusable(f"--rename {text}: has to be OLD=NEW, both of them keys joined by dots, such as "
                       "app.optim=optimizer")
    return found


class Renames:
    """Maps the keys that lead to something in a nested state to other keys.

    Args:
        texts: "OLD=NEW" each: if the first keys are those of OLD, they are replaced by those of NEW.

    Raises:
        Unusable: a text does not have this form.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._pairs = dict(map(_parsed, texts))

    def of(self, keys: tuple[str | int, ...]) -> tuple[str | int, ...]:
        """The new keys; the same keys if no renaming matches."""
        for old, new in self._pairs.items():
            if tuple(map(str, keys[:len(old)])) == old:
                return *new, *keys[len(old):]
        return keys

    def of_all(self, all_keys: Mapping[Name, tuple[str | int, ...]]) -> dict[Name, tuple[str | int, ...]]:
        """The new keys of each name.

        Raises:
            Unusable: a renaming matches nothing.
            ValueError: two names would have the same keys.
        """
        for old in self._pairs:
            if not any(tuple(map(str, keys[:len(old)])) == old for keys in all_keys.values()):
                first = sorted({str(keys[0]) for keys in all_keys.values()})
                raise Unusable(f"--rename {'.'.join(old)}: nothing has these keys; the first ones are {', '.join(first)}")
        made = {name: self.of(keys) for name, keys in all_keys.items()}
        had: dict[tuple[str | int, ...], Name] = {}
        for name, keys in made.items():
            if had.setdefault(keys, name) != name and self._pairs:
                raise ValueError(f"--rename: {Keys(all_keys[had[keys]])} and {Keys(all_keys[name])} would both be "
                                 f"{Keys(keys)}")
        return made

    def of_state(self, state: Mapping[Any, Any]) -> dict[Any, Any]:
        """A nested state with the new keys.

        Raises:
            Unusable, ValueError: as in :meth:`of_all`.
        """
        if not self._pairs:
            return dict(state)
        leaves = dict(_leaves(state, ()))
        made: dict[Any, Any] = {}
        for old, new in self.of_all({keys: keys for keys in leaves}).items():
            inner = made
            for key in new[:-1]:
                inner = inner.setdefault(key, {})
                if not isinstance(inner, dict):
                    raise ValueError(f"--rename: {Keys(new)} would be inside something that is not a mapping")
            if new[-1] in inner:
                raise ValueError(f"--rename: {Keys(new)} would be two values")
            inner[new[-1]] = leaves[old]
        return made


def _leaves(value: Mapping[Any, Any], keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The values that are not dictionaries, or are empty ones, and the keys that lead to them."""
    for key, inner in value.items():
        if type(inner) in (dict, OrderedDict) and inner:
            yield from _leaves(inner, (*keys, key))
        else:
            yield (*keys, key), inner
