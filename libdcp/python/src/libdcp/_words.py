"""Python values as JSON: JSON's own words, and tagged ones for what JSON cannot represent.

A tagged word is an object with one member, whose name is "$" and the name of a type: {"$tuple": [1, 2]}. A user's
mapping that looks like one is written as its items, {"$dict": [["$tuple", [1, 2]]]}. docs/format.md lists all tags.
A tag names a type, and never code: for a class it contains the name, which is looked up among the classes of the state
that is loaded into and those that were registered; nothing is imported or called because a file names it.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import dataclasses
import datetime
import enum
import functools
import io
import json
import math
import re
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

C = TypeVar("C", bound=type)

DEEPEST = 100  # levels of nested lists and mappings
FLOAT = "float"  # {"float": "inf"} represents a number that JSON lacks
_NOT_FINITE = ("inf", "-inf", "nan")
_LEAST, _MOST = -2**63, 2**64 - 1  # the range of integers in a checkpoint's JSON
FACTORIES: dict[str, Callable[[], Any]] = {
    kind.__name__: kind for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)}
NUMPY = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)|complex(64|128)|str|bytes|"
                    r"(datetime|timedelta)64(\[\d*[A-Za-z]+\])?")
# For each type, what converts an instance of a subclass to exactly that type.
_NUMBERS_AND_TEXTS: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__index__, float: float.__float__}
NOTHING: Any = object()  # the word of what is or contains only tensors

_MOST_ALIKE = 256  # elements with the same hash; 35 of the powers of two that are floats share one

registered: dict[str, type] = {}


ABSENT = {"$absent": None}


class Absent:
    """An item of a list that this rank does not know, but another rank may know; becomes None if no rank does."""


class Word:
    """A value that is given as its word."""

    def __init__(self, word: Any) -> None:
        self.word = word


def _check_keys(items: Iterable[Any], keys: tuple[Any, ...]) -> None:
    """Refuses to save what check_hashes would refuse to load."""
    try:
        check_hashes(list(items))
    except ValueError as e:
        raise TypeError(f"{Keys(keys)}: {e}") from None


class Keys(tuple[Any, ...]):
    """The keys that lead to a value; as text, state["model"]["a"]."""

    def __str__(self) -> str:
        return "state" + "".join(f"[{_shown(key)}]" for key in self)


def _shown(key: Any) -> str:
    try:
        text = repr(key)
    except Exception:  # too deep, too large an integer, or a user-defined class
        text = None
    if text is None or len(text) > 1000 and not isinstance(key, str):
        return f"<{type(key).__name__}>"
    return text


def is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and isinstance(getattr(kind, "_fields", None), tuple)


@functools.lru_cache(maxsize=256)
def slots_of(kind: type) -> dict[str, Any]:
    """The descriptors of the attributes that a class declares in __slots__, by name."""
    return {name: member for base in reversed(kind.__mro__) if "__slots__" in vars(base)
            for name, member in vars(base).items() if isinstance(member, types.MemberDescriptorType)}


def _attributes_of(value: Any) -> dict[str, Any]:
    """An instance's attributes, except what a cached_property holds, which can be computed again."""
    kind: Any = type(value)
    found = {name: inner for name, inner in getattr(value, "__dict__", {}).items() if not isinstance(
        getattr(kind, name, None), functools.cached_property)}
    for name, member in slots_of(kind).items():
        with contextlib.suppress(AttributeError):  # it is not set
            found[name] = member.__get__(value)
    return found


def mirrored_by(value: Any) -> list[str]:
    """The attributes of a mapping that are also its items, for classes that mirror items as attributes."""
    items = value if isinstance(value, dict) else {}
    return [name for name, inner in _attributes_of(value).items() if name in items and items[name] is inner]


def _slot_of(value: Any, name: str) -> Any:
    """The descriptor of an attribute in __slots__; None if there is none of that name."""
    kind: Any = type(value)
    return slots_of(kind).get(name)


def attribute_of(value: Any, name: str) -> Any:
    """An attribute that is set in the instance; NOTHING if there is none of that name."""
    member = _slot_of(value, name)
    if member is None:
        return getattr(value, "__dict__", {}).get(name, NOTHING)
    try:
        return member.__get__(value)
    except AttributeError:
        return NOTHING


def set_attribute(value: Any, name: str, inner: Any) -> None:
    """Sets an attribute without the methods of the value's class."""
    member = _slot_of(value, name)
    if member is not None:
        member.__set__(value, inner)
    else:  # a class may have no __dict__
        vars(value)[name] = inner


def drop_attribute(value: Any, name: str) -> None:
    """Deletes an attribute, if it is set, without the methods of the value's class."""
    member = _slot_of(value, name)
    if member is None:
        getattr(value, "__dict__", {}).pop(name, None)
        return
    with contextlib.suppress(AttributeError):  # it is not set
        member.__delete__(value)


def drop_cached(value: Any) -> None:
    """Deletes what cached_properties hold, so that they are computed again."""
    kind, attributes = type(value), getattr(value, "__dict__", {})
    for name in list(attributes):
        if isinstance(getattr(kind, name, None), functools.cached_property):
            del attributes[name]


def name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def check_hashes(items: list[Any]) -> list[Any]:
    """Returns the elements of a set, or the keys of a mapping. Python compares each with all others of the same hash,
    so a file in which very many have the same hash, as multiples of 2**61 - 1 do, would take quadratic time.

    Raises:
        ValueError: too many have the same hash.
    """
    most = max(collections.Counter(map(hash, items)).values()) if len(items) > _MOST_ALIKE else 0
    if most > _MOST_ALIKE:
        raise ValueError(f"{most} elements have the same hash; at most {_MOST_ALIKE} may")
    return items


def _is_registrable(kind: Any) -> bool:
    return isinstance(kind, type) and kind not in _NUMBERS_AND_TEXTS and (issubclass(kind, (
        enum.Enum, dict, collections.UserDict, list, tuple, set, frozenset, collections.deque, *_NUMBERS_AND_TEXTS))
        or dataclasses.is_dataclass(kind))


def register(cls: C) -> C:
    """Allows loads to make objects of a class of which the state has no instance: an Enum, a dataclass, a named tuple,
    or another class that is a dict, UserDict, list, tuple, set, deque, str, int or float. Otherwise an object of that
    class is loaded as the plain value of which it consists. Can be used as a decorator.

    Raises:
        TypeError: it is none of these.
    """
    if not _is_registrable(cls):
        raise TypeError(f"{cls!r} is no Enum, dataclass, named tuple, nor a class of dicts, lists, tuples, sets, deques, texts or "
                        "numbers")
    registered[name_of(cls)] = cls
    return cls


def _in_order(words: Iterable[Any]) -> list[Any]:
    """Sorts words, so that equal sets and mappings have the same order, whatever the order in which they were
    filled."""
    return sorted(words, key=lambda word: json.dumps(word, sort_keys=True))


def is_text(value: str) -> bool:
    """Returns true if JSON, or a name, can contain the text: it has neither NUL nor surrogates, which UTF-8 lacks."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value


def is_tag(key: Any) -> bool:
    return isinstance(key, str) and key.startswith("$")


def tag_of(word: Any) -> str | None:
    """The name of the tag, if the word is a tagged one."""
    if type(word) is dict and len(word) == 1:
        key: str = next(iter(word))
        if is_tag(key):
            return key
    return None


def items_of(tag: str, content: Any, key_of: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    """Keys and words of the parts of a tagged word, for tags whose parts can be tensors.

    Args:
        key_of: returns the value of a key's word.
    """
    try:
        if tag == "$dataclass":
            return list(content[1].items())
        if tag == "$defaultdict":
            return [(key_of(key), word) for key, word in content[1]]
        if tag == "$per_rank":
            return [(int(rank), word) for rank, word in content.items()]
        items = {"$tuple": lambda: content, "$deque": lambda: content[0], "$namedtuple": lambda: content[2],
                 "$subclass": lambda: content[1]}[tag]()
        if type(items) is dict and tag_of(items):
            inner = next(iter(items))
            return items_of(inner, items[inner], key_of)
        return list(enumerate(items))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return []


def is_number(word: Any) -> bool:
    """Returns true if the word represents a float that JSON lacks."""
    return type(word) is dict and len(word) == 1 and word.get(FLOAT) in _NOT_FINITE


def tagged(kind: str, content: Any) -> dict[str, Any]:
    return {"$" + kind: content}


def refused(value: Any, keys: tuple[Any, ...], why: str = "") -> TypeError:
    return TypeError(f"{Keys(keys)}: a {type(value).__name__} is neither a tensor nor a number, a text, a list, a mapping or "
                     f"another value that a checkpoint can represent{why}, and nothing is pickled; save what it "
                     "consists of")


class Encoder:
    """Makes words from values. Subclasses define the words of tensors and of objects with a state dict.

    Attributes:
        classes: the classes of the values, by name, as far as tags name them.
    """

    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self._depth = 0
        self._within = 0  # the number of containers around a value that are not mappings of names
        self._in_sets = 0
        self._kinds = self._exact()  # a method for each type; others are added when they occur

    def word(self, value: Any, keys: tuple[Any, ...]) -> Any:
        """The value as JSON; NOTHING if it is or contains only tensors whose paths say where they are.

        Raises:
            TypeError: it cannot be stored; the message names the keys.
        """
        kind = type(value)
        method = self._kinds.get(kind)
        if method is None:
            method = self._kinds[kind] = self.method_of(value)
        return method(value, keys)

    def method_of(self, value: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        """The method that makes words from values of this value's type."""
        kind = type(value)
        if isinstance(value, enum.Enum):
            return self._enum
        if isinstance(value, np.generic):
            return self._numpy
        if isinstance(value, tuple(_NUMBERS_AND_TEXTS)):
            return self._number_or_text
        torch: Any = sys.modules.get("torch")
        if torch is not None and kind in (torch.Size, torch.dtype, torch.device):
            return self._torch
        if is_named_tuple(kind):
            return self._named_tuple
        if isinstance(value, Mapping):
            return self._mapping
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)) and not _is_structseq(kind):
            return self._subclass
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._dataclass
        return self._refuse

    def _exact(self) -> dict[type, Callable[[Any, tuple[Any, ...]], Any]]:
        return {
            type(None): lambda value, keys: value, bool: lambda value, keys: value, int: self._integer, float: self._float,
            str: self._text, list: self._list, dict: self._mapping, collections.OrderedDict: self._mapping,
            collections.Counter: self._counter, collections.defaultdict: self._default_dict,
            tuple: lambda value, keys: tagged("tuple", self._items(value, keys)),
            set: lambda value, keys: tagged("set", self._set(value, keys)),
            frozenset: lambda value, keys: tagged("frozenset", self._set(value, keys)),
            collections.deque: lambda value, keys: tagged("deque", [self._items(value, keys), value.maxlen]),
            bytes: lambda value, keys: tagged("bytes", _base64(value)),
            bytearray: lambda value, keys: tagged("bytearray", _base64(value)),
            io.BytesIO: lambda value, keys: tagged("BytesIO", _base64(value.getvalue())),
            complex: lambda value, keys: tagged("complex", [self._float(value.real, keys),
                                                                 self._float(value.imag, keys)]),
            range: lambda value, keys: tagged("range", self._list([value.start, value.stop, value.step], keys)),
            slice: lambda value, keys: tagged("slice", self._items((value.start, value.stop, value.step), keys)),
            type(...): lambda value, keys: tagged("ellipsis", None), Absent: lambda value, keys: ABSENT,
            Word: lambda value, keys: value.word,
            datetime.date: lambda value, keys: tagged("date", value.isoformat()),
            datetime.timedelta: lambda value, keys: tagged("timedelta", [value.days, value.seconds,
                                                                              value.microseconds]),
            datetime.datetime: self._datetime,
        }

    def _refuse(self, value: Any, keys: tuple[Any, ...]) -> Any:
        raise refused(value, keys)

    def _number_or_text(self, value: Any, keys: tuple[Any, ...]) -> Any:
        """For an instance of a user-defined class."""
        self._attributes(value, keys)
        plain = next(plain for kind, plain in _NUMBERS_AND_TEXTS.items() if isinstance(value, kind))
        return tagged("subclass", [self.class_name(value), self.word(plain(value), keys)])

    def _integer(self, value: int, keys: tuple[Any, ...]) -> Any:
        return value if _LEAST <= value <= _MOST else tagged("int", hex(value))

    def _float(self, value: float, keys: tuple[Any, ...]) -> Any:
        return value if math.isfinite(value) else {FLOAT: str(value)}

    def _text(self, value: str, keys: tuple[Any, ...]) -> Any:
        return value if is_text(value) else tagged("str", _base64(value.encode("utf-8", "surrogatepass")))

    def _datetime(self, value: datetime.datetime, keys: tuple[Any, ...]) -> Any:
        if value.tzinfo is not None and type(value.tzinfo) is not datetime.timezone or value.fold:
            raise refused(value, keys, " (of a named time zone)")
        return tagged("datetime", value.isoformat())

    def _numpy(self, value: Any, keys: tuple[Any, ...]) -> Any:
        name = value.dtype.name if value.dtype.kind not in "US" else {"U": "str", "S": "bytes"}[value.dtype.kind]
        if not NUMPY.fullmatch(name):
            raise refused(value, keys)
        if value.dtype.kind in "Mm":
            name = value.dtype.str[1:].replace("M8", "datetime64").replace("m8", "timedelta64")
            return tagged("numpy", [name, int(value.view(np.int64))])
        return tagged("numpy", [name, self.word(value.item(), keys)])

    def _torch(self, value: Any, keys: tuple[Any, ...]) -> Any:
        if isinstance(value, tuple):
            return tagged("torch.Size", list(value))
        return tagged(f"torch.{type(value).__name__}", str(value).removeprefix("torch."))

    def _enum(self, value: enum.Enum, keys: tuple[Any, ...]) -> Any:
        try:
            number = self.word(value.value, keys)
        except TypeError:
            number = None
        if value.name is None and number is None:
            raise refused(value, keys)
        return tagged("enum", [self.class_name(value), value.name if value.name in type(value).__members__ else None,
                                    number])

    def class_name(self, value: Any) -> str:
        name = name_of(type(value))
        self.classes[name] = type(value)
        return name

    def _descend(self, keys: tuple[Any, ...]) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise TypeError(f"{Keys(keys[:8])}...: lists and mappings of more than {DEEPEST} levels, or within themselves")

    def _items(self, value: Iterable[Any], keys: tuple[Any, ...]) -> list[Any]:
        """For containers whose keys are numbers; never NOTHING, since an item's position counts."""
        self._descend(keys)
        self._within += 1
        made = [self.word(inner, (*keys, i)) for i, inner in enumerate(value)]
        self._within -= 1
        self._depth -= 1
        return made

    def _list(self, value: list[Any], keys: tuple[Any, ...]) -> list[Any]:
        kinds = set(map(type, value))  # thousands of numbers are common
        if kinds <= {int} and (not value or _LEAST <= min(value) and max(value) <= _MOST):
            return list(value)
        if kinds == {float} and all(map(math.isfinite, value)):
            return list(value)
        return self._items(value, keys)

    def _set(self, value: Iterable[Any], keys: tuple[Any, ...]) -> list[Any]:
        self._in_sets += 1
        _check_keys(list(value), keys)
        made = _in_order(self._items(value, keys))
        self._in_sets -= 1
        return made

    def _pairs(self, value: Mapping[Any, Any], keys: tuple[Any, ...]) -> list[tuple[Any, Any, Any]]:
        """Keys, their words, and the words of the values."""
        self._descend(keys)
        _check_keys(list(value), keys)
        made = [(key, self.key(key, keys), self.word(inner, (*keys, key))) for key, inner in value.items()]
        self._depth -= 1
        return made

    def key(self, key: Any, keys: tuple[Any, ...]) -> Any:
        """The word of a key of the mapping to which the keys lead."""
        if type(key) is str and is_text(key):
            return key
        try:
            return _key_encoder(self).word(key, ())
        except TypeError:
            raise TypeError(f"{Keys((*keys, key))}: a key that is a {type(key).__name__}, which a checkpoint cannot "
                            "represent; nothing is pickled") from None

    def _mapping(self, value: Mapping[Any, Any], keys: tuple[Any, ...]) -> Any:
        if not value and type(value) is dict:
            return {}
        pairs = self._pairs(value, keys)
        kept = [(key, word) for _, key, word in pairs if word is not NOTHING]
        has_told = len(kept) < len(pairs)  # tensors whose names alone say where they are, so it is a plain mapping
        if has_told and not kept:
            return NOTHING
        if has_told or type(value) is dict:
            return self.plain(kept)
        if type(value) is collections.OrderedDict:
            return tagged("OrderedDict", list(map(list, kept)))
        self._refuse_mapping(value, keys)
        attributes = self._attributes(value, keys) if isinstance(value, dict) else []
        return tagged("mapping", [self.class_name(value), list(map(list, kept)), *[attributes] * bool(attributes)])

    def _refuse_mapping(self, value: Mapping[Any, Any], keys: tuple[Any, ...]) -> None:
        """Refuses an instance of a class of which no new instance can be made."""
        if isinstance(value, collections.defaultdict) and value.default_factory is not None:
            raise TypeError(f"{Keys(keys)}: the {type(value).__name__} is a class of defaultdicts, whose default_factory would be "
                            "lost; save what it consists of")
        if isinstance(value, collections.UserDict):
            self._attributes(value, keys)
        elif not isinstance(value, dict):
            raise TypeError(f"{Keys(keys)}: a {type(value).__name__} is a mapping of a class that is neither dict's nor "
                            "collections.UserDict's, and nothing is pickled; save what it consists of, such as dict(it)")

    def _attributes(self, value: Any, keys: tuple[Any, ...]) -> list[str]:
        """The attributes of a container that are also its items, for classes that mirror items as attributes; other
        attributes would be lost."""
        given = _attributes_of(value)
        if isinstance(value, collections.UserDict):
            given.pop("data", None)
        mirrored = mirrored_by(value)
        for name in given:
            if name not in mirrored and getattr(type(value), name, self) is not given[name]:  # not a class default
                raise TypeError(f"{Keys(keys)}: the {type(value).__name__} has the attribute {name!r}, which is none of its "
                                "items; save what it consists of")
        return mirrored

    def plain(self, kept: list[tuple[Any, Any]]) -> Any:
        """A plain JSON object, if that has the same keys and looks like nothing else; otherwise a tagged word."""
        if all(type(key) is str for key, _ in kept):
            made = dict(kept)
            if len(made) != 1 or not (is_tag(kept[0][0]) or is_number(made)):
                return made
        return tagged("dict", _in_order(map(list, kept)))

    def _counter(self, value: Any, keys: tuple[Any, ...]) -> Any:
        return tagged("Counter", self._whole_items(value, keys))

    def _whole_items(self, value: Mapping[Any, Any], keys: tuple[Any, ...]) -> list[Any]:
        self._within += 1
        made = _in_order([key, word] for _, key, word in self._pairs(value, keys))
        self._within -= 1
        return made

    def _default_dict(self, value: Any, keys: tuple[Any, ...]) -> Any:
        factory = value.default_factory
        name = None if factory is None else getattr(factory, "__name__", "")
        if name is not None and FACTORIES.get(name) is not factory:
            raise TypeError(f"{Keys(keys)}: a defaultdict whose default_factory is {factory!r}; one that is a type of "
                            "Python's own, such as int or list, can be kept, and nothing is pickled")
        return tagged("defaultdict", [name, self._whole_items(value, keys)])

    def _named_tuple(self, value: Any, keys: tuple[Any, ...]) -> Any:
        self._attributes(value, keys)
        return tagged("namedtuple", [self.class_name(value), list(value._fields), self._items(value, keys)])

    def _subclass(self, value: Any, keys: tuple[Any, ...]) -> Any:
        self._attributes(value, keys)
        items: Any = self._set(value, keys) if isinstance(value, (set, frozenset)) else self._items(value, keys)
        base = next(kind for kind in (list, tuple, set, frozenset, collections.deque) if isinstance(value, kind))
        whole = [items, value.maxlen] if base is collections.deque else items
        return tagged("subclass", [self.class_name(value), items if base is list else {"$" + base.__name__: whole}])

    def _dataclass(self, value: Any, keys: tuple[Any, ...]) -> Any:
        names = [field.name for field in dataclasses.fields(value)]
        others = sorted(name for name in _attributes_of(value) if name not in names)
        if others:
            raise TypeError(f"{Keys(keys)}: the {type(value).__name__} has the attribute {others[0]!r}, which is none of its "
                            "fields; save what it consists of")
        self._descend(keys)
        self._within += 1
        made = {name: self.word(getattr(value, name), (*keys, name)) for name in names if hasattr(value, name)}
        self._within -= 1
        self._depth -= 1
        return tagged("dataclass", [self.class_name(value), made])


def _key_encoder(encoder: Encoder) -> Encoder:
    """Makes the words of mappings' keys, and reports their tags and classes to the mapping's encoder."""
    made = Encoder()
    made.classes = encoder.classes
    return made


class Inline(Encoder):
    """Also makes words of numpy arrays and torch tensors, with all their bytes: for small ones, such as a generator's
    state.

    Attributes:
        array_bytes: the bytes of all arrays' words.
    """

    def __init__(self) -> None:
        super().__init__()
        self.array_bytes = 0

    def method_of(self, value: Any) -> Callable[[Any, tuple[Any, ...]], Any]:
        torch: Any = sys.modules.get("torch")
        if isinstance(value, np.ndarray):
            return self._array
        return self._torch_tensor if torch is not None and isinstance(value, torch.Tensor) else super().method_of(value)

    def _array(self, value: Any, keys: tuple[Any, ...]) -> Any:
        if value.dtype.kind not in "biufc":
            raise refused(value, keys)
        return self._bytes("numpy", value.dtype.str, value.shape, np.ascontiguousarray(value).tobytes())

    def _torch_tensor(self, value: Any, keys: tuple[Any, ...]) -> Any:
        torch: Any = sys.modules["torch"]
        if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
            raise refused(value, keys)
        raw = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        return self._bytes("torch", str(value.dtype).removeprefix("torch."), value.shape, raw)

    def _bytes(self, kind: str, dtype: str, shape: Iterable[int], raw: bytes) -> Any:
        word = tagged("array", [kind, dtype, list(shape), _base64(raw)])
        self.array_bytes += len(json.dumps(word))
        return word


def _is_structseq(kind: type) -> bool:
    """Returns true for types such as time.struct_time, whose fields differ from its items."""
    return issubclass(kind, tuple) and hasattr(kind, "n_sequence_fields")


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode()


def encoded(value: Any, keys: tuple[Any, ...] = ()) -> Any:
    """The word of a value without tensors.

    Raises:
        TypeError: it cannot be stored; the message names the keys.
    """
    return Encoder().word(value, keys)
