"""What a load finds in a checkpoint, by the paths of the state that it fills."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ._names import object_path
from ._tree import Stored
from .errors import Error, Status
from .ranks import Shape

_UPDATES = "/optimizer/step/"
_MOMENT = "/optimizer/exp_avg/"
_OF_TRAINER = {"optimizer", "samples", "schedule"}  # members of dcp-train's JSON


def _renamed(path: str, pattern: str, to: str) -> str | None:
    """The path that stands for one which the pattern matches."""
    before, star, after = pattern.partition("*")
    if path == pattern or star and len(path) >= len(before + after) and path.startswith(before) and path.endswith(after):
        return to.replace("*", path[len(before):len(path) - len(after)], 1)
    return None


class Lookup:
    """The tensors of a checkpoint.

    Args:
        shape: of a tensor in the checkpoint, by its path there; None, there is none.
        words: what the checkpoint's JSON has.
        rename: as in :func:`libdcp.load`.
        dtype: as shape.
        paths: of all tensors in the checkpoint.
    """

    def __init__(self, shape: Callable[[str], Shape | None], words: Stored, rename: Mapping[str, str] | None,
                 dtype: Callable[[str], int | None], paths: Callable[[], list[str]]) -> None:
        self._dtype = dtype
        self._paths = paths
        self._shape = shape
        self.words = words
        self.members = words.members
        self._rename = rename or {}
        self.may_lack = _OF_TRAINER <= words.members.keys()  # tensors that a load fills otherwise

    def stored(self, path: str) -> str:
        """Its path in the checkpoint."""
        return next(filter(None, (_renamed(path, *names) for names in self._rename.items())), path)

    def names(self, stored: str) -> list[str]:
        """The paths in a state that would be loaded from one in the checkpoint."""
        found = filter(None, (_renamed(stored, there, here) for here, there in self._rename.items()))
        return [name for name in (*found, stored) if self.stored(name) == stored]

    def name(self, stored: str) -> str | None:
        """The path in a state that is loaded from one in the checkpoint; None, there is none."""
        return next(iter(self.names(stored)), None) if self._rename else stored

    @functools.cached_property
    def _told(self) -> dict[str, list[tuple[str, str]]]:
        """The tensors whose paths tell their keys, by section of the state: their paths there and in the checkpoint."""
        found: dict[str, list[tuple[str, str]]] = {}
        for path in self._paths():
            name = self.name(path)
            if name is not None and not self.words.has_place(path):
                found.setdefault(name[1:].split("/", 1)[0], []).append((name, path))
        return found

    def told(self, keys: tuple[Any, ...]) -> list[tuple[str, str]]:
        """The tensors below the keys that the checkpoint's JSON does not place: their paths in the state and in the
        checkpoint. Below more keys than that of a section only older versions' files have such ones."""
        found = self._told.get(str(keys[0]), [])
        if len(keys) == 1:
            return found
        before = object_path(keys) + "."
        return [] if self.words.is_tagged else [pair for pair in found if pair[0].startswith(before)]

    def keys_below(self, keys: tuple[Any, ...], name: str, path: str) -> tuple[Any, ...]:
        """Those that lead from there to one of them."""
        if len(keys) > 1:
            return (name[len(object_path(keys)) + 1:],)
        whole = self.words.keys_of(path)
        return whole[1:] or whole

    def shape(self, path: str) -> Shape | None:
        return self._shape(self.stored(path))

    @functools.cached_property
    def _each_by_path(self) -> dict[str, Mapping[str, Any]]:
        return dict(self.words.each_by_path())

    def each(self, keys: tuple[Any, ...]) -> Mapping[str, Any] | None:
        """What ranks have saved for themselves at these keys, their words by rank; None: there is no such thing."""
        return self._each_by_path.get(self.stored(object_path(keys)))

    def path_like(self, path: str, keys: tuple[Any, ...]) -> str:
        """What a tensor of theirs is called in the state, of which the checkpoint has another name by ``rename``."""
        named = object_path(keys)
        stored = self.stored(named)
        return named + path[len(stored):] if named != stored and path.startswith(stored) else path

    def dtype(self, path: str) -> int | None:
        """Its number."""
        return self._dtype(self.stored(path))

    def updates(self, path: str) -> int | None:
        """The number that torch's optimizers keep as a parameter's ``step``, where a step of dcp-train has its moments:
        it counts updates once for all parameters, as its own number, and has in its JSON what began later. None of all
        other paths."""
        stored = self.stored(path)
        if not stored.startswith(_UPDATES) or not _OF_TRAINER <= self.members.keys():
            return None
        parameter = stored[len(_UPDATES):]
        if self._shape(stored) is not None or self._shape(_MOMENT + parameter) is None:
            return None
        begun = self.members.get("moments_since", {})
        since = begun.get(parameter, 0) if isinstance(begun, dict) else None
        if not isinstance(since, int):
            raise Error(f'the member "moments_since" of the JSON has no number for {parameter}', status=Status.CORRUPT,
                        tensor=_MOMENT + parameter)
        return int(self.members["step"]) - since
