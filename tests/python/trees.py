"""States of many types, and a comparison of two states, for the tests of stored values: test_tree.py and others."""

import collections
import copy
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
    """A mapping class of a program."""


class Items(list):
    pass


CLASSES = Point, Mode, Level, Parts, Settings, Frozen, Attributes, Items


def words():
    """Returns a value of each type, by name."""
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
    """Returns the place where two values differ, also in type; "" if they are equal. Only ordered mappings have an
    order."""
    def first(found):
        return next(filter(None, found), "")
    if type(a) is not type(b):
        return f"{where}: {type(a).__name__} {a!r}, {type(b).__name__} {b!r}"
    torch = sys.modules.get("torch")
    if isinstance(a, np.ndarray):
        same = a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        return "" if same else f"{where}: {a!r}, {b!r}"
    if torch is not None and isinstance(a, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and (not a.numel() or torch.equal(
            *(torch.empty(x.numel(), dtype=x.dtype).copy_(x.reshape(-1)).view(torch.uint8) for x in (a, b))))
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


class Maker:
    """Random states.

    Args:
        rng: as ``random.Random`` gives them, or hypothesis does.
        tensor: makes a tensor of a shape by a generator of numpy's.
    """

    def __init__(self, rng, tensor=lambda shape, numbers: numbers.integers(0, 255, shape, np.uint8)):
        self.rng = rng
        self._tensor = tensor

    def tensor(self):
        shape = tuple(self.rng.randint(0, 3) for _ in range(self.rng.randint(0, 3)))
        return self._tensor(shape, np.random.default_rng(self.rng.randint(0, 1 << 30)))

    def text(self):
        return "".join(self.rng.choice("ab.$/é\0\ud800\U0001f600\n\"") for _ in range(self.rng.randint(0, 4)))

    def word(self):
        rng = self.rng
        return rng.choice([
            lambda: None, lambda: rng.random() < 0.5, lambda: rng.randint(-9, 9), lambda: rng.randint(-2**80, 2**80),
            lambda: rng.choice([2**63, 2**64 - 1, 2**64, -2**63, -2**63 - 1]), lambda: rng.uniform(-1e300, 1e300),
            lambda: rng.choice([0.0, -0.0, 1.0, 5e-324, math.inf, -math.inf, math.nan, 0.1]), self.text, self.text,
            lambda: rng.choice(["float", "inf", "$tuple", "$"]), lambda: bytes(rng.randint(0, 255) for _ in range(3)),
            lambda: bytearray(b"\0a"), lambda: complex(rng.uniform(-1, 1), math.inf), lambda: rng.choice([*Mode, *Level]),
            lambda: Parts(rng.randint(0, 3)), lambda: np.float32(rng.uniform(-1, 1)), lambda: np.int64(rng.randint(-9, 9)),
            lambda: np.bool_(True), lambda: np.float64(math.nan), lambda: range(rng.randint(0, 3), 9, 2),
            lambda: datetime.datetime(2026, 1, rng.randint(1, 28)), lambda: ...])()

    def key(self, depth=0):
        rng = self.rng
        return rng.choice([self.text, self.text, lambda: rng.choice(["a", "b", "float", "$dict"]), lambda: rng.randint(-3, 3),
                           lambda: rng.choice([None, True, 0.5, b"k", Mode.FAST, 2**70]),
                           lambda: () if depth > 1 else tuple(self.key(depth + 1) for _ in range(2)),
                           lambda: frozenset([rng.randint(0, 3)])])()

    def pairs(self, value):
        """Returns pairs whose keys are different according to ==, and of one type each."""
        found = {}
        for _ in range(self.rng.randint(0, 3)):
            found.setdefault(self.key(), value())
        return found

    def value(self, depth=0):
        """Returns a value without tensors."""
        rng = self.rng
        if depth > 3 or rng.random() < 0.4:
            return self.word()

        def inner():
            return self.value(depth + 1)

        def items():
            return [inner() for _ in range(rng.randint(0, 3))]
        return rng.choice([
            items, items, lambda: tuple(items()), lambda: self.pairs(inner), lambda: self.pairs(inner),
            lambda: collections.OrderedDict(self.pairs(inner)), lambda: collections.defaultdict(
                rng.choice([None, int, list]), self.pairs(inner)), lambda: collections.deque(items(), rng.choice([None, 3, 5])),
            lambda: collections.Counter(self.pairs(lambda: rng.randint(0, 9))), lambda: set(self.pairs(lambda: 0)),
            lambda: frozenset(self.pairs(lambda: 0)), lambda: Point(inner(), inner()), lambda: Settings(inner(), inner()),
            lambda: Frozen(self.text(), tuple(items())), lambda: Attributes(self.pairs(inner)), lambda: Items(items())])()

    def nested(self, depth=0):
        """Returns a value with tensors, whose names are valid for the library, and all different."""
        rng = self.rng
        if depth > 2 or rng.random() < 0.3:
            return self.tensor() if rng.random() < 0.7 else self.value(2)

        def items():
            return [self.nested(depth + 1) for _ in range(rng.randint(1, 3))]

        def pairs(keys):
            return {key: self.nested(depth + 1) for key in rng.sample(keys, rng.randint(1, 3))}
        return rng.choice([
            items, lambda: tuple(items()), lambda: pairs(["u", "v", "w", "x/y"]), lambda: pairs(["u", "v", "w"]),
            lambda: pairs([0, 7, "z", (1, 2), None]), lambda: collections.OrderedDict(pairs([3, "y", "x"])),
            lambda: collections.defaultdict(list, pairs(["k", 5, "l"])), lambda: collections.deque(items(), 4),
            lambda: Point(self.nested(depth + 1), self.nested(depth + 1)),
            lambda: Settings(self.nested(depth + 1), self.nested(depth + 1)),
            lambda: Attributes(pairs(["m", "n", "o"]))])()

    def section(self):
        return {key: self.rng.choice([self.tensor, self.tensor, self.nested, self.value])()
                for key in self.rng.sample(["a", "b", "c", "w.x", "p/q"], self.rng.randint(0, 4))}

    def optimizer(self):
        names = self.rng.sample(["a.b", "c", "d/e"], self.rng.randint(0, 3))
        return {"state": {name: {"exp_avg": self.tensor(), "step": self.rng.choice([self.tensor, self.word])()} for name in names},
                "param_groups": [{"params": names, "betas": (0.5, 0.9), "lr": self.word()}]}

    def state(self):
        """Its sections are dicts, because a checkpoint does not store the type of a mapping that contains only
        tensors."""
        rng = self.rng
        found = {name: rng.choice([self.section, self.section, self.value, self.nested])()
                 for name in rng.sample(["model", "ema", "extra", "s", "t"], rng.randint(0, 4))}
        for name in rng.sample(["top", "rng", "other"], rng.randint(0, 2)):
            found[name] = rng.choice([self.tensor, self.value])()
        if rng.random() < 0.4:
            found[rng.choice(["optimizer", "optim"])] = self.optimizer()
        return {name: dict(value) if isinstance(value, (Attributes, collections.OrderedDict)) else value
                for name, value in found.items()}


def is_tensor(value):
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray) or torch is not None and isinstance(value, torch.Tensor)


def has_tensors(value):
    if isinstance(value, dict):
        return any(map(has_tensors, value.values()))
    if dataclasses.is_dataclass(value):
        return any(map(has_tensors, vars(value).values()))
    return is_tensor(value) or isinstance(value, (list, tuple, collections.deque)) and any(map(has_tensors, value))


def blank(value):
    """Returns the state of a program before it loads: the same tensors and names, without values."""
    if is_tensor(value):
        return np.zeros_like(value) if isinstance(value, np.ndarray) else value.new_zeros(value.shape)
    if isinstance(value, (collections.Counter, collections.defaultdict)) and not has_tensors(value):
        return None
    if isinstance(value, dict):
        made = copy.copy(value)
        made.update({key: blank(inner) for key, inner in value.items()})
        return made
    if not has_tensors(value):
        return None
    if dataclasses.is_dataclass(value):
        return type(value)(**{key: blank(inner) for key, inner in vars(value).items()})
    if isinstance(value, Point):
        return Point(*map(blank, value))
    items = [blank(inner) for inner in value]
    return collections.deque(items, value.maxlen) if isinstance(value, collections.deque) else type(value)(items)


def thinned(value, rng):
    """Returns what a program may have before it loads into an object: some of the values, with other shapes, or
    something else."""
    if rng.random() < 0.15:
        return rng.choice([None, 0, [], {}])
    if is_tensor(value):
        shape = tuple(rng.randint(0, 2) for _ in range(rng.randint(0, 2)))
        if rng.random() < 0.7:
            return value
        return np.zeros(shape, value.dtype) if isinstance(value, np.ndarray) else value.new_zeros(shape)
    if isinstance(value, dict):
        made = copy.copy(value)
        for key in list(value):
            made[key] = thinned(value[key], rng)
            if rng.random() < 0.2:
                del made[key]
        return made
    if isinstance(value, (list, tuple, collections.deque)) and not isinstance(value, Point):
        items = [thinned(inner, rng) for inner in value][:rng.randint(0, len(value))]
        return collections.deque(items, value.maxlen) if isinstance(value, collections.deque) else type(value)(items)
    return value
