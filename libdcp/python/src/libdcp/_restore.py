"""What a load changes in the caller's state besides its tensors: :class:`Restoring` is made, and can fail, before
anything is changed."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import logging
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Set
from typing import Any

from . import _arrays, _names, _options
from ._names import is_tensor
from ._lacking import New, is_module, takes_more, told_by
from ._lookup import Lookup
from ._tree import Flat, Object, OwnArray, Stored, Trail
from ._decoding import Decoder, inner_of
from . import _words
from ._union import EACH
from ._words import Keys
from .errors import Error, Status, call_all
from .ranks import PerRank

_SAID_MOST = 8  # differences that a message names

log = logging.getLogger("libdcp")

Selects = Callable[[str], bool]


class _IntoState(Decoder):
    """Decodes words. The words refer to tensors; in their places, the decoded values have the tensors of the state that
    is loaded into.

    Args:
        rank: this rank.
        arrays: those that are loaded only for this rank, by their paths in the checkpoint.
        stored: the checkpoint.
        new: receives the tensors for which the state has no place.
    """

    def __init__(self, classes: Mapping[str, type], rank: int, arrays: Mapping[str, OwnArray], stored: Lookup,
                 new: New) -> None:
        super().__init__(stored.words.is_tagged, classes)
        self._rank, self._arrays, self._stored, self._new = str(rank), arrays, stored, new
        self.owns: list[tuple[PerRank, bool, Any]] = []  # a value, whether something was saved for it, and what
        self.in_object = False
        self._is_whole = False  # what is decoded is new, and is complete, whatever part of it other ranks name
        self._is_own = False  # what is decoded is all that this rank has saved of a libdcp.PerRank

    def item(self, word: Any, keys: Trail, hint: Any) -> Any:
        return self.whole(word, keys, hint) if hint is None else super().item(word, keys, hint)

    def whole(self, word: Any, keys: Trail, hint: Any) -> Any:
        """The value of something for which the state has nothing, such as a new item of a list, or only None."""
        outer, self._is_whole = self._is_whole, True
        try:
            return self.value(word, keys, hint)
        finally:
            self._is_whole = outer

    def tensor(self, path: Any, keys: Trail, hint: Any) -> Any:
        if path in self._arrays:
            row, old = self._new.selected(self._arrays[path], keys)
            return row.value if old is None else old
        name = self._stored.name(str(path))
        if is_tensor(hint) and not (self.in_object and not self._new.fits(hint, name)):
            return hint
        return self._new.array(name, str(path), keys)

    def _is_left_out(self, word: Any, hint: Any) -> bool:
        """Returns true if the word represents a tensor that a mapping omits."""
        if self._is_whole or not self._is_tagged or _words.tag_of(word) != "$tensor":
            return False
        if is_tensor(hint) or word["$tensor"] in self._arrays:
            return False
        return not self._new.is_taken(self._stored.name(str(word["$tensor"])))

    def each(self, content: Any, keys: Trail, hint: Any) -> Any:
        if not isinstance(hint, PerRank):
            raise Error(f"{Keys(keys)}: each rank has saved its own value of this; put a libdcp.PerRank in its place",
                        status=Status.MISMATCH)
        there = self._rank in content
        self._is_own = True
        try:
            self.owns.append((hint, there, self.value(content[self._rank], keys, hint.value) if there else None))
        finally:
            self._is_own = False
        return hint

    def value(self, word: Any, keys: Trail = (), hint: Any = None) -> Any:
        if word is None and not self._is_tagged and keys:  # as older versions wrote for tensors in lists
            name = _names.path_of(keys)
            if is_tensor(hint):
                return hint
            if self._stored.shape(name) is not None:
                return self._new.array(name, self._stored.stored(name), keys)
        made = super().value(word, keys, hint)
        if self._is_tagged or type(word) is not list or type(made) is not list:
            return made
        if isinstance(hint, tuple):  # older versions have only lists
            return hint._make(made) if hasattr(hint, "_make") and len(hint) == len(made) else tuple(made)
        return collections.deque(made, hint.maxlen) if type(hint) is collections.deque else made

    def mapping(self, word: dict[str, Any], keys: Trail, hint: Any) -> Any:
        if not isinstance(hint, Mapping):
            return super().mapping({key: inner for key, inner in word.items() if not self._is_left_out(
                inner, inner_of(hint, key))}, keys, hint)
        as_key = (lambda key: key) if self._is_tagged else _key_like(hint)
        made = {(key := as_key(text)): self.value(inner, (*keys, key), inner_of(hint, key)) for text, inner in word.items()
                if not self._is_left_out(inner, inner_of(hint, text))}
        if self._is_own:
            return made
        made = _with_own_tensors(made, hint)
        return made if type(hint) is dict or self._is_tagged and not _has_tensors(hint) else _of_kind(hint, made)

    def pairs(self, content: Any, keys: Trail, hint: Any) -> list[tuple[Any, Any]]:
        found = super().pairs([pair for pair in content if not self._is_left_out(pair[1], inner_of(
            hint, self.value(pair[0])))], keys, hint)
        if self._is_own or not isinstance(hint, Mapping) or not any(map(_has_tensors, hint.values())):
            return found
        made = dict(found)
        whole = _with_own_tensors(made, hint)
        return list(whole.items()) if len(whole) > len(made) else found  # an OrderedDict keeps its order

    def _of_tag(self, tag: str, content: Any, keys: Trail, hint: Any) -> Any:
        made = super()._of_tag(tag, content, keys, hint)
        if self._is_own:
            return made
        is_of_names = tag == "$dict" and isinstance(hint, Mapping) and type(hint) is not dict and _has_tensors(hint)
        return _of_kind(hint, made) if is_of_names else made  # as in mapping(): the tag only serves to represent keys


def _key_like(hint: Mapping[Any, Any]) -> Callable[[str], Any]:
    """Returns a function that converts a text to a key of the mapping. In older versions' files, all keys are texts."""
    known = {str(key): key for key in hint}
    are_numbers = bool(known) and all(type(key) is int for key in hint) or type(hint) is collections.Counter

    def key_of(text: str) -> Any:
        if text not in known and are_numbers and text.removeprefix("-").isdecimal():
            return int(text)
        return known.get(text, text)
    return key_of


def _of_kind(hint: Mapping[Any, Any], made: dict[Any, Any]) -> Any:
    """A mapping with these members, of the same kind as the hint, such as a module's state dict."""
    if not isinstance(hint, MutableMapping):
        return made
    new = copy.copy(hint)
    new.clear()
    new.update(made)
    for name in _words.mirrored_by(hint):  # the copy has the attributes of the old items
        if name in made:
            _words.set_attribute(new, name, new[name] if name in new else made[name])  # update() may convert values
        else:
            _words.drop_attribute(new, name)
    _words.drop_cached(new)
    if hasattr(hint, "_metadata"):  # torch's modules require it
        new._metadata = hint._metadata  # type: ignore[attr-defined]
    return new


def _has_tensors(value: Any) -> bool:
    if is_tensor(value):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_tensors, value))


def _tensors_alone(value: Any) -> Any:
    """A copy of the value whose mappings contain only tensors."""
    if not isinstance(value, Mapping):
        return value
    return {key: _tensors_alone(inner) for key, inner in value.items() if _has_tensors(inner)}


def _with_own_tensors(made: dict[Any, Any], hint: Mapping[Any, Any]) -> dict[Any, Any]:
    """The members, with the hint's tensors that the words do not name, in the order of the hint's keys."""
    of_tensors = {key: _tensors_alone(inner) for key, inner in hint.items() if key not in made and _has_tensors(inner)}
    whole = {**of_tensors, **made}
    return {key: whole[key] for key in (*(k for k in hint if k in whole), *(k for k in made if k not in hint))}


def is_of_tensors(value: Any) -> bool:
    """Returns true for a tensor, and for what contains only tensors and no empty mapping or list."""
    if is_tensor(value):
        return True
    if isinstance(value, Mapping):
        return bool(value) and all(map(is_of_tensors, value.values()))
    return isinstance(value, (list, tuple)) and bool(value) and all(map(is_of_tensors, value))


def _merged(value: Any, more: Mapping[Any, Any]) -> Any:
    """A mapping with additional members, which may be mappings whose members are added in the same way."""
    if not more:
        return value
    members = value if isinstance(value, Mapping) else {}
    added = {key: _merged(members.get(key), inner) if type(inner) is dict else inner for key, inner in more.items()}
    made = {**members, **added}
    return made if type(value) is dict else _of_kind(value, made)


def _typed(keys: Trail) -> list[tuple[type, Any]]:
    """The keys as they are compared: 1, 1.0 and True are different keys."""
    return [(type(key), key) for key in keys]


def _n_alike(one: Trail, other: Trail) -> int:
    """The number of keys, counted from the last one, that are the same on both sides."""
    pairs = zip(_typed(one[::-1]), _typed(other[::-1]))
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


class Renamed:
    """Finds where a checkpoint has what the state has under a path.

    Args:
        stored_path: returns the path in the checkpoint for a path in the state.
        stored: the checkpoint's words.
        decoder: decodes keys.
    """

    def __init__(self, stored_path: Callable[[str], str], stored: Stored, decoder: Decoder) -> None:
        self._decoder = decoder
        self._stored_path = stored_path
        self._stored = stored
        self._by_path: dict[str, list[tuple[Trail, Any]]] | None = None
        self._taken: dict[tuple[str, Trail], Trail] = {}  # keys in the state, by their path and the keys found for them

    def find(self, keys: Trail) -> tuple[Trail, Any] | None | bool:
        """The word and its keys; False if the path is not renamed; None if the checkpoint has nothing of the new name.

        Raises:
            libdcp.Error: MISMATCH: keys with equal texts, such as 1 and "1", leave open which value is meant.
        """
        path = _names.object_path(keys)
        renamed = self._stored_path(path)
        if renamed == path:  # perhaps everything below it is renamed
            for separator in ("/", "."):
                below = self._stored_path(f"{path}{separator}\0")
                if below != f"{path}{separator}\0" and below[-1:] == "\0":
                    renamed = below[:-2]
                    break
        if renamed == path:
            return False
        if self._by_path is None:
            self._by_path = {}
            self._add(self._stored.words, (), self._by_path)
        found = self._by_path.get(renamed)
        if found is None:
            return None
        alike = [_n_alike(where, keys) for where, _ in found]
        best = found[alike.index(max(alike))]
        if alike.count(max(alike)) > 1:
            self._refuse(found[0][0], found[1][0], renamed)
        other = self._taken.setdefault((path, tuple(_typed(best[0]))), keys)
        if _typed(other) != _typed(keys):
            self._refuse(other, keys, renamed)
        return best

    @staticmethod
    def _refuse(one: Trail, other: Trail, path: str) -> None:
        raise Error(f"{Keys(one)} and {Keys(other)} would both be {path} in the checkpoint", status=Status.MISMATCH)

    def _add(self, word: Any, keys: Trail, into: dict[str, list[tuple[Trail, Any]]]) -> None:
        if keys:
            into.setdefault(_names.object_path(keys), []).append((keys, word))
        for key, inner in self._stored.children(word, self._decoder) or ():
            self._add(inner, (*keys, key), into)


def _load(found: Any, value: Any) -> None:
    found.load_state_dict(value)


def _remove(members: Any, keys: Trail, named: Mapping[str, Any]) -> None:
    """Removes the values whose keys are in ``named``, at any depth, from a mapping of any kind that a decoder has
    made."""
    for key, value in list(members.items()):
        inner_keys = (*keys, key)
        is_removed = str(Keys(inner_keys)) in named
        if not is_removed and isinstance(value, Mapping) and value:
            _remove(value, inner_keys, named)
            is_removed = not value
        if is_removed:
            _delete(members, key, value)


def _delete(members: Any, key: Any, value: Any) -> None:
    """Deletes an item, and the attribute that mirrors it, as the decoder sets them: without the class's methods."""
    if isinstance(members, collections.UserDict):
        del members.data[key]
        return
    if not isinstance(members, dict):
        del members[key]
        return
    base = collections.OrderedDict if isinstance(members, collections.OrderedDict) else dict
    is_mirrored = type(key) is str and _words.attribute_of(members, key) is value
    base.__delitem__(members, key)
    if is_mirrored:
        _words.drop_attribute(members, key)


_MISSING: Any = object()


class Restoring:
    """What a load changes in a state besides its tensors. Nothing is changed before :meth:`put`.

    Args:
        state: the caller's state.
        flat: the flattened state.
        stored: the checkpoint.
        selects: returns true for a path in the state if what it names is loaded.
        is_part: only what is selected is compared, not the whole checkpoint.
        is_strict: refuses what only one side has.
        left_out: paths of tensors that other ranks' states name, and that this rank's objects do not receive.
        rank: this rank.

    Attributes:
        missing: the keys, in the state, of what the checkpoint lacks.
        unexpected: the keys, in the checkpoint, of what the state lacks.
        new: arrays for the tensors of the checkpoint for which the state has no places, in objects and in what is
            replaced as a whole.
        unnamed: the paths of those new arrays that are omitted if another rank's state names them.
    """

    def __init__(self, state: Mapping[Any, Any], flat: Flat, stored: Lookup, *, selects: Selects, is_part: bool,
                 is_strict: bool, left_out: Set[str], rank: int) -> None:
        self.missing: list[Keys] = []
        self.unexpected: list[Keys] = []
        self._flat = flat
        self._named = set(map(self._name, state))
        self._lookup = stored
        self._stored = stored.words
        self._selects = selects
        self._is_part, self._is_strict = is_part, is_strict
        self._new = New(flat, stored, selects, left_out)
        self.new, self.unnamed = self._new.rows, self._new.unnamed
        self._decoder = _IntoState(flat.classes, rank, flat.arrays, stored, self._new)
        self._renamed = Renamed(stored.stored, stored.words, self._decoder)
        self._puts: list[tuple[Any, Any, Any]] = []  # container, key, value
        # For each of _puts that fills an empty mapping: its index, and its keys in the checkpoint.
        self._into_empty: dict[int, Trail] = {}
        self._calls: list[tuple[Any, Any]] = []  # objects, and what they load
        self._seen: set[int] = set()  # mappings
        self._used: set[Trail] = set()
        self._paths: set[str] = set()  # of what is not a tensor
        words = stored.words.words
        self._members(state, (), words if words is not None else {})
        self.unexpected = [Keys(keys) for keys, _ in self._unused(words, ()) if not is_part or any(
            map(selects, stored.names(_names.object_path(keys))))]

    @staticmethod
    def _name(key: Any) -> str:
        return str(Keys((key,)))

    def claims(self, globs: Sequence[str]) -> dict[str, Any]:
        """What this rank's state names in the checkpoint, for the other ranks; and the numbers of those globs that
        match tensors of the state, and of those that match something else in it."""
        of_tensors, of_others = self._matched(globs)
        return {"named": dict.fromkeys(self._named, 1), "used": {str(Keys(keys)): 1 for keys in self._used},
                "of_tensors": {str(i): 1 for i in of_tensors}, "of_others": {str(i): 1 for i in of_others}}

    def _matched(self, globs: Sequence[str]) -> tuple[list[int], list[int]]:
        tensors = [row.path for row in (*self._flat.all_rows, *self.new)] if globs else []
        def matching(paths: Iterable[str]) -> list[int]:
            return [i for i, glob in enumerate(globs) if any(map(_options.selects(glob), paths))]
        return matching(tensors), matching(self._paths)

    def settle(self, claims: Mapping[str, Any]) -> None:
        """Removes from ``unexpected``, and from what is put into empty mappings, what another rank's state names.

        Args:
            claims: the claims of all ranks.
        """
        self._named = set(claims["named"])
        self.unexpected = [keys for keys in self.unexpected if not any(
            str(Keys(keys[:n])) in claims["used"] for n in range(1, len(keys) + 1))]
        for place, keys in self._into_empty.items():
            _remove(self._puts[place][2], keys, claims["used"])

    def _unused(self, word: Any, keys: Trail) -> Iterator[tuple[Trail, Any]]:
        if keys in self._used:
            return
        children = self._stored.children(word, self._decoder)
        if not children:
            if keys and not self._stored.is_tensor(word):
                yield keys, word
            return
        for key, inner in children:
            yield from self._unused(inner, (*keys, key))

    def _members(self, mapping: Mapping[Any, Any], keys: Trail, word: Any, stored_keys: Trail = ()) -> None:
        """Compares the members of one of the caller's mappings, which :meth:`put` changes in place."""
        self._seen.add(id(mapping))
        children = self._stored.children(word, self._decoder)
        if children is None:
            if is_of_tensors(mapping):
                self._used.add(stored_keys)
            children = []
        found = {self._key(key): (key, inner) for key, inner in children}
        for key, value in mapping.items():
            if is_tensor(value) and not isinstance(value, PerRank):
                continue  # the library loads it; there may be thousands
            inner_keys = (*keys, key)
            renamed = self._renamed.find(inner_keys)
            if renamed is False:
                text, inner = found.get(self._key(key), (key, _MISSING))
                self._member(mapping, key, value, inner_keys, inner, (*stored_keys, text))
            else:
                where, inner = renamed or (inner_keys, _MISSING)  # type: ignore[misc]
                self._member(mapping, key, value, inner_keys, inner, where)

    def _key(self, key: Any) -> Any:
        """A key as it is compared: older versions have only texts, and 1, 1.0 and True are different keys."""
        return (type(key), key) if self._stored.is_tagged else str(key)

    def _member(self, mapping: Mapping[Any, Any], key: Any, value: Any, keys: Trail, word: Any, stored_keys: Trail) -> None:
        if word is _MISSING and is_tensor(value):
            return
        if word is not _MISSING and self._stored.is_tensor(word):
            word = _MISSING
        found = self._flat.objects.get(keys)
        if found:
            self._object(found, keys, word, stored_keys)
        elif self._is_entered(value):
            self._members(value, keys, word if word is not _MISSING else {}, stored_keys)
        else:
            self._leaf(mapping, key, value, keys, word, stored_keys)

    def _is_entered(self, value: Any) -> bool:
        """Returns true for a mapping of names, which is kept; any other value is replaced as a whole. A mapping that is
        found in a second place is replaced, too: otherwise both places would get the contents of the last one."""
        return isinstance(value, MutableMapping) and bool(value) and id(value) not in self._seen and not isinstance(
            value, (collections.Counter, collections.defaultdict))

    def _leaf(self, mapping: Mapping[Any, Any], key: Any, value: Any, keys: Trail, word: Any, stored_keys: Trail) -> None:
        if word is _MISSING:
            names_nothing = isinstance(value, Mapping) and not value
            if not is_of_tensors(value) and self._is_wanted(keys) and not names_nothing and not self._may_lack(keys):
                self.missing.append(Keys(keys))
            return
        self._used.add(stored_keys)
        if isinstance(value, PerRank) and _words.tag_of(word) != EACH:
            raise Error(f"{Keys(keys)}: what was saved is one value for all ranks; load it without libdcp.PerRank",
                        status=Status.MISMATCH)
        new = self._decoded(word, keys, value)
        if new is not _MISSING:
            if isinstance(value, Mapping) and isinstance(new, Mapping) and not value:
                self._into_empty[len(self._puts)] = stored_keys
            if not isinstance(mapping, MutableMapping):
                raise TypeError(f"{Keys(keys[:-1])}: a {type(mapping).__name__}, which can't be changed, so only "
                                "tensors can be loaded into it")
            self._puts.append((mapping, key, new))

    def _is_wanted(self, keys: Trail) -> bool:
        path = _names.object_path(keys)
        self._paths.add(path)
        return self._selects(path)

    def is_of_others(self, globs: Sequence[str]) -> bool:
        """Returns true if the globs match none of this rank's tensors, and each of them matches something else in its
        state."""
        of_tensors, of_others = self._matched(globs)
        return not of_tensors and len(of_others) == len(globs)

    def _may_lack(self, keys: Trail) -> bool:
        """Steps of other programs have no optimizer options: the state's options are kept."""
        return self._stored.words is None and len(keys) == 2 and keys[1] == "param_groups"

    def _decoded(self, word: Any, keys: Trail, hint: Any) -> Any:
        """The value of the selected part of a word; _MISSING if nothing is selected."""
        leaves = [self._is_wanted((*keys, *below)) for below, _ in self._stored.leaves(word, self._decoder)]
        if not any(leaves):
            return self._decoder.value(word, keys, hint) if not leaves and self._is_wanted(keys) else _MISSING
        if all(leaves):
            return (self._decoder.whole if hint is None else self._decoder.value)(word, keys, hint)
        return self._part(word, keys, hint)

    def _part(self, word: Any, keys: Trail, hint: Any) -> Any:
        made = dict(hint) if isinstance(hint, Mapping) else {}
        for key, inner in self._stored.children(word, self._decoder) or ():
            new = self._decoded(inner, (*keys, key), inner_of(hint, key))
            if new is not _MISSING:
                made[key] = new
        return made

    def _object(self, found: Object, keys: Trail, word: Any, stored_keys: Trail) -> None:
        """Gives an object everything that was stored for it, with its own tensors, which are loaded by then, and new
        arrays for those that it lacks."""
        self._used.add(stored_keys)
        self._decoder.in_object, self._new.near = True, found.rows
        self._whole(found, keys, word)
        self._decoder.in_object, self._new.near = False, []

    def _whole(self, found: Object, keys: Trail, word: Any) -> None:
        more = self._more(found, keys)
        has_tensors = bool(more) or any(
            self._selects(row.path) and self._lookup.shape(row.path) is not None for row in found.rows)
        if word is _MISSING and not has_tensors:
            if not is_of_tensors(found.given) and found.given and self._is_wanted((*keys, "*")):
                self.missing.append(Keys(keys))
            return
        if word is _MISSING and self._is_alone(found.given):
            word = {}
        new = _MISSING if word is _MISSING else self._decoded(word, keys, found.given)
        if new is _MISSING and has_tensors:
            new = found.given
        if new is not _MISSING:
            self._calls.append((found.value, _merged(new, more)))

    def _is_alone(self, given: Any) -> bool:
        """Returns true if an object has something besides tensors, but only its tensors were stored. Returns false
        for steps of other programs, which have only tensors: the object then keeps what is not a tensor."""
        return self._stored.words is not None and not self._is_part and not is_of_tensors(given)

    def _more(self, found: Object, keys: Trail) -> dict[Any, Any]:
        """New arrays, by their keys in an object, for the tensors that words do not place; nested as the keys are."""
        unmade = [row for row in self._flat.unmade if row.keys[:len(keys)] == keys]
        self.missing += [row.keys for row in unmade if self._selects(row.path) and self._lookup.shape(row.path) is None]
        own = {row.path: row.value for row in (*found.rows, *unmade)}
        others = {row.path for row in self._flat.rows}  # those at the top level look like those in an object "model"
        made: dict[Any, Any] = {}
        of_torch = is_module(found.value)
        for name, path in self._lookup.told(keys):
            is_own = name in own
            if name in others and not is_own:
                continue
            if is_own and (of_torch and not _arrays.is_uninitialized(own[name]) or self._new.fits(own[name], name)):
                continue
            inner = self._lookup.keys_below(keys, name, path)
            if not is_own and (of_torch and not self._is_strict or not takes_more(found.value, inner)
                               or not self._new.is_taken(name)):
                continue
            *outer, last = inner if self._stored.is_tagged else told_by(str(inner[0]), found.given)
            into = made
            for key in outer:
                into = into.setdefault(key, {})
            into[last] = self._new.array(name, path, (*keys, *inner))
        return made

    def refuse_differences(self) -> None:
        """Called before a strict load. Whole members of the checkpoint that the state does not name are ignored.

        Raises:
            libdcp.Error: NOT_FOUND: something in the state is not in the checkpoint; MISMATCH: something in the
                checkpoint is not in the state.
        """
        said: list[str] = []
        refused = [] if self._is_part else [keys for keys in self.unexpected if self._name(keys[0]) in self._named]
        for what, where in ((self.missing, "not in the checkpoint's JSON"),
                            (refused, "in the checkpoint's JSON and not in the state")):
            said += [f"{keys} is {where}" for keys in what[:_SAID_MOST]]
            said += [f"{len(what) - _SAID_MOST} more are {where}"] if len(what) > _SAID_MOST else []
        if said:
            raise Error(f"{', '.join(said)}; make both sides agree, or load with only= or strict=False",
                        status=Status.NOT_FOUND if self.missing else Status.MISMATCH)

    def put(self, goes_on: bool) -> None:
        """Called after the tensors were loaded.

        Args:
            goes_on: gives all objects what they load, even if one of them has raised an exception.
        """
        for row, old in self._flat.arrays.values():
            if old is not None and self._selects(row.path):
                _arrays.put_into(old, row.value)
        for own, there, value in self._decoder.owns:
            own.loaded = there
            if there:
                own.value = value
        call_all((*(functools.partial(operator.setitem, container, key, value) for container, key, value in self._puts),
                  *(functools.partial(_load, found, value) for found, value in self._calls)), goes_on)
        for name, keys in self._decoder.unknown.items():
            log.warning("%s was saved as an instance of the class %s, and was loaded as a plain value: the state "
                        "contains no instance of that class, and libdcp.register was not called with it", keys, name)
