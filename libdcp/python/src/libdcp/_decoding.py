"""Makes Python values from the words of a checkpoint's JSON; see :mod:`libdcp._words`."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import enum
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _words
from ._words import FACTORIES, FLOAT, NUMPY, Keys, is_named_tuple
from .errors import Error, Status


class Decoder:
    """Makes values from words.

    Args:
        is_tagged: whether the words have tags; those of older versions have none.
        classes: by name, in addition to registered ones.
        plain: unknown classes and tags are not an error, and no class is used.
    """

    def __init__(self, is_tagged: bool, classes: Mapping[str, type] | None = None, *, plain: bool = False) -> None:
        self._is_tagged = is_tagged
        self._classes = {} if plain else {**_words.registered, **(classes or {})}
        self._plain = plain
        self.unknown: dict[str, Keys] = {}  # names of classes that were not found, and their places

    def tensor(self, path: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        """The value that represents a tensor."""
        return None

    def each(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        """The values that ranks saved separately, by rank."""
        return {int(rank): self.value(word, (*keys, int(rank))) for rank, word in content.items()}

    def value(self, word: Any, keys: tuple[Any, ...] = (), hint: Any = None) -> Any:
        """The value of a word.

        Args:
            keys: the keys that lead to it.
            hint: the value at the same place in the state to load into; its class may be used.

        Raises:
            libdcp.Error: MISMATCH: a class of the program does not accept what was saved of an instance, or is needed
                and not known; UNSUPPORTED: a tag's content is invalid; VERSION: the tag is unknown. Never CORRUPT: the
                checksums of the words are right, and a load must not fall back to an older step.
        """
        if type(word) is dict:
            if _words.is_number(word):
                return float(word[FLOAT])
            tag = _words.tag_of(word) if self._is_tagged else None
            if tag is not None:
                return self._of_tag(tag, word[tag], keys, hint)
            return self.mapping(word, keys, hint)
        return self._items(word, keys, hint) if type(word) is list else word

    def mapping(self, word: dict[str, Any], keys: tuple[Any, ...], hint: Any) -> Any:
        """The value of an object that is not a tag."""
        return {key: self.value(inner, (*keys, key), inner_of(hint, key)) for key, inner in word.items()}

    def _items(self, words: Any, keys: tuple[Any, ...], hint: Any) -> list[Any]:
        if type(words) is not list:
            raise TypeError("no list")
        if not any(type(inner) in (dict, list) for inner in words) and (self._is_tagged or None not in words):
            return list(words)
        return [self.item(inner, (*keys, i), inner_of(hint, i)) for i, inner in enumerate(words)]

    def item(self, word: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        """The value of a list's item."""
        return self.value(word, keys, hint)

    def _of_tag(self, tag: str, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        method = _DECODERS.get(tag[1:])
        if method is None:
            if self._plain:
                return {tag: self.value(content, keys)}
            raise Error(f"{Keys(keys)}: the checkpoint's JSON has the tag {tag!r}, which this version does not know",
                        status=Status.VERSION)
        try:
            return method(self, content, keys, hint)
        except Exception as e:
            if self._plain:
                return {tag: content}
            if isinstance(e, Error):
                raise
            if isinstance(e, MemoryError):
                raise Error(f"{Keys(keys)}: not enough memory for a value", status=Status.NO_MEMORY) from None
            raise Error(f"{Keys(keys)}: in the checkpoint's JSON the content of {tag!r} is invalid ({_line(e)}), as "
                        "it was when it was saved; an older step can be loaded by its number",
                        status=Status.UNSUPPORTED) from None

    def _class(self, name: Any, keys: tuple[Any, ...], hint: Any, fits: Callable[[type], bool]) -> type | None:
        """The caller's class of that name if it fits; otherwise the hint's class if that fits."""
        if self._plain:
            return None
        for found in (self._classes.get(name) if isinstance(name, str) else None, type(hint)):
            if found is not None and fits(found):
                return found
        self.unknown.setdefault(str(name), Keys(keys))
        return None

    def _made(self, kind: type, keys: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The result of ``make``, which uses ``kind``, a class of the program."""
        try:
            return make()
        except MemoryError:
            raise
        except Exception as e:
            raise Error(f"{Keys(keys)}: the program's class {_words.name_of(kind)} does not accept what was saved "
                        f"of an instance ({_line(e)}); give the class what it had when the step was saved, such as its "
                        "members",
                        status=Status.MISMATCH) from None

    def _hashed(self, words: Sequence[Any], values: list[Any], keys: tuple[Any, ...]) -> list[Any]:
        """Returns the elements of a set, or the keys of a mapping, which need hashes.

        Raises:
            libdcp.Error: MISMATCH: an element or key that has no hash was saved as an instance of a class.
        """
        for word, value in zip(words, values):
            try:
                hash(value)
            except Exception as e:
                name = _class_in(word)
                if name is None:
                    raise
                raise Error(f"{Keys(keys)}: an element of a set, or a key of a mapping, was saved as an instance of "
                            f"the class {name}, and has no hash now ({_line(e)}); call libdcp.register with the class, "
                            "whose instances must have hashes", status=Status.MISMATCH) from None
        return _words.check_hashes(values)

    def elements(self, content: Any, keys: tuple[Any, ...]) -> list[Any]:
        """The elements of a set."""
        return self._hashed(content, self._items(content, keys, None), keys)

    def pairs(self, content: Any, keys: tuple[Any, ...], hint: Any) -> list[tuple[Any, Any]]:
        found = [(self.value(key, keys), inner) for key, inner in content]
        self._hashed([key for key, _ in content], [key for key, _ in found], keys)
        return [(key, self.value(inner, (*keys, key), inner_of(hint, key))) for key, inner in found]

    def _enum(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, member, number = content
        value = self.value(number, keys)
        found: Any = self._class(name, keys, hint, lambda kind: issubclass(kind, enum.Enum) and (
            member in kind.__members__ if member is not None else issubclass(kind, enum.Flag)))
        if found is None:
            return member if value is None else value
        return self._made(found, keys, lambda: _flag_of(found, value)) if member is None else found.__members__[member]

    def _named_tuple(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, fields, words = content
        values = self._items(words, keys, hint)
        found = self._class(name, keys, hint, lambda kind: is_named_tuple(kind) and list(
            getattr(kind, "_fields")) == fields)
        return tuple(values) if found is None else self._made(found, keys, lambda: tuple.__new__(found, values))

    def _subclass(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, word = content
        value = self.value(word, keys, hint)
        base: Any = type(value)
        found: Any = self._class(name, keys, hint, lambda kind: issubclass(kind, base) and kind is not base)
        return value if found is None else self._made(found, keys, lambda: _made_of_items(found, value))

    def _mapping(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, pairs, *others = content
        attributes = _attributes(*others)
        made = dict(self.pairs(pairs, keys, hint))
        found: Any = self._class(name, keys, hint, lambda kind: issubclass(
            kind, (dict, collections.UserDict)) and kind is not dict)
        return made if found is None else self._made(found, keys, lambda: _made_of_pairs(found, made, attributes))

    def _dataclass(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, words = content
        values = {field: self.value(inner, (*keys, field), inner_of(hint, field)) for field, inner in words.items()}
        found: Any = self._class(name, keys, hint, lambda kind: dataclasses.is_dataclass(kind) and values.keys() <= {
            field.name for field in dataclasses.fields(kind)})
        return values if found is None else self._made(found, keys, lambda: made_of_fields(found, values, hint))

    def _numpy(self, content: Any, keys: tuple[Any, ...], hint: Any) -> Any:
        name, word = content
        if not NUMPY.fullmatch(name):
            raise ValueError(f"no type of a number is called {name!r}")
        value = self.value(word, keys)
        is_time = name.startswith(("datetime", "timedelta"))
        kinds = _KINDS_OF_NUMPY.get(name, (bool, int, float, complex)) if not is_time else (int,)
        if type(value) not in kinds:  # bytes_(n), for example, would make n bytes
            raise TypeError(f"no {name} is made from a {type(value).__name__}")
        if is_time:
            return np.int64(value).view(name)
        made = np.dtype(name).type(value)
        if isinstance(made, np.integer) and int(made) != value:  # numpy 1 wraps what is out of range
            raise ValueError(f"no {name} is {value}")
        return made

    def torch_word(self, kind: str, content: Any) -> Any:
        torch: Any = sys.modules.get("torch")
        if kind == "Size":
            numbers = tuple(map(int, content))
            return numbers if torch is None or self._plain else torch.Size(numbers)
        if not isinstance(content, str):
            raise TypeError("no text")
        if torch is None or self._plain:
            return content
        found = getattr(torch, content, None) if kind == "dtype" and content.isidentifier() else None
        if kind == "dtype" and not isinstance(found, torch.dtype):
            raise ValueError(f"torch has no dtype {content!r}")
        return torch.device(content) if kind == "device" else found


def _array(content: Any, decoder: Decoder) -> Any:
    kind, dtype, shape, text = content
    raw = np.frombuffer(_bytes(text), np.uint8).copy()
    torch: Any = sys.modules.get("torch")
    if kind == "torch" and torch is not None:
        return torch.from_numpy(raw).view(decoder.torch_word("dtype", dtype)).reshape(shape)
    if kind not in ("numpy", "torch") or not isinstance(dtype, str):
        raise ValueError("no array")
    number = np.dtype(dtype)
    if number.kind not in "biufc":
        raise ValueError("no array of numbers")
    return raw.view(number).reshape(shape)


def _line(error: Exception) -> str:
    """The text of an exception, in one line; shortened if it quotes much of the file."""
    try:
        text = " ".join(str(error).split())
        return text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + "..."
    except Exception:  # raised by user-defined classes
        return type(error).__name__


def _class_in(word: Any) -> str | None:
    """The name of the first class that a word contains."""
    tag = _words.tag_of(word)
    if tag is not None and tag[1:] in _OF_CLASSES and type(word[tag]) is list and word[tag]:
        return str(word[tag][0])
    inner = word.values() if type(word) is dict else word if type(word) is list else ()
    return next((name for name in map(_class_in, inner) if name is not None), None)


def _flag_of(kind: Any, value: Any) -> Any:
    """Returns the flag that has a number. Raises ValueError if the class makes a flag with a different number: it may
    change, or drop, bits that it does not know."""
    made = kind(value)
    if getattr(made, "value", made) != value:
        raise ValueError(f"it makes {made!r} of {value}")
    return made


def _made_of_items(kind: Any, value: Any) -> Any:
    """An instance of a class of lists, tuples, sets, deques, texts or numbers, made without calling its constructor."""
    base: Any = type(value)
    made = kind.__new__(kind) if base in (list, set, collections.deque) else base.__new__(kind, value)
    if base is collections.deque:
        collections.deque.__init__(made, value, value.maxlen)
    elif base in (list, set):
        base.__init__(made, value)
    return made


def _made_of_pairs(kind: Any, items: dict[Any, Any], attributes: Sequence[str]) -> Any:
    """An instance of a class of mappings, made without calling its constructor.

    Args:
        attributes: the names of the attributes that are also items.
    """
    made = kind.__new__(kind)
    if isinstance(made, collections.UserDict):
        made.data = items
        return made
    base = collections.OrderedDict if isinstance(made, collections.OrderedDict) else dict
    for key, inner in items.items():
        base.__setitem__(made, key, inner)  # dict's own method would hide the item from an OrderedDict
    for name in attributes:
        if name in items:
            _words.set_attribute(made, name, items[name])
    return made


def made_of_fields(kind: type, values: Mapping[str, Any], like: Any = None) -> Any:
    """An instance of a dataclass, made as copy does: without calling its constructor."""
    made: Any = object.__new__(kind)
    for field in dataclasses.fields(kind):
        if field.name in values:
            object.__setattr__(made, field.name, values[field.name])
        elif type(like) is kind and hasattr(like, field.name):
            object.__setattr__(made, field.name, getattr(like, field.name))
    return made


def inner_of(value: Any, key: Any) -> Any:
    """A container's item at a key; None if there is none."""
    if value is None:
        return None
    try:
        if isinstance(value, Mapping):
            return value[key] if key in value else None
        if isinstance(value, (Sequence, collections.deque)) and not isinstance(value, (str, bytes, bytearray)):
            return value[key] if isinstance(key, int) and key < len(value) else None
        return getattr(value, key, None) if dataclasses.is_dataclass(value) and isinstance(key, str) else None
    except Exception:  # raised by user-defined classes
        return None


def _attributes(names: Sequence[str] = ()) -> Sequence[str]:
    """The names of those attributes that a mapping also has as keys."""
    if any(not name.isidentifier() or name.startswith("__") for name in names):
        raise ValueError("no names of attributes")
    return names


def _bytes(content: Any) -> bytes:
    return base64.b64decode(content, validate=True)


def _deque(content: Any, decoder: Decoder, keys: tuple[Any, ...], hint: Any) -> Any:
    words, longest = content
    return collections.deque(decoder._items(words, keys, hint), longest)


def _default_dict(content: Any, decoder: Decoder, keys: tuple[Any, ...], hint: Any) -> Any:
    name, pairs = content
    return collections.defaultdict(None if name is None else FACTORIES[name], decoder.pairs(pairs, keys, hint))


def _integer(content: str) -> int:
    if not re.fullmatch(r"-?0x[0-9a-f]+", content):
        raise ValueError("no hexadecimal number")
    return int(content, 16)


_KINDS_OF_NUMPY: dict[str, tuple[type, ...]] = {"bytes": (bytes,), "str": (str,)}
_MOST_SAID = 300  # characters of another exception's text in a message
_OF_CLASSES = ("enum", "namedtuple", "subclass", "mapping", "dataclass")  # whose content begins with a class's name
_DECODERS: dict[str, Callable[[Decoder, Any, tuple[Any, ...], Any], Any]] = {
    "tuple": lambda d, content, keys, hint: tuple(d._items(content, keys, hint)),
    "set": lambda d, content, keys, hint: set(d.elements(content, keys)),
    "frozenset": lambda d, content, keys, hint: frozenset(d.elements(content, keys)),
    "deque": lambda d, content, keys, hint: _deque(content, d, keys, hint),
    "dict": lambda d, content, keys, hint: dict(d.pairs(content, keys, hint)),
    "OrderedDict": lambda d, content, keys, hint: collections.OrderedDict(d.pairs(content, keys, hint)),
    "Counter": lambda d, content, keys, hint: collections.Counter(dict(d.pairs(content, keys, hint))),
    "defaultdict": lambda d, content, keys, hint: _default_dict(content, d, keys, hint),
    "bytes": lambda d, content, keys, hint: _bytes(content),
    "bytearray": lambda d, content, keys, hint: bytearray(_bytes(content)),
    "BytesIO": lambda d, content, keys, hint: io.BytesIO(_bytes(content)),
    "str": lambda d, content, keys, hint: _bytes(content).decode("utf-8", "surrogatepass"),
    "int": lambda d, content, keys, hint: _integer(content),
    "complex": lambda d, content, keys, hint: complex(*d._items(content, keys, None)),
    "range": lambda d, content, keys, hint: range(*d._items(content, keys, None)),
    "slice": lambda d, content, keys, hint: slice(*d._items(content, keys, None)),
    "ellipsis": lambda d, content, keys, hint: ...,
    "absent": lambda d, content, keys, hint: None,
    "date": lambda d, content, keys, hint: datetime.date.fromisoformat(content),
    "datetime": lambda d, content, keys, hint: datetime.datetime.fromisoformat(content),
    "timedelta": lambda d, content, keys, hint: datetime.timedelta(*content),
    "numpy": Decoder._numpy,
    "torch.Size": lambda d, content, keys, hint: d.torch_word("Size", content),
    "torch.dtype": lambda d, content, keys, hint: d.torch_word("dtype", content),
    "torch.device": lambda d, content, keys, hint: d.torch_word("device", content),
    "enum": Decoder._enum,
    "namedtuple": Decoder._named_tuple,
    "subclass": Decoder._subclass,
    "mapping": Decoder._mapping,
    "dataclass": Decoder._dataclass,
    "array": lambda d, content, keys, hint: _array(content, d),
    "per_rank": lambda d, content, keys, hint: d.each(content, keys, hint),
    "tensor": lambda d, content, keys, hint: d.tensor(content, keys, hint),
}
