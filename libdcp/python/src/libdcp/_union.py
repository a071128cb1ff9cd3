"""What ranks report to each other about what they hold, before a collective call of the library.

Ranks may name different tensors, and have different values besides them; the library requires that all ranks name the
same tensors, and accepts one JSON. One all-reduce determines whether ranks differ, and whether any rank has failed
before. Only differences from rank 0 are sent, through rank 0.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _words
from ._groups import MIN, SUM, Group
from .errors import Error, Status

Keys = tuple[Any, ...]
Trail = tuple[str, ...]  # texts of keys
_NONE = 2**64 - 1
EACH = "$per_rank"  # the tag of what each rank has separately, by rank
_MOST_TOLD = 16  # differences that are reported individually
_MOST_LETTERS = 60  # characters of a value that differs


def mark_of(text: bytes) -> int:
    """A number that is equal for equal texts."""
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _gather(group: Group, text: bytes) -> list[bytes]:
    """All ranks' texts on rank 0, elsewhere an empty list."""
    sizes = np.zeros(group.size, np.uint64)
    sizes[group.rank] = len(text)
    group.allreduce(sizes, SUM)
    expected = [int(n) for n in sizes] if group.rank == 0 else [0] * group.size
    received = np.empty(sum(expected), np.uint8)
    group.alltoall(np.frombuffer(text, np.uint8).copy(), [len(text), *[0] * (group.size - 1)], received, expected)
    ends = np.cumsum(expected)
    return [received[end - n:end].tobytes() for n, end in zip(expected, ends)] if group.rank == 0 else []


def _broadcast(group: Group, text: bytes) -> bytes:
    """Sends rank 0's text to all ranks."""
    size = np.array([len(text)], np.uint64)
    group.broadcast(size.view(np.uint8), 0)
    data = np.frombuffer(text, np.uint8).copy() if group.rank == 0 else np.empty(int(size[0]), np.uint8)
    group.broadcast(data, 0)
    return data.tobytes()


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _kind(word: Any) -> str | None:
    """The tag of a word that is a mapping, "" if it has none; None for other words. See :mod:`libdcp._words`."""
    if not isinstance(word, dict) or _words.is_number(word):
        return None
    tag = _words.tag_of(word)
    return "" if tag is None else tag if tag in ("$dict", "$OrderedDict", "$mapping", "$defaultdict", EACH) else None


def _pairs(word: dict[str, Any], kind: str) -> dict[str, tuple[Any, Any]]:
    """A mapping's keys, as words, and values, by the keys' texts."""
    inner: Any = word[kind] if kind else word
    listed = inner[1] if kind in ("$mapping", "$defaultdict") else inner if kind in ("$dict", "$OrderedDict") else inner.items()
    return {_text(key): (key, value) for key, value in listed}


# Tags of containers, and the position of the items' words in a tag's content; None: the content is the items' words.
_ITEMS: dict[str | None, int | None] = {"$tuple": None, "$deque": 0, "$namedtuple": 2, "$subclass": 1, "$dataclass": 1}


def _turned(content: Any, tag: str | None) -> list[Any]:
    """The items, and what surrounds them."""
    at = _ITEMS[tag]
    return [content] if at is None else [content[at], *content[:at], *content[at + 1:]]


def _back(turned: list[Any], tag: str | None) -> Any:
    at = _ITEMS[tag]
    return turned[0] if at is None else [*turned[1:at + 1], turned[0], *turned[at + 1:]]


def _mapping(like: dict[str, Any], kind: str, pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """A mapping of a kind with these keys and values."""
    if kind == "$dict":
        made: dict[str, Any] = _words.Encoder().plain(list(pairs))
        return made
    if kind in ("$OrderedDict", "$mapping", "$defaultdict"):
        listed = list(map(list, pairs))
        return {kind: listed if kind == "$OrderedDict" else [like[kind][0], listed, *like[kind][2:]]}
    return {kind: dict(pairs)} if kind else dict(pairs)


def pairs_of(word: Any) -> list[tuple[Any, Any]] | None:
    """The keys, as words, and values of a word that is a mapping; None for other words."""
    kind = _kind(word)
    return None if kind is None else list(_pairs(word, kind).values())


def like(word: dict[str, Any], pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """A mapping of the same kind as a word, with other keys and values."""
    return _mapping(word, _kind(word) or "", pairs)


# How a word differs from another one: ("whole", word), or, for two mappings of one kind, ("in", differences by the
# texts of keys, with the keys' words).
Delta = Sequence[Any]


def _difference(mine: Any, base: Any) -> Delta | None:
    kind = _kind(mine)
    if kind is None or kind != _kind(base):
        return None if _text(mine) == _text(base) else ("whole", mine)
    others = _pairs(base, kind)
    found = {text: (key, _difference(value, others[text][1]) if text in others else ("whole", value))
             for text, (key, value) in _pairs(mine, kind).items()}
    kept = {text: pair for text, pair in found.items() if pair[1] is not None}
    return ("in", kept) if kept else None


def _are_groups(value: Any) -> bool:
    """Returns true for the form of torch's parameter groups, by name."""
    return isinstance(value, list) and all(
        isinstance(group, dict) and isinstance(group.get("params"), list) and all(
            isinstance(name, str) for name in group["params"]) for group in value)


def _options(group: dict[str, Any]) -> str:
    return _text({key: value for key, value in group.items() if key != "params"})


@dataclass
class _Union:
    """The union of words by their mappings' keys. Lists of equal length are united item by item, and optimizers'
    parameter groups by their options; for everything else, the lowest rank's value is used.

    Attributes:
        value: the union; it reuses the first rank's value.
        differing: the different values that ranks have for a key, with the ranks that have each; keys are texts.
    """

    value: Any
    differing: dict[Trail, list[tuple[str, list[int]]]] = field(default_factory=dict)
    _owners: dict[Trail, int] = field(default_factory=dict)  # ranks that first had what the first rank lacked

    def add(self, rank: int, delta: Delta) -> None:
        self.value = self._with(self.value, delta, (), rank)

    def _with(self, ours: Any, delta: Delta, keys: Trail, rank: int) -> Any:
        how, other = delta
        kind = _kind(ours)
        if how == "in" and kind is not None:
            return self._entered(ours, kind, other, keys, rank)
        theirs = _kind(other)
        if kind is not None and theirs is not None:
            deltas = {text: (key, ("whole", value)) for text, (key, value) in _pairs(other, theirs).items()}
            return self._entered(ours, kind or (theirs if theirs == "$dict" else ""), deltas, keys, rank)
        if keys[-1:] == ('"param_groups"',) and _are_groups(ours) and _are_groups(other):
            return self._with_groups(ours, other, keys, rank)
        if _words.tag_of(ours) == "$absent" or _words.tag_of(other) == "$absent":
            return other if _words.tag_of(ours) == "$absent" else ours
        if isinstance(ours, list) and isinstance(other, list) and (
                len(ours) == len(other) or _words.ABSENT in ours or _words.ABSENT in other):
            return [self._with(a, ("whole", b), (*keys, str(i)), rank) for i, (a, b) in enumerate(
                itertools.zip_longest(ours, other, fillvalue=_words.ABSENT))]
        tag = _words.tag_of(ours)
        if tag in _ITEMS and tag == _words.tag_of(other):
            (a, *around), (b, *others) = _turned(ours[tag], tag), _turned(other[tag], tag)
            if around == others:
                made = self._with(a, ("whole", b), keys, rank)
                return {tag: _back([made, *around], tag)}
        if (said := _text(other)) != _text(ours):
            self._note(keys, _text(ours), said, rank)
        return ours

    def _entered(self, ours: dict[str, Any], kind: str, deltas: Mapping[str, tuple[Any, Delta]], keys: Trail,
                 rank: int) -> dict[str, Any]:
        pairs = _pairs(ours, _kind(ours) or "")
        for text, (key, delta) in deltas.items():
            if text in pairs:
                pairs[text] = key, self._with(pairs[text][1], delta, (*keys, text), rank)
            else:
                pairs[text] = key, delta[1]
                self._owners[(*keys, text)] = rank
        return _mapping(ours, kind, pairs.values())

    def _with_groups(self, ours: list[dict[str, Any]], others: list[dict[str, Any]], keys: Trail,
                     rank: int) -> list[dict[str, Any]]:
        """Adds each new parameter to the group with the same options, or to a new group."""
        groups = {name: i for i, group in enumerate(ours) for name in group["params"]}
        for group in others:
            for i in sorted({groups[name] for name in group["params"] if name in groups}):
                self._with({**ours[i], "params": []}, ("whole", {**group, "params": []}), (*keys, str(i)), rank)
            new = [name for name in group["params"] if name not in groups]
            if not new:
                continue
            alike = next((i for i, known in enumerate(ours) if _options(known) == _options(group)), len(ours))
            if alike == len(ours):
                ours.append({**group, "params": []})
            ours[alike]["params"] = ours[alike]["params"] + new
            groups.update(dict.fromkeys(new, alike))
        return ours

    def _owner(self, keys: Trail) -> int:
        return next((self._owners[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in self._owners), 0)

    def _note(self, keys: Trail, ours: str, said: str, rank: int) -> None:
        values = self.differing.setdefault(keys, [(ours, [self._owner(keys)])])
        for value, ranks in values:
            if value == said:
                ranks.append(rank)
                return
        values.append((said, [rank]))


def ranks_text(ranks: Sequence[int]) -> str:
    """The ranks as text, such as "rank 2" or "ranks 0-3, 7"."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


@dataclass(frozen=True)
class Difference:
    """A difference between ranks at one sequence of keys.

    Attributes:
        keys: the keys that lead to it.
        values: the values, as JSON, each with the ranks that have it; the first one is used. Ranks without a value are
            not named.
    """

    keys: Keys
    values: list[tuple[str, list[int]]]

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks that have a value other than the one that is used."""
        return tuple(sorted(rank for _, ranks in self.values[1:] for rank in ranks))

    def said(self, shown: Callable[[str], str] = lambda value: value) -> str:
        """A text that says which ranks have what."""
        def short(text: str) -> str:
            return text if len(text) <= _MOST_LETTERS else text[:_MOST_LETTERS - 4] + " ..."
        return ", ".join(f"{short(shown(value))} on {ranks_text(ranks)}" for value, ranks in self.values)


class Part:
    """A JSON object that each rank has, united over the ranks by :func:`agree`.

    Args:
        make: returns the object, if it is needed.
        mark: a number for the object's contents; equal on ranks that have the same contents.
        everywhere: whether all ranks need the union; otherwise only rank 0 gets it.

    Attributes:
        united: the union, if ranks had different objects and this rank gets it; otherwise None.
        differing: the first of the differences; each has the keys, and the values that ranks have there.
        n_differing: the number of all differences.
    """

    def __init__(self, make: Callable[[], Any], mark: int, everywhere: bool) -> None:
        self._make = make
        self.mark = mark
        self.everywhere = everywhere
        self.united: Any = None
        self.differing: list[Difference] = []
        self.n_differing = 0

    @property
    def value(self) -> Any:
        """The union, if this rank gets it; otherwise this rank's own object."""
        return self._make() if self.united is None else self.united


def part_of(value: Any, everywhere: bool) -> Part:
    return Part(lambda: value, mark_of(_text(value).encode()), everywhere)


def _compare(group: Group, parts: Sequence[Part], n: int, failed: bool) -> tuple[int, list[bool]]:
    """The first rank that has failed, or _NONE; and which of n parts differ between ranks."""
    words = np.full(1 + 2 * n, _NONE, np.uint64)
    if failed:
        words[0] = group.rank
    for i, part in enumerate(() if failed else parts):
        words[1 + 2 * i:3 + 2 * i] = part.mark, _NONE - part.mark
    group.allreduce(words, MIN)
    return int(words[0]), [int(words[1 + 2 * i]) != _NONE - int(words[2 + 2 * i]) for i in range(n)]


def _unite(group: Group, parts: Sequence[Part]) -> None:
    """Unites the parts that differ. A failure on one rank is raised on all."""
    def attempted(function: Callable[[], Any]) -> bytes:
        try:
            return b"+" + json.dumps(function()).encode()
        except Exception as e:
            return f"-rank {group.rank}: {type(e).__name__}: {e}".encode("utf-8", "replace")

    def received(text: bytes) -> Any:
        if text[:1] != b"+":
            raise Error(text[1:].decode("utf-8", "replace"), status=Status.STATE)
        return json.loads(text[1:])

    first = _broadcast(group, attempted(lambda: [part.value for part in parts]) if group.rank == 0 else b"")

    def mine() -> list[Any]:
        found = [_difference(part.value, base) for part, base in zip(parts, received(first))]
        return [[] if delta is None else [delta] for delta in found]
    told = _gather(group, attempted(mine) if group.rank else b"")
    unions: list[_Union] = []

    def joined() -> list[Any]:
        unions.extend(map(_Union, received(first)))
        for rank, text in enumerate(told[1:], 1):
            for union, found in zip(unions, received(text)):
                for delta in found:
                    union.add(rank, delta)
        return [[union.value if part.everywhere else None, list(union.differing.items())[:_MOST_TOLD],
                 len(union.differing)] for part, union in zip(parts, unions)]
    answers = received(_broadcast(group, attempted(joined) if group.rank == 0 else b""))
    for i, (part, (value, differing, n)) in enumerate(zip(parts, answers)):
        part.united = unions[i].value if unions else value
        part.differing = [Difference(tuple(map(json.loads, keys)), [(text, ranks) for text, ranks in values]) for keys, values in differing]
        part.n_differing = n


def agree(group: Group, parts: Sequence[Part] | None, n: int) -> int | None:
    """Unites parts if ranks have different ones. Collective.

    Args:
        parts: None: this rank has failed.
        n: their number, the same on all ranks.

    Returns:
        The first rank that has failed, if there is one; then nothing is united.

    Raises:
        libdcp.Error: STATE: the union failed on a rank.
    """
    failed, differ = _compare(group, parts or (), n, parts is None)
    if failed != _NONE:
        return failed
    differing = [part for part, differs in zip(parts or (), differ) if differs]
    if differing:
        _unite(group, differing)
    return None
