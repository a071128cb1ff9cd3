"""The state in a file of torch.save, without torch: the pickle's records become values by a fixed table, and nothing that
it names is imported or called. Tensors remain in the file."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from math import prod
from typing import Any

from . import _numpy_values, _words
from ._arrays import TORCH
from ._capi import MAX_DIMS
from ._dcp_archive import MAX_PICKLE, Archive, Files, Place, StoredTensor
from ._pickles import Budget, Call, Global, OddKey, PickleError, describe
from ._source_state import source_in
from ._sources import Box, Source
from ._words import FACTORIES, Keys
from .errors import Error, Status

Skip = Callable[[str, str], None]  # arguments: a value's name, and the reason

_MAX_PICKLE = 256 << 20
_CHARACTERS = 32 << 20  # of names, numbers and texts
_EACH = 16  # the cost of any value, since each takes time
_MAX_DEPTH = 64
_MAX_BITS = 4096
_MOST_COPIES = 64  # of a file's bytes: expanded tensors, and several names for one storage
_IN_MEMORY = 8  # a byte of an array, which is copied into memory, counts as this many

SKIPS = " (--skip-objects leaves such objects out)"
_PARAMETER = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_OF_TYPE = "torch._tensor._rebuild_from_type_v2"
_PLAIN_TYPES = ("torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer")
_DENSE = {"torch._utils._rebuild_tensor": 4, "torch._utils._rebuild_tensor_v2": 6, "torch._utils._rebuild_tensor_v3": 7}
_ONE_RANKS = ("which is one rank's part of a tensor: save by torch.distributed.checkpoint, or a full state dict "
              "(StateDictType.FULL_STATE_DICT, full_state_dict=True), and convert that")
_ADVICE = {"ShardedTensor": _ONE_RANKS, "DTensor": _ONE_RANKS, "FlatParameter": _ONE_RANKS}


class _Unsupported(ValueError):
    """A value that a step cannot store."""


def source_of(files: Files, stored: StoredTensor) -> Source:
    """A tensor in a file, which must stay open."""
    boxes = [Box((0,) * len(stored.shape), stored.shape, functools.partial(stored.read_into, files))]
    return Source(TORCH[stored.dtype], stored.shape, [] if 0 in stored.shape else boxes)


class Values:
    """Makes values from the records of a file.

    Args:
        files: the open files of its folder.
        place: the name of a file in the folder, or a part of one.
        budget: what the file's objects may use, together with those of other files.
        skip: called with the name of each value that a step cannot store, and the reason; None: that is an error.

    Raises:
        libdcp.Error: CORRUPT: no zip of torch.save, or a damaged one.
    """

    def __init__(self, files: Files, place: Place | str, skip: Skip | None = None, budget: Budget | None = None) -> None:
        self._files = files
        self._name = str(place)
        self._limit = _MAX_PICKLE if isinstance(place, str) else MAX_PICKLE
        self._skip = skip
        self._archive = Archive(files, place)
        self._budget = budget or Budget(_CHARACTERS)
        self._bytes = 0

    def root(self) -> Any:
        """The records: see :func:`libdcp._pickles.read`."""
        return self._archive.value(None, self._limit)

    def value(self, made: Any, keys: tuple[Any, ...] = ()) -> Any:
        """A value that consists of dictionaries, lists, numbers, texts and so on, with a :class:`libdcp._arrays.Shard`
        for each tensor.

        Args:
            keys: the keys that lead to it.

        Raises:
            libdcp.Error: UNSUPPORTED: a value that a step cannot store, named by its keys; CORRUPT: the file is damaged.
        """
        try:
            return self._value(made, keys)
        except _Unsupported as e:
            if self._skip is None or not keys:
                raise Error(f"{self._files.folder}/{self._name}: {Keys(keys)} is {e}; nothing was run"
                            + SKIPS * bool(keys), status=Status.UNSUPPORTED) from None
            self._skip(".".join(map(str, keys)), f"is {e}")
            return _words.Absent()
        except PickleError as e:
            raise self._archive.refused(f"{Keys(keys)}: {e}") from None

    def tensor(self, made: Any) -> Source | None:
        """The dense tensor that a record makes; None: it makes something else."""
        made = _without_parameter(made)
        if not isinstance(made, Call) or len(made.arguments) < _DENSE.get(str(made.of), len(made.arguments) + 1):
            return None
        if any(isinstance(bits, dict) and any(bits.values()) for bits in made.arguments[6:]):
            raise _Unsupported("a tensor that is conjugated or negated when it is read: save its resolve_conj().resolve_neg()")
        if len(made.arguments[2]) > MAX_DIMS if isinstance(made.arguments[2], tuple) else False:
            raise _Unsupported(f"a tensor of {len(made.arguments[2])} dimensions; a checkpoint has at most {MAX_DIMS}")
        stored = self._archive.tensor(made)
        self._count(prod(stored.shape) * stored.item)
        return source_of(self._files, stored)

    def _count(self, n: int) -> None:
        self._bytes += n
        if self._bytes > _MOST_COPIES * self._archive.length + (1 << 20):
            raise self._archive.refused(f"its tensors would have more than {_MOST_COPIES} times the file's bytes")

    def _value(self, made: Any, keys: tuple[Any, ...]) -> Any:
        if len(keys) > _MAX_DEPTH:
            raise PickleError(f"more than {_MAX_DEPTH} values within each other")
        self._budget.spend(_EACH + (len(made) if isinstance(made, (str, bytes)) else 0))
        if isinstance(made, dict):
            return self._mapping(made, keys)
        if isinstance(made, (list, tuple)):
            return type(made)(self._items(made, keys))
        if isinstance(made, Call):
            return self._call(made, keys)
        if isinstance(made, Global):
            return self._global(made)
        if isinstance(made, int) and made.bit_length() > _MAX_BITS:
            raise PickleError(f"a number of {made.bit_length()} bits")
        if made is None or isinstance(made, (bool, int, float, str, bytes)):
            return made
        raise _Unsupported(f"{describe(made)}, which is neither a tensor nor plain data")

    def _items(self, made: Any, keys: tuple[Any, ...]) -> list[Any]:
        return [self.value(inner, (*keys, i)) for i, inner in enumerate(made)]

    def _mapping(self, made: dict[Any, Any], keys: tuple[Any, ...]) -> dict[Any, Any]:
        for key in made:
            if isinstance(key, (OddKey, Call)):
                raise _Unsupported(f"a mapping with a key that is {describe(key)}")
            self._budget.spend(len(str(key)) + 2)
        return {key: self.value(inner, (*keys, key)) for key, inner in made.items()}

    def _global(self, made: Global) -> Any:
        if made.module == "torch" and made.name in TORCH:
            return _words.Word(_words.tagged("torch.dtype", made.name))
        raise _Unsupported(f"the class or function {made}")

    def _call(self, made: Call, keys: tuple[Any, ...]) -> Any:
        source = self.tensor(made)
        if source is not None:
            return source_in(source)
        data = _numpy_values.bytes_in(made)
        if data is not None:
            self._budget.spend(len(data))
            return data
        found = _numpy_values.value_of(made)
        if found is not None:
            self._count(_IN_MEMORY * found.nbytes)
            return found
        maker = _MAKERS.get(str(made.of))
        if maker is None:
            kind = _type_of(made)
            raise _Unsupported(f"a {kind}, {_ADVICE.get(kind.name, 'which is neither a tensor nor plain data')}")
        return maker(self, made, keys)

    # Each of these makes a value of a type in the table below.

    def ordered(self, made: Call, keys: tuple[Any, ...]) -> Any:
        return collections.OrderedDict(self._mapping(self._no_arguments(made).items, keys))

    def default_dict(self, made: Call, keys: tuple[Any, ...]) -> Any:
        of = made.arguments[0] if made.arguments else None
        factory = FACTORIES.get(of.name) if isinstance(of, Global) and of.module in ("builtins", "__builtin__") else None
        if len(made.arguments) > 1 or of is not None and factory is None:
            raise _Unsupported("a defaultdict of a function")
        return collections.defaultdict(factory, self._mapping(made.items, keys))

    def counter(self, made: Call, keys: tuple[Any, ...]) -> Any:
        return collections.Counter(self._mapping(self._one_argument(made, dict), keys))

    def set_of(self, made: Call, keys: tuple[Any, ...], kind: type = set) -> Any:
        items = self._items(self._one_argument(made, list), keys)
        try:
            return kind(_words.check_hashes(items))
        except TypeError:
            raise _Unsupported("a set of what is not numbers and texts") from None
        except ValueError as e:
            raise PickleError(f"a set: {e}") from None

    def deque(self, made: Call, keys: tuple[Any, ...]) -> Any:
        first, longest = made.arguments if len(made.arguments) == 2 else ((), None)
        is_length = longest is None or type(longest) is int and 0 <= longest < 2**63
        if len(made.arguments) not in (0, 2) or first not in ((), []) or not is_length:
            raise _Unsupported(f"a {made.of} in the form of another version of Python")
        return collections.deque(self._items(made.items.values(), keys), longest)

    def byte_array(self, made: Call, keys: tuple[Any, ...]) -> Any:
        data = _numpy_values.bytes_in(made.arguments[0]) if len(made.arguments) == 1 else None
        if data is None and made.arguments:
            raise _Unsupported("a bytearray without its bytes")
        return bytearray(data or b"")

    def frozen_set(self, made: Call, keys: tuple[Any, ...]) -> Any:
        return self.set_of(made, keys, frozenset)

    def size(self, made: Call, keys: tuple[Any, ...]) -> Any:
        return _words.Word(_words.tagged("torch.Size", self._numbers(self._one_argument(made, tuple))))

    def device(self, made: Call, keys: tuple[Any, ...]) -> Any:
        kind, *number = made.arguments or (None,)
        if not isinstance(kind, str) or len(number) > 1:
            raise _Unsupported("a torch.device without a name")
        return _words.Word(_words.tagged("torch.device", ":".join([kind, *map(str, self._numbers(number))])))

    def complex_number(self, made: Call, keys: tuple[Any, ...]) -> Any:
        if len(made.arguments) != 2 or not all(type(part) is float for part in made.arguments):
            raise _Unsupported("a complex number of other parts than two numbers")
        return complex(*made.arguments)

    def span(self, made: Call, keys: tuple[Any, ...]) -> Any:
        numbers = self._numbers(made.arguments)
        if not 1 <= len(numbers) <= 3 or len(numbers) == 3 and numbers[2] == 0:
            raise _Unsupported("a range without its numbers")
        return range(*numbers)

    def slice_of(self, made: Call, keys: tuple[Any, ...]) -> Any:
        if len(made.arguments) != 3:
            raise _Unsupported("a slice without its numbers")
        self._numbers([number for number in made.arguments if number is not None])
        return slice(*made.arguments)

    def _no_arguments(self, made: Call) -> Call:
        if made.arguments:
            raise _Unsupported(f"a {made.of} in the form of another version of Python")
        return made

    def _one_argument(self, made: Call, kind: type) -> Any:
        if len(made.arguments) != 1 or type(made.arguments[0]) is not kind:
            raise _Unsupported(f"a {made.of} that is not made from a {kind.__name__}")
        return made.arguments[0]

    def _numbers(self, made: Any) -> list[int]:
        if any(type(number) is not int or abs(number) >= 2**63 for number in made):
            raise _Unsupported("a size, range, slice or number of a device that is no number")
        return list(made)


_MAKERS: dict[str, Callable[[Values, Call, tuple[Any, ...]], Any]] = {
    "collections.OrderedDict": Values.ordered, "collections.defaultdict": Values.default_dict,
    "collections.Counter": Values.counter, "collections.deque": Values.deque, "torch.Size": Values.size, "torch.device": Values.device,
    **{f"{module}.{name}": maker for module in ("builtins", "__builtin__") for name, maker in (
        ("set", Values.set_of), ("frozenset", Values.frozen_set), ("complex", Values.complex_number), ("bytearray", Values.byte_array), ("slice", Values.slice_of),
        ("range", Values.span), ("xrange", Values.span))}}


def _without_parameter(made: Any) -> Any:
    """The record of a Parameter's tensor, or of a tensor that was saved with its type; other records unchanged."""
    if isinstance(made, Call) and str(made.of) in _PARAMETER and made.arguments:
        return _without_parameter(made.arguments[0])
    if isinstance(made, Call) and str(made.of) == _OF_TYPE and len(made.arguments) == 4:
        of, kind, arguments, _ = made.arguments
        if str(kind) in _PLAIN_TYPES and isinstance(of, Global) and isinstance(arguments, tuple):
            return _without_parameter(Call(of, arguments))
    return made


def _type_of(made: Call) -> Global:
    """The class of what a record makes, as far as it is known."""
    is_typed = str(made.of) == _OF_TYPE and len(made.arguments) == 4 and isinstance(made.arguments[1], Global)
    return made.arguments[1] if is_typed else made.of
