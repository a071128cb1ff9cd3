"""States of many types, and whether two are the same, for the tests of what is kept: test_tree.py and others."""

import collections
import dataclasses
import datetime
import enum
import math
import random
import sys

import numpy as np

Point = collections.namedtuple("Point", "x y")


class Mode(enum.Enum):
    FAST = 1
    SAFE = "safe"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Parts(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Settings:
    rate: float = 0.1
    inner: object = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    name: str
    sizes: tuple = ()


class Attributes(dict):
    """A mapping of a program's own."""


class Items(list):
    pass


CLASSES = Point, Mode, Level, Parts, Settings, Frozen, Attributes, Items


def words():
    """A value of each type, by name."""
    generator = np.random.default_rng(5)
    generator.standard_normal(3)
    return {
        "none": None, "yes": True, "int": -5, "float": 0.1, "whole": 3.0, "minus": -0.0, "text": "é\n\"", "empty": "",
        "big": 2**80, "less": -2**70, "edge": [2**64 - 1, 2**64, -2**63, -2**63 - 1], "huge": 7**9000,
        "not finite": [math.inf, -math.inf], "tiny": 5e-324, "complex": 1 - 2j, "complex inf": complex(math.inf, 0.5),
        "nul": "a\0b", "surrogate": "\ud800", "bytes": b"\0\xff", "array of bytes": bytearray(b"12"),
        "tuple": (1, (2, "x"), [3, (4,)], ()), "list": [[], [[]], {}], "set": {1, "a", (2, 3)}, "frozen": frozenset([1.5]),
        "deque": collections.deque([1, [2]], 5), "endless": collections.deque(), "range": range(1, 10, 2),
        "slice": slice(1, None), "ellipsis": ...,
        "date": datetime.date(2026, 1, 2), "time": datetime.datetime(2026, 1, 2, 3, 4, 5, 6, datetime.timezone.utc),
        "span": datetime.timedelta(1, 2, 3),
        "counter": collections.Counter({4: 2, 2: 1}), "no counts": collections.Counter(),
        "default": collections.defaultdict(list, {1: [2]}), "no default": collections.defaultdict(None, {"a": 1}),
        "ordered": collections.OrderedDict([("z", 1), ("a", (2,))]), "ordered numbers": collections.OrderedDict([(2, 1)]),
        "keys": {1: "a", 2.5: "b", None: "c", (1, "x"): "d", "q": "e", b"k": "f", frozenset([1]): "g"},
        "numbers": {1: 1, "1": 2}, "truth": {True: 1, False: {0.0: 2}}, "by mode": {Mode.SAFE: 1, Level.LOW: 2},
        "odd keys": {"": 1, "a\0b": 2, "a/b.c": 3}, "no keys": {},
        "point": Point(1, [2]), "mode": Mode.SAFE, "level": Level.HIGH, "parts": Parts.A | Parts.B, "part": Parts.A,
        "settings": Settings(0.5, {"a": Frozen("b", (1,))}), "attributes": Attributes(a=1, b=Attributes()),
        "items": Items([1, 2]), "points": [Point(0, 0), {"p": Point(1, 1)}],
        "float32": np.float32(0.1), "float64": np.float64(0.1), "int8": np.int8(-3), "uint64": np.uint64(2**64 - 1),
        "bool_": np.bool_(True), "complex64": np.complex64(1j), "nan": np.float16("nan"), "str_": np.str_("a"),
        "when": np.datetime64("2026-01-02T03:04:05"), "how long": np.timedelta64(5, "s"),
        "generator": generator.bit_generator.state, "python": random.getstate(),
        "tags": [{"$tuple": [1]}, {"float": "inf"}, {"float": 1}, {"$tensor": "/a/b"}, {"$x": {"$y": 1}}, {"$": 1, "a": 2}],
    }


def difference(a, b, where=""):
    """Where two values are not the same, of the same types; "", nowhere. Mappings but ordered ones have no order."""
    def first(found):
        return next(filter(None, found), "")
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} {a!r}, {type(b).__name__} {b!r}"
    torch = sys.modules.get("torch")
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return "" if same else f"{where}: {a!r}, {b!r}"
    if torch is not None and isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(
            a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
        return "" if same else f"{where}: {a!r}, {b!r}"
    if dataclasses.is_dataclass(a):
        return difference(vars(a), vars(b), where)
    if isinstance(a, dict):
        if isinstance(a, collections.OrderedDict) and list(a) != list(b):
            return f"{where}: in the order {list(a)}, {list(b)}"
        if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
            return f"{where}: {a!r}, {b!r}"
        kinds, others = ({(type(key), key) for key in mapping} for mapping in (a, b))
        if kinds != others:
            return f"{where}: the keys {list(a)}, {list(b)}"
        return first(difference(a[key], b[key], f"{where}[{key!r}]") for key in a)
    if isinstance(a, (list, tuple, collections.deque)):
        if len(a) != len(b) or getattr(a, "maxlen", None) != getattr(b, "maxlen", None):
            return f"{where}: {a!r}, {b!r}"
        return first(difference(x, y, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b)))
    if isinstance(a, (set, frozenset)):
        return "" if {(type(x), x) for x in a} == {(type(x), x) for x in b} else f"{where}: {a!r}, {b!r}"
    if isinstance(a, int):
        return "" if a == b else f"{where}: {a:x}, {b:x}"
    return "" if repr(a) == repr(b) else f"{where}: {a!r}, {b!r}"
