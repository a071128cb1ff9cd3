"""A Python state as a tree: tensors by path, and everything else as words of the checkpoint's JSON.

:class:`Flat` flattens a state: its tensors go into the checkpoint by their paths. The words for everything else form a
mapping shaped like the state, and go into the JSON, which :func:`members_of` makes. If a path does not give the keys
that lead to a tensor, as in lists, the words have {"$tensor": path} in the tensor's place.

:class:`Stored` has the words that a checkpoint contains.
"""

from __future__ import annotations

import contextlib
import functools
import json
import operator
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _names, _words
from ._arrays import Pieces, Shard, array_like, empty_piece, is_uninitialized, like_new, new_array, pieces, takes
from ._names import OBJECTS, is_tensor
from ._read_only import ReadOnly
from ._decoding import Decoder, inner_of
from ._union import EACH
from ._words import NOTHING, Keys
from .errors import Error, Status
from .ranks import PerRank

if TYPE_CHECKING:
    from ._lookup import Lookup

TREE = "tree"  # the member of the checkpoint's JSON that says how to read the words
_MOST_VALUES = 1 << 20  # of the library's JSON
_SAID_MOST = 8  # differences that a message names

Trail = tuple[Any, ...]  # keys
Selects = Callable[[str], bool]


class Row(NamedTuple):
    """A tensor of a state."""

    path: str
    keys: Keys
    value: Any


class Object(NamedTuple):
    """An object with a state dict, that state dict, and the tensors in it."""

    value: Any
    given: Any
    rows: list[Row]


class OwnArray(NamedTuple):
    """A new array that a load fills, for an array within what this rank has separately; and the old array that gets its
    elements once the load has succeeded, or None."""

    row: Row
    old: Any


def _is_stateful(value: Any) -> bool:
    return not isinstance(value, type) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def _state_dict(value: Any, keys: Trail) -> Any:
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        raise TypeError(f"{Keys(keys)}: the state dict of an optimizer itself identifies parameters only by numbers; "
                        "pass torch.distributed.checkpoint.state_dict.get_optimizer_state_dict(model, optimizer)")
    return value.state_dict()


class Own(NamedTuple):
    """What :class:`Flat` must know about the values that each rank has separately.

    Attributes:
        rank: this rank.
        apart: paths of arrays that do not form a tensor of rows, since their shapes or types differ between ranks.
        stored: the checkpoint from which the state is loaded.
    """

    rank: int
    apart: set[str]
    stored: Lookup | None


def _items_of(word: Any, decoder: Decoder) -> list[tuple[Any, Any]]:
    """The items of a word that is not a mapping of names, by the keys that lead to them."""
    if type(word) is list:
        return list(enumerate(word))
    tag = _words.tag_of(word)
    return list(_words.items_of(tag, word[tag], decoder.value)) if tag else []


def tensors_in(word: Any, hint: Any) -> Iterator[tuple[str, Any]]:
    """The paths in a word, and what a value of the same form has in their places."""
    if type(word) is list:
        for i, inner in enumerate(word):
            yield from tensors_in(inner, inner_of(hint, i))
    elif type(word) is dict:
        tag = _words.tag_of(word)
        if tag == "$tensor":
            yield str(word[tag]), hint
        elif tag == "$dict" and isinstance(word[tag], list):
            for pair in word[tag]:
                if isinstance(pair, list) and len(pair) == 2:
                    yield from tensors_in(pair[1], inner_of(hint, pair[0]) if isinstance(pair[0], (str, int)) else None)
        elif tag is not None:
            yield from tensors_in(word[tag], hint)
        else:
            for key, inner in word.items():
                yield from tensors_in(inner, inner_of(hint, key))


class Known:
    """The mappings of a state that contain only tensors, with the rows made from them. If a mapping still contains the
    same keys and values, its thousands of tensors need not be processed again before the next save."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[Any, Trail, list[Any], list[Any], list[Row], Any]] = {}
        self._now: dict[int, tuple[Any, Trail, list[Any], list[Any], list[Row], Any]] = {}

    def begin(self) -> None:
        """Called before the state is processed again."""
        self._before, self._now = self._now, {}

    def add(self, mapping: Mapping[Any, Any], keys: Trail, rows: list[Row], word: Any) -> None:
        self._now[id(mapping)] = mapping, keys, list(mapping), list(mapping.values()), rows, word

    def get(self, mapping: Mapping[Any, Any], keys: Trail) -> tuple[list[Row], Any] | None:
        found = self._before.get(id(mapping))
        if found is None or found[1] != keys or len(found[2]) != len(mapping):
            return None
        # Not by equality, since 1 and True have different names. Equal keys that are new objects only cost time.
        if not (all(map(operator.is_, found[2], mapping)) and all(map(operator.is_, found[3], mapping.values()))):
            return None
        self._now[id(mapping)] = found
        return found[4], found[5]


def _is_of_numpy(value: Any) -> bool:
    """Returns true if all arrays in it are numpy's, and it contains no object that could have others."""
    if isinstance(value, PerRank):
        return _is_of_numpy(value.value)
    if isinstance(value, Shard):
        return isinstance(value.array, np.ndarray)
    if isinstance(value, Mapping):
        return all(map(_is_of_numpy, value.values()))
    if isinstance(value, (list, tuple, deque)):
        return all(map(_is_of_numpy, value))
    return isinstance(value, np.ndarray) or not (is_tensor(value) or _is_stateful(value))


class Flat(_words.Encoder):
    """A state, flattened.

    Args:
        state: a (nested) mapping, see :func:`libdcp.save`.
        known: from earlier calls for the same state.
        own: see :class:`Own`.
        asks_all: if something cannot be stored, all objects are asked for their state dicts nevertheless, since other
            ranks ask theirs, and state_dict() may be collective.
        asked: objects, by the keys that lead to them, that were asked just now.

    Attributes:
        owns: what each rank has separately, except rows of tensors.
        arrays: those arrays within ``owns`` that are not rows of tensors, by their paths in the checkpoint, if the
            state is loaded into.
        object_rows: the rows of objects' state dicts.
        unmade: the rows of objects' tensors that have no memory yet, if the state is loaded into.
        objects: objects with a state dict, by the keys that lead to them.
        words: the words of what is not a tensor, by key: a mapping shaped like the state.
        tops: the names of tensors at the top level, which ``words`` does not contain.
        has_model: there are also tensors in the section "model".

    Raises:
        TypeError: something cannot be stored, or the state is not a mapping; the message names the keys.
        ValueError: two tensors have the same path, or a tensor's path would be invalid.
    """

    def __init__(self, state: Mapping[Any, Any], known: Known | None = None, own: Own | None = None, *,
                 asks_all: bool = False, asked: Mapping[Trail, Object] | None = None) -> None:
        super().__init__()
        self._own = own or Own(0, set(), None)
        self.owns: list[PerRank] = []
        self._begun: list[PerRank] = []  # those for which a load has new arrays
        self.arrays: dict[str, OwnArray] = {}
        if not isinstance(state, Mapping):
            raise TypeError(f"the state is of type {type(state).__name__}, and not a mapping to tensors, sections of them "
                            'or objects with a state dict, such as {"model": model}')
        self._rows: list[Row] = []
        self._known_rows: list[list[Row]] = []  # to be appended to _rows; copied only when needed
        self.object_rows: list[Row] = []
        self.unmade: list[Row] = []
        self.objects: dict[Trail, Object] = {}
        self.tops: list[str] = []
        self.has_model = False
        self._state = state
        self._known = known or Known()
        self._known.begin()
        self._in_object = 0
        self._all_known = True  # all of its tensors were processed before
        self._groups: dict[Any, Mapping[Any, Any] | None] = {}  # by section; for an optimizer, its moments by parameter
        self._before = asked or {}
        self._asked: set[Trail] = set()  # the keys of the objects that were asked, whether or not they have answered
        try:
            self.words: dict[Any, Any] = self._root()
        except BaseException:
            if asks_all:
                self._ask_others()
            raise
        self._refuse_twice()

    def _root(self) -> dict[Any, Any]:
        found = self._known.get(self._state, ())
        if found:
            self._known_rows.append(found[0])
            self.tops = list(found[1])
            return {}
        words = {}
        for key, value in self._state.items():
            word = self.word(value, (key,))
            if _words.tag_of(word) == "$tensor" and type(key) is str and is_tensor(value):
                self.tops.append(key)
            elif word is not NOTHING:
                words[key] = word
        if len(self.tops) == len(self._state):
            self._known.add(self._state, (), self.rows, self.tops)
        return words

    def _refuse_twice(self) -> None:
        if self._all_known or len({row.path for row in self.all_rows}) == len(self.all_rows):
            return
        found: dict[str, Keys] = {}
        for path, keys, _ in self.all_rows:
            if path in found:
                raise ValueError(f"{found[path]} and {keys} would both be {path} in the checkpoint")
            found[path] = keys

    @property
    def rows(self) -> list[Row]:
        """Its tensors, except those of objects."""
        while self._known_rows:
            self._rows.extend(self._known_rows.pop(0))
        return self._rows

    def is_same(self, before: Flat) -> bool:
        """Returns true if the tensors outside of objects are known to be those of an earlier call for the same
        state."""
        def count(flat: Flat) -> int:
            return len(flat._rows) + sum(map(len, flat._known_rows))
        return self._all_known and count(self) == count(before)

    @property
    def all_rows(self) -> list[Row]:
        return self.rows + self.object_rows

    def method_of(self, value: Any) -> Callable[[Any, Trail], Any]:
        if is_tensor(value) and not isinstance(value, PerRank):
            return self._tensor
        if isinstance(value, PerRank):
            return self._each
        return self._other if _is_stateful(value) else super().method_of(value)

    def _refuse(self, value: Any, keys: Trail) -> Any:
        return self._other(value, keys)

    def _other(self, value: Any, keys: Trail) -> Any:
        """Also handles types of which only some values have a state dict."""
        if not _is_stateful(value) or self._in_object or self._within:
            raise _words.refused(value, keys)
        given = self._state_dict(value, keys)
        self.objects[keys] = Object(value, given, [])
        before = len(self.object_rows)
        self._in_object += 1
        made = self.word(given, keys)
        self._in_object -= 1
        self.objects[keys].rows.extend(self.object_rows[before:])
        return made

    def _state_dict(self, value: Any, keys: Trail) -> Any:
        before = self._before.get(keys)
        if before is not None and before.value is value:
            return before.given
        self._asked.add(keys)
        return _state_dict(value, keys)

    def _ask_others(self) -> None:
        """Called after a failure: asks the objects that were not asked yet."""
        with contextlib.suppress(Exception):  # of mappings of the program
            for keys, value in self._objects_in(self._state, (), ()):
                if keys not in self._asked:
                    with contextlib.suppress(BaseException):
                        self._state_dict(value, keys)

    def _objects_in(self, mapping: Mapping[Any, Any], keys: Trail,
                    above: tuple[int, ...]) -> Iterator[tuple[Trail, Any]]:
        """The objects in a mapping, and the keys that lead to them.

        Args:
            above: the mappings that contain this one, which are not entered again.
        """
        above = (*above, id(mapping))
        for key, value in mapping.items():
            if _is_stateful(value) and not is_tensor(value):
                yield (*keys, key), value
            elif isinstance(value, Mapping) and type(value) not in (Counter, defaultdict) and id(value) not in above:
                yield from self._objects_in(value, (*keys, key), above)

    def _tensor(self, value: Any, keys: Trail) -> Any:
        if self._in_sets:
            raise _words.refused(value, keys, " within a set")
        self._all_known = False
        section = keys[0]
        if section not in self._groups:
            self._groups[section] = self._parameters(self._value(section))
        parameters = self._groups[section]
        is_moment = parameters is not None and len(keys) == 4 and keys[1] == "state" and isinstance(
            parameters.get(keys[2]), Mapping)
        path = _names.path_of(keys, is_moment)
        if not _names.may_be_fine(path):
            _names.refuse_wrong(path, Keys(keys))
        self.has_model |= len(keys) > 1 and self._is_model(section)
        rows = self.object_rows if self._in_object else self.rows
        if self._in_object and self._own.stored and is_uninitialized(value):
            rows = self.unmade
        rows.append(Row(path, Keys(keys), value))
        has_groups = section == "optimizer" or parameters is not None
        if not self._within and len(keys) > 1 and keys == _names.keys_told(path, has_groups) and all(
                type(key) is str for key in keys):
            return NOTHING
        return _words.tagged("tensor", path)

    def _each(self, value: PerRank, keys: Trail) -> Any:
        """A row of a tensor, or what only this rank has."""
        path = _names.path_of(keys)
        stored = self._own.stored
        found = stored.each(keys) if stored else None
        value.begin_load(None)
        if stored and found is None:
            self._begin_row(value, stored, path)
        if value.is_array and found is None and path not in self._own.apart:
            return self._tensor(value, keys)
        if self._in_sets:
            raise _words.refused(value, keys, " within a set")
        self.owns.append(value)
        if stored:
            self._fill_from(found or {}, value, keys, stored)
            return {EACH: {}}
        self._within += 1
        made = self.word(value.value, (*keys, self._own.rank))
        self._within -= 1
        return {EACH: {str(self._own.rank): made}}

    def _begin_row(self, value: PerRank, stored: Lookup, path: str) -> None:
        """If the checkpoint has rows, gives the value a new array to load a row into, unless its own array has to be
        loaded into directly, or does not fit the rows."""
        shape, dtype = stored.shape(path), stored.dtype(path)
        if not shape or dtype is None:
            return
        own = tuple(value.value.shape) if value.is_array else None
        new = like_new(value.value) if own == shape[1:] else None
        if new is not None:
            self._begun.append(value)
            value.begin_load(new)
        if value.value is None or own is not None and own != shape[1:] and len(own) == len(shape) - 1:
            self._begun.append(value)
            value.begin_load(self._array_for(value.value, dtype, shape[1:]))

    def _array_for(self, hint: Any, dtype: int, shape: tuple[int, ...]) -> Any:
        """A new array that a load fills only for this rank."""
        return array_like(hint, dtype, shape) if is_tensor(hint) else new_array(self._like, dtype, shape)

    @functools.cached_property
    def _like(self) -> Any:
        """The array that decides between numpy and torch for new arrays."""
        return np.empty(0) if _is_of_numpy(self._state) else None

    @functools.cached_property
    def _read_only(self) -> ReadOnly:
        return ReadOnly()

    def end_load(self) -> None:
        """Called whether or not the load has succeeded."""
        for value in self._begun:
            value.begin_load(None)

    def _fill_from(self, found: Mapping[str, Any], value: PerRank, keys: Trail, stored: Lookup) -> None:
        """Adds rows for what ranks have saved of the value: this rank's arrays, and only the names of other ranks'
        arrays."""
        self._all_known = False
        for rank, word in found.items():
            mine = rank == str(self._own.rank)
            for path, hint in tensors_in(word, value.value if mine else None):
                row = stored.path_like(path, keys)
                shape, dtype = stored.shape(row), stored.dtype(row)
                if shape is None or dtype is None:
                    continue
                array: Any = self._array_for(hint, dtype, shape) if mine else Pieces((empty_piece(dtype, shape),))
                made = Row(row, Keys(keys), array)
                if mine:
                    is_kept = takes(hint, dtype, shape) and not any(map(self._read_only.has, pieces(hint, Keys(keys))))
                    self.arrays[path] = OwnArray(made, hint if is_kept else None)
                (self.object_rows if self._in_object else self.rows).append(made)

    def _refuse_mapping(self, value: Mapping[Any, Any], keys: Trail) -> None:
        """Refuses the mapping, but only in a save: a load accepts any kind of mapping."""
        if not self._own.stored:
            super()._refuse_mapping(value, keys)

    @staticmethod
    def _is_model(section: Any) -> bool:
        return str(section).split("/", 1)[0] == "model"

    def _value(self, section: Any) -> Any:
        found = self.objects.get((section,))
        return found.given if found else self._state.get(section)

    def _parameters(self, section: Any) -> Mapping[Any, Any] | None:
        if _names.is_optimizer(section):
            found: Mapping[Any, Any] = section["state"]
            return found
        return {} if isinstance(section, Mapping) and "param_groups" in section else None

    def _mapping(self, value: Mapping[Any, Any], keys: Trail) -> Any:
        found = None if self._in_object else self._known.get(value, keys)
        if found:
            self._known_rows.append(found[0])
            self.has_model |= self._is_model(keys[0])
            return found[1]
        kinds = {type(inner): inner for inner in value.values()}
        of_tensors = bool(kinds) and all(is_tensor(inner) and not isinstance(inner, PerRank) for inner in kinds.values())
        into = self.object_rows if self._in_object else self.rows
        before = len(into)
        made = NOTHING if of_tensors and self._add_section(value, keys, into) else super()._mapping(value, keys)
        if of_tensors and not self._in_object:
            self._known.add(value, keys, into[before:], made)
        return made

    def _add_section(self, value: Mapping[Any, Any], keys: Trail, into: list[Row]) -> bool:
        """Adds a model's thousands of tensors at once, if their paths give their keys; returns False if some don't."""
        section = keys[0]
        if len(keys) != 1 or type(section) is not str or section == "optimizer" or set(map(type, value)) != {str}:
            return False
        if self._in_object and self._own.stored and any(map(is_uninitialized, value.values())):
            return False
        if not _names.are_fine(section, value):
            return False
        self._all_known = False
        into.extend([Row(f"/{section}/{key}", Keys((section, key)), inner) for key, inner in value.items()])
        self.has_model |= section == "model"
        return True


def tensors(state: Mapping[Any, Any]) -> list[Row]:
    """Each tensor's path in the checkpoint, the keys that lead to it, and the tensor.

    Raises:
        TypeError, ValueError: see :class:`Flat`.
    """
    return Flat(state).all_rows


def members_of(words: Mapping[Any, Any], tops: list[str], has_model: bool) -> dict[str, Any]:
    """The members of the checkpoint's JSON that contain the words.

    Args:
        words, tops, has_model: see :class:`Flat`; those of one state, or of all ranks together.
    """
    is_flat = bool(tops) and not has_model
    if not is_flat and tops:
        words = {**words, **{name: _words.tagged("tensor", f"/model/{name}") for name in tops}}
    encoder = _words.Encoder()
    kept = [(encoder.key(key, ()), word) for key, word in words.items()]
    made: dict[str, Any] = {OBJECTS: encoder.plain(kept)} if kept else {}
    how: dict[str, Any] = {**({"top": True} if is_flat else {}), **({"tags": 1} if kept else {})}
    return {**made, TREE: how} if how else made


def members_to_unite(flat: Flat, text: str) -> dict[str, Any]:
    """The members in the form in which they are united, by their keys, with those of other ranks; :func:`united` makes
    the checkpoint's members from the result.

    Args:
        text: what :func:`json_of` has returned, with the caller's members as they were then.
    """
    own = members_of(flat.words, flat.tops, flat.has_model)
    given = {key: value for key, value in json.loads(text).items() if key not in own}
    members = members_of(flat.words, flat.tops, True)
    members.pop(TREE, None)
    return {**given, **members}


def united(words: Any, paths: Iterable[str]) -> dict[str, Any]:
    """The members that contain the united words of several ranks.

    Args:
        words: the words, as JSON; NOTHING if there are none.
        paths: the paths of all ranks' tensors.
    """
    if words is NOTHING:
        return {}
    stored = words if _words.tag_of(words) is None else {}
    tops = [key for key, word in stored.items() if word == _words.tagged("tensor", f"/model/{key}")]
    has_model = len(tops) < sum(path.startswith("/model/") for path in paths)
    if tops and not has_model:
        return members_of({key: word for key, word in stored.items() if key not in set(tops)}, tops, False)
    return {OBJECTS: words, TREE: {"tags": 1}}


def json_of(flat: Flat, given: Mapping[str, Any] | None) -> str:
    """The checkpoint's JSON: the caller's members, and the state's words.

    Raises:
        ValueError: the caller's JSON uses one of the words' keys; or there are more values than a checkpoint's JSON can
            have.
    """
    return joined(members_of(flat.words, flat.tops, flat.has_model), given)


def joined(members: Mapping[str, Any], given: Mapping[str, Any] | None) -> str:
    """See :func:`json_of`."""
    taken = sorted(set(given or {}) & set(members))
    if taken:
        raise ValueError(f'json has the key "{taken[0]}", which is reserved for the parts of the state that are not '
                         "tensors")
    text = json.dumps({**(given or {}), **members}, allow_nan=False)
    if len(text) > 2 * _MOST_VALUES:
        _refuse_many(members.get(OBJECTS), text)
    return text


def _count(word: Any) -> int:
    inner = word.values() if type(word) is dict else word if type(word) is list else ()
    return 1 + sum(map(_count, inner))


def _refuse_many(words: Any, text: str) -> None:
    values = _count(json.loads(text))
    if values <= _MOST_VALUES:
        return
    keys: list[Any] = []
    while type(words) in (dict, list) and words:
        items = words.items() if type(words) is dict else enumerate(words)
        n, key, largest = max(((_count(inner), key, inner) for key, inner in items), key=lambda found: found[0])
        if 2 * n < values:
            break
        words = largest
        if not _words.is_tag(key):
            keys.append(key)
    raise ValueError(f"{Keys(keys)}: the state has {values} numbers, texts, lists and mappings, most of them here; a "
                     f"checkpoint's JSON has at most {_MOST_VALUES}: keep them as an array")


class Stored:
    """The state's words in a checkpoint's JSON.

    Args:
        text: the JSON.

    Attributes:
        members: the JSON as plain values.
        words: the words of what is not a tensor in the state; None if there are none.
        is_tagged: the words have tags where needed; otherwise an older version, without tags, wrote them.
        is_flat: the tensors of the section "model" were at the state's top level.
    """

    def __init__(self, text: bytes | str) -> None:
        try:
            self._read(json.loads(text))
        except RecursionError:
            raise Error("the checkpoint's JSON has too many levels of lists and mappings within each other",
                        status=Status.UNSUPPORTED) from None

    def _read(self, found: dict[str, Any]) -> None:
        how = found.pop(TREE, None)
        how = how if isinstance(how, dict) else {}
        if how.get("tags", 1) != 1:
            raise Error(f"the checkpoint's JSON has tags of version {how['tags']!r}, which this version does not know",
                        status=Status.VERSION)
        self.is_tagged: bool = "tags" in how
        self.is_flat: bool = how.get("top") is True
        self._places: dict[str, Trail] | None = None
        self.words: Any = found.pop(OBJECTS, NOTHING)
        untagged = Decoder(False, plain=True)
        self.members: dict[str, Any] = {key: untagged.value(word) for key, word in found.items()}
        if self.words is NOTHING:
            self.words = None
        else:
            self.members[OBJECTS] = _Plain(self.is_tagged, plain=True).value(self.words)

    def children(self, word: Any, decoder: Decoder) -> list[tuple[Any, Any]] | None:
        """The members of a word that is a mapping; None if it is not.

        Args:
            decoder: decodes their keys.
        """
        if type(word) is not dict or _words.is_number(word):
            return None
        tag = _words.tag_of(word) if self.is_tagged else None
        if tag is None:
            return list(word.items())
        content = word[tag]
        try:
            pairs = {"$dict": lambda: content, "$OrderedDict": lambda: content, "$mapping": lambda: content[1]}[tag]()
            found = [(decoder.value(key), inner) for key, inner in pairs]
            hash(tuple(key for key, _ in found))
            return found
        except Exception:  # not a mapping, or invalid, or of a class that is not known; decoding it will report that
            return None

    def leaves(self, word: Any, decoder: Decoder, keys: Trail = ()) -> Iterator[tuple[Trail, Any]]:
        """The parts of a word that are not mappings, and the keys that lead to them; without tensors."""
        children = self.children(word, decoder)
        if children is None or keys and not children:
            if not self.is_tensor(word):
                yield keys, word
            return
        for key, inner in children:
            yield from self.leaves(inner, decoder, (*keys, key))

    def has_place(self, path: str) -> bool:
        """Returns true if a word says where a tensor is."""
        return path in self._found_places()

    def _found_places(self) -> dict[str, Trail]:
        if self._places is None:
            self._places = {}
            self._find_places(self.words, (), Decoder(self.is_tagged))
        return self._places

    def keys_of(self, path: str) -> Trail:
        """The keys that lead to a tensor."""
        found = self._found_places().get(path)
        if found is not None:
            return found
        if self.is_flat and path.startswith("/model/"):
            return (path.removeprefix("/model/"),)
        return _names.keys_of(path, self.words if type(self.words) is dict else {})

    def _find_places(self, word: Any, keys: Trail, decoder: Decoder) -> None:
        """Finds the places of tensors whose paths don't give their keys."""
        if not self.is_tagged or type(word) not in (dict, list):
            return
        assert self._places is not None
        tag = _words.tag_of(word)
        children = self.children(word, decoder)
        if tag == "$tensor":
            self._places[str(word[tag])] = keys
        elif children is not None:
            for key, inner in children:
                self._find_places(inner, (*keys, key), decoder)
        elif tag is None:
            for i, inner in enumerate(word):
                self._find_places(inner, (*keys, i), decoder)
        else:
            for key, inner in _words.items_of(tag, word[tag], decoder.value):
                self._find_places(inner, (*keys, key), decoder)

    def of_ranks(self) -> Iterator[tuple[Trail, Mapping[str, Any]]]:
        """What ranks saved separately, and the keys that lead to it."""
        def found(word: Any, keys: Trail) -> Iterator[tuple[Trail, Mapping[str, Any]]]:
            if _words.tag_of(word) == EACH and isinstance(word[EACH], dict):
                yield keys, word[EACH]
            for key, inner in self.children(word, decoder) or _items_of(word, decoder):
                yield from found(inner, (*keys, key))
        decoder = Decoder(self.is_tagged, plain=True)
        return found(self.words, ()) if self.is_tagged else iter(())

    def is_tensor(self, word: Any) -> bool:
        return self.is_tagged and _words.tag_of(word) == "$tensor"


class _Plain(Decoder):
    """Decodes words for people: omits tensors from mappings."""

    def mapping(self, word: dict[str, Any], keys: Trail, hint: Any) -> Any:
        return super().mapping({key: inner for key, inner in word.items() if not (
            self._is_tagged and _words.tag_of(inner) == "$tensor")}, keys, hint)

    def pairs(self, content: Any, keys: Trail, hint: Any) -> list[tuple[Any, Any]]:
        return super().pairs([pair for pair in content if _words.tag_of(pair[1]) != "$tensor"], keys, hint)
