"""Finds what a checkpoint contains, given the paths of the state that is loaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ._decoding import Decoder
from ._names import object_path
from ._tree import Stored
from .errors import Error, Status
from .ranks import Shape

_UPDATES = "/optimizer/step/"
_MOMENT = "/optimizer/exp_avg/"
_OF_TRAINER = {"optimizer", "samples", "schedule"}  # members of dcp-train's JSON


def _renamed(path: str, pattern: str, to: str) -> str | None:
    """Replaces a path that the pattern matches."""
    before, star, after = pattern.partition("*")
    if path == pattern or star and len(path) >= len(before + after) and path.startswith(before) and path.endswith(after):
        return to.replace("*", path[len(before):len(path) - len(after)], 1)
    return None


class Lookup:
    """The tensors of a checkpoint.

    Args:
        shape: returns the shape of a tensor in the checkpoint, given its path there; None if there is none.
        words: the contents of the checkpoint's JSON.
        rename: as in :func:`libdcp.load`.
        dtype: like ``shape``, but returns the tensor's dtype.
        paths: returns the paths of all tensors in the checkpoint.
    """

    def __init__(self, shape: Callable[[str], Shape | None], words: Stored, rename: Mapping[str, str] | None,
                 dtype: Callable[[str], int | None], paths: Callable[[], list[str]]) -> None:
        self._dtype = dtype
        self._paths = paths
        self._shape = shape
        self.words = words
        self.members = words.members
        self._rename = rename or {}
        # Whether the checkpoint may lack tensors, which a load then sets in another way.
        self.may_lack = _OF_TRAINER <= words.members.keys()

    def stored(self, path: str) -> str:
        """The path in the checkpoint."""
        return next(filter(None, (_renamed(path, *names) for names in self._rename.items())), path)

    def names(self, stored: str) -> list[str]:
        """The paths in a state that would be loaded from a path in the checkpoint."""
        found = filter(None, (_renamed(stored, there, here) for here, there in self._rename.items()))
        return [name for name in (*found, stored) if self.stored(name) == stored]

    def name(self, stored: str) -> str | None:
        """The path in the state that corresponds to a path in the checkpoint; None if there is none."""
        return next(iter(self.names(stored)), None) if self._rename else stored

    @functools.cached_property
    def _told(self) -> dict[str, list[tuple[str, str]]]:
        """The tensors whose keys have to be derived from their paths, since the checkpoint's JSON does not give the
        keys. For each section of the state, a list of pairs: the path in the state, and the path in the checkpoint."""
        found: dict[str, list[tuple[str, str]]] = {}
        is_beside = self._has_model_beside
        for path in self._paths():
            name = self.name(path)
            is_at_top = is_beside and path.startswith("/model/")
            if name is not None and not is_at_top and not self.words.has_place(path):
                found.setdefault(name[1:].split("/", 1)[0], []).append((name, path))
        return found

    @property
    def _has_model_beside(self) -> bool:
        """Returns true if the tensors of the section "model" were at the state's top level, and the state also had a
        mapping "model", which contained no tensors."""
        decoder = Decoder(self.words.is_tagged, plain=True)
        tops = self.words.children(self.words.words, decoder) if self.words.is_flat else None
        return any(key == "model" and self.words.children(word, decoder) is not None for key, word in tops or ())

    def told(self, keys: tuple[Any, ...]) -> list[tuple[str, str]]:
        """The tensors below the keys, except those whose keys the checkpoint's JSON gives, as pairs: the path in the
        state, and the path in the checkpoint. If the keys lead deeper than a section, only files of older versions have
        such tensors."""
        found = self._told.get(str(keys[0]), [])
        if len(keys) == 1:
            return found
        before = object_path(keys) + "."
        return [] if self.words.is_tagged else [pair for pair in found if pair[0].startswith(before)]

    def keys_below(self, keys: tuple[Any, ...], name: str, path: str) -> tuple[Any, ...]:
        """The keys that lead from the place that ``keys`` name to a tensor that :meth:`told` returned."""
        if len(keys) > 1:
            return (name[len(object_path(keys)) + 1:],)
        whole = self.words.keys_of(path)
        return whole[1:] or whole

    def shape(self, path: str) -> Shape | None:
        return self._shape(self.stored(path))

    @functools.cached_property
    def _each_by_path(self) -> dict[str, list[tuple[tuple[Any, ...], Mapping[str, Any]]]]:
        """What ranks saved separately. Several keys may give one path, such as ("a", "b.c") and ("a", "b", "c")."""
        found: dict[str, list[tuple[tuple[Any, ...], Mapping[str, Any]]]] = {}
        for keys, words in self.words.of_ranks():
            found.setdefault(object_path(keys), []).append((keys, words))
        return found

    def each(self, keys: tuple[Any, ...]) -> Mapping[str, Any] | None:
        """The words that ranks saved separately at these keys, by rank; None if there are none."""
        path = self.stored(object_path(keys))
        found = self._each_by_path.get(path, [])
        others = found[-1][1] if found and self._shape(path) is None else None
        return next((words for own, words in found if own == keys), others)

    def path_like(self, path: str, keys: tuple[Any, ...]) -> str:
        """The path that a tensor below the keys has in the state, given its path in the checkpoint. The two paths
        differ if ``rename`` renames what the keys lead to."""
        named = object_path(keys)
        stored = self.stored(named)
        return named + path[len(stored):] if named != stored and path.startswith(stored) else path

    def dtype(self, path: str) -> int | None:
        """The dtype's number."""
        return self._dtype(self.stored(path))

    def updates(self, path: str) -> int | None:
        """How often a parameter was updated, which torch's optimizers store as ``step``. dcp-train stores no such
        counts. If its checkpoint has the parameter's moments, the count is the checkpoint's step minus the step at
        which the moments were zero (0, unless the JSON names another). None for all other paths."""
        stored = self.stored(path)
        if not stored.startswith(_UPDATES) or not _OF_TRAINER <= self.members.keys():
            return None
        parameter = stored[len(_UPDATES):]
        if self._shape(stored) is not None or self._shape(_MOMENT + parameter) is None:
            return None
        begun = self.members.get("moments_since", {})
        since = begun.get(parameter, 0) if isinstance(begun, dict) else None
        if not isinstance(since, int):
            raise Error(f'the member "moments_since" of the JSON has no number for {parameter}',
                        status=Status.UNSUPPORTED, tensor=_MOMENT + parameter)
        return int(self.members["step"]) - since
