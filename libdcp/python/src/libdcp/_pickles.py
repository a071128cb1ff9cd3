"""Reads pickles as data. Nothing that a pickle names is imported or called: where Python would call something, the
result contains a record of that call.

Supports the opcodes that pickle's protocols 2 to 5 write for numbers, texts, bytes, lists, tuples, dictionaries and
objects. The memory that is used is proportional to the pickle's length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Names = frozenset[tuple[str, str]]


class PickleError(ValueError):
    """A pickle that is damaged, or that contains something unsupported."""


@dataclass(frozen=True)
class Global:
    """The name of a class or function."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Call:
    """Represents what Python would have made by calling ``of`` with ``arguments``.

    Attributes:
        state: what would have been passed to its __setstate__, or None.
        items: the items that its __setitem__ would have set, or those that would have been appended to it, by number.
    """

    __slots__ = ("of", "arguments", "state", "items")

    def __init__(self, of: Global, arguments: tuple[Any, ...]) -> None:
        self.of = of
        self.arguments = arguments
        self.state: Any = None
        self.items: dict[Any, Any] = {}

    def members(self) -> dict[Any, Any]:
        """An object's attributes."""
        return self.state if isinstance(self.state, dict) else {}


@dataclass(frozen=True)
class Persistent:
    """A reference to something that is stored outside of the pickle."""

    id: Any


class OddKey:
    """A key of a mapping that is neither a text nor a small integer."""

    def __init__(self, key: Any) -> None:
        self.key = key


class _Reader:
    def __init__(self, data: bytes, names: Names | None) -> None:
        self._data = data
        self._names = names
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []  # positions in the stack
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        operations = _OPERATIONS
        try:
            while True:
                code = self._data[self._at]
                self._at += 1
                if code == 0x2E:  # STOP
                    return self._pop()
                operations[code](self)
        except PickleError as e:
            raise PickleError(f"{e} (before byte {self._at})") from None
        except (IndexError, struct.error):
            raise PickleError(f"it is truncated or damaged (before byte {self._at})") from None
        except KeyError as e:
            raise PickleError(f"an opcode or a reference, {e}, that is not known (before byte {self._at})") from None
        except UnicodeDecodeError:
            raise PickleError(f"a text that is not UTF-8 (before byte {self._at})") from None

    def _take(self, n: int) -> bytes:
        taken = self._data[self._at:self._at + n]
        if len(taken) != n:
            raise PickleError(f"{n} bytes are to follow, but it ends")
        self._at += n
        return taken

    def _number(self, form: struct.Struct) -> Any:
        found = form.unpack_from(self._data, self._at)[0]
        self._at += form.size
        return found

    def _line(self) -> str:
        end = self._data.find(b"\n", self._at, self._at + 1024)
        if end < 0:
            raise PickleError("a name without an end")
        line = self._data[self._at:end].decode()
        self._at = end + 1
        return line

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        if not self._stack or self._marks and len(self._stack) <= self._marks[-1]:
            raise PickleError("a value is missing")
        return self._stack.pop()

    def _top(self) -> Any:
        self._push(top := self._pop())
        return top

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise PickleError("a mark is missing")
        at = self._marks.pop()
        found = self._stack[at:]
        del self._stack[at:]
        return found

    # Each of these methods executes one opcode.

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def pop(self) -> None:
        self._pop()

    def pop_mark(self) -> None:
        self._since_mark()

    def constant(self, value: Any) -> None:
        self._push(value)

    def number(self, form: struct.Struct) -> None:
        self._push(self._number(form))

    def integer(self, form: struct.Struct) -> None:
        self._push(int.from_bytes(self._take(self._number(form)), "little", signed=True))

    def text(self, form: struct.Struct) -> None:
        self._push(self._take(self._number(form)).decode())

    def binary(self, form: struct.Struct) -> None:
        self._push(self._take(self._number(form)))

    def skip(self, n: int) -> None:
        self._take(n)

    def empty_list(self) -> None:
        self._push([])

    def empty_dict(self) -> None:
        self._push({})

    def tuple_of(self, n: int) -> None:
        self._push(tuple(reversed([self._pop() for _ in range(n)])))

    def tuple_since_mark(self) -> None:
        self._push(tuple(self._since_mark()))

    def _extend(self, values: list[Any]) -> None:
        container = self._top()
        if isinstance(container, Call):
            container.items.update(enumerate(values, len(container.items)))
        elif isinstance(container, list):
            container.extend(values)
        else:
            raise PickleError(f"items are added to {describe(container)}")

    def append(self) -> None:
        value = self._pop()
        self._extend([value])

    def appends(self) -> None:
        self._extend(self._since_mark())

    def _set(self, values: list[Any]) -> None:
        container = self._top()
        into = container.items if isinstance(container, Call) else container
        if not isinstance(into, dict) or len(values) % 2:
            raise PickleError(f"items are set in {describe(container)}")
        for key, value in zip(values[::2], values[1::2]):
            # Other keys, such as long integers, can be chosen to collide: a dictionary of them would take forever.
            if not isinstance(key, (str, Call)) and not (isinstance(key, int) and abs(key) < 2**53):
                if self._names is not None:
                    raise PickleError(f"a key that is {describe(key)}")
                key = OddKey(key)
            into[key] = value

    def set_item(self) -> None:
        value = self._pop()
        self._set([self._pop(), value])

    def set_items(self) -> None:
        self._set(self._since_mark())

    def _push_global(self, module: Any, name: Any) -> None:
        is_known = isinstance(module, str) and isinstance(name, str) and (
            self._names is None or (module, name) in self._names)
        if not is_known:
            raise PickleError(f"it names {module}.{name}, which has no place here; nothing was run"[:200])
        self._push(Global(module, name))

    def global_by_lines(self) -> None:
        module = self._line()
        self._push_global(module, self._line())

    def global_by_stack(self) -> None:
        name = self._pop()
        self._push_global(self._pop(), name)

    def call(self) -> None:
        arguments, of = self._pop(), self._pop()
        if self._names is None and isinstance(of, Call):  # the result of a call is called
            of = Global(of.of.module, f"{of.of.name}(...)"[:200])
        if not isinstance(of, Global) or not isinstance(arguments, tuple):
            raise PickleError(f"{describe(of)} is called")
        self._push(Call(of, arguments))

    def build(self) -> None:
        state, made = self._pop(), self._top()
        if not isinstance(made, Call) or made.state is not None:
            raise PickleError(f"a state is given to {describe(made)}")
        made.state = state

    def persistent(self) -> None:
        self._push(Persistent(self._pop()))

    def memoize(self) -> None:
        self._memo[len(self._memo)] = self._top()

    def put(self, form: struct.Struct) -> None:
        self._memo[self._number(form)] = self._top()

    def get(self, form: struct.Struct) -> None:
        self._push(self._memo[self._number(form)])


_U8, _U16, _U32, _U64 = (struct.Struct(form) for form in ("<B", "<H", "<I", "<Q"))
_I32, _F64 = struct.Struct("<i"), struct.Struct(">d")


def _with(operation: Callable[[_Reader, Any], None], argument: Any) -> Callable[[_Reader], None]:
    return lambda reader: operation(reader, argument)


_R = _Reader
_OPERATIONS: dict[int, Callable[[_Reader], None]] = {ord(code): operation for code, operation in {
    "(": _R.mark, "0": _R.pop, "1": _R.pop_mark, "]": _R.empty_list, "}": _R.empty_dict, "t": _R.tuple_since_mark,
    "a": _R.append, "e": _R.appends, "s": _R.set_item, "u": _R.set_items, "c": _R.global_by_lines,
    "\x93": _R.global_by_stack, "R": _R.call, "\x81": _R.call, "b": _R.build, "Q": _R.persistent, "\x94": _R.memoize,
    "N": _with(_R.constant, None), "\x88": _with(_R.constant, True), "\x89": _with(_R.constant, False),
    ")": _with(_R.constant, ()), "\x85": _with(_R.tuple_of, 1), "\x86": _with(_R.tuple_of, 2),
    "\x87": _with(_R.tuple_of, 3), "J": _with(_R.number, _I32), "K": _with(_R.number, _U8),
    "M": _with(_R.number, _U16), "G": _with(_R.number, _F64), "\x8a": _with(_R.integer, _U8),
    "\x8b": _with(_R.integer, _U32), "X": _with(_R.text, _U32), "\x8c": _with(_R.text, _U8),
    "\x8d": _with(_R.text, _U64), "B": _with(_R.binary, _U32), "C": _with(_R.binary, _U8),
    "\x8e": _with(_R.binary, _U64), "q": _with(_R.put, _U8), "r": _with(_R.put, _U32), "h": _with(_R.get, _U8),
    "j": _with(_R.get, _U32), "\x80": _with(_R.skip, 1), "\x95": _with(_R.skip, 8)}.items()}


def describe(value: Any) -> str:
    """A description of a value, for messages."""
    if isinstance(value, Call):
        return f"a {value.of}"
    if isinstance(value, Global):
        return f"the name {value}"
    if isinstance(value, OddKey):
        return describe(value.key)
    return "None" if value is None else f"a {type(value).__name__}"


def read(data: bytes, names: Names | None) -> Any:
    """The value that a pickle represents: numbers, texts, bytes, lists, tuples, dictionaries, and a :class:`Call` for
    each object of another type.

    Args:
        data: the pickle.
        names: the pairs (module, name) that it may contain. None: it may contain any, and the caller itself refuses
            what it does not accept; keys of a mapping may then also be :class:`OddKey`.

    Raises:
        PickleError: it is damaged, or contains another name.
    """
    return _Reader(data, names).read()


class Budget:
    """Roughly limits the number of characters that objects become: a short pickle can refer to its parts many times."""

    def __init__(self, left: int) -> None:
        self._left = left

    def spend(self, n: int) -> None:
        self._left -= n
        if self._left < 0:
            raise PickleError("more than a checkpoint's JSON has room for")
