"""What ranks have besides tensors, for a checkpoint's JSON: the union over all ranks, and the report of differences."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from . import _names, _tree, _union
from ._decoding import Decoder
from ._words import NOTHING
from .errors import Error, Status

log = logging.getLogger("libdcp")

_JSON, _REPLICAS = "json", "replicas"


def part_of(text: bytes, replicas: str, members: Callable[[], Any]) -> _union.Part:
    """A rank's JSON, and the rule for differences.

    Args:
        members: returns the JSON's members, in the form that can be united.
    """
    return _union.Part(lambda: {_JSON: members(), _REPLICAS: replicas}, _union.mark_of(text + replicas.encode()),
                       everywhere=False)


def _name(keys: _union.Keys) -> str:
    if keys[:2] == (_JSON, _names.OBJECTS):
        return str(_names.Keys(keys[2:]))
    return "".join([str(keys[0]), *(f"[{key!r}]" for key in keys[1:])])


def _said(part: _union.Part) -> str:
    more = part.n_differing - len(part.differing)
    return "; ".join([f"{_name(found.keys)} is {found.said()}" for found in part.differing]
                     + [f"{more} more such values"] * (more > 0))


def refuse_other_tensors(part: _union.Part) -> None:
    """Called after the exchange of tensors' types and shapes.

    Raises:
        libdcp.Error: MISMATCH: ranks have different types or shapes for one path.
    """
    if part.differing:
        first = part.differing[0]
        raise Error(f"tensor {first.keys[0]} is {first.said(json.loads)}", status=Status.MISMATCH, tensor=first.keys[0],
                    ranks=first.ranks)


def settle(part: _union.Part, replicas: str, rank: int) -> None:
    """Called after the exchange of the JSON: reports differences, according to the rule.

    Raises:
        libdcp.Error: MISMATCH: the rule is "check", or the rule itself differs.
    """
    if not part.differing:
        return
    first = part.differing[0]
    if replicas == "check" or any(found.keys == (_REPLICAS,) for found in part.differing):
        raise Error(f"{_said(part)}; libdcp.PerRank keeps what each rank has", status=Status.MISMATCH, ranks=first.ranks)
    if replicas == "warn" and rank == 0:
        log.warning("%s: the lowest rank's is saved; libdcp.PerRank keeps what each rank has", _said(part))


def text_of(part: _union.Part, paths: Iterable[str]) -> bytes:
    """The union as the checkpoint's JSON, on rank 0.

    Args:
        paths: the paths of all ranks' tensors.
    """
    members, names = part.united[_JSON], list(paths)
    words = members.pop(_names.OBJECTS, NOTHING)
    kept = words if words is NOTHING else _without_filled(words, (), names)
    text = _tree.joined(_tree.united(kept, names), members).encode()
    _refuse_conflicts(_tree.Stored(text), names)
    return text


def _refuse_conflicts(stored: _tree.Stored, paths: list[str]) -> None:
    """Raises:
        libdcp.Error: MISMATCH: what is a tensor on some ranks is something else on others, so no state has both.
    """
    words = stored.leaves(stored.words, Decoder(stored.is_tagged)) if stored.words is not None else ()
    taken = {keys for keys, _ in words}  # by what is not a mapping
    tensors = {stored.keys_of(path): path for path in paths}
    within = {keys[:n] for keys in (*taken, *tensors) for n in range(1, len(keys))}
    for keys, path in tensors.items():
        inside = any(keys[:n] in taken for n in range(1, len(keys))) and not stored.has_place(path)
        if keys in taken or keys in within or inside:
            raise Error(f"{_names.Keys(keys)} is a tensor on some ranks and something else on others; give it another name "
                        "there, or have libdcp.PerRank keep what each rank has", status=Status.MISMATCH, tensor=path)


def _without_filled(word: Any, keys: tuple[Any, ...], paths: list[str]) -> Any:
    """The word without those mappings that are empty on some ranks, and contain only tensors on others."""
    pairs = _union.pairs_of(word)
    if pairs is None:
        return word
    if not pairs and keys:
        return NOTHING if any(_names.is_below(path, keys) for path in paths) else word
    made = [(key, _without_filled(inner, (*keys, key), paths)) for key, inner in pairs]
    kept = [(key, inner) for key, inner in made if inner is not NOTHING]
    if not kept and made:
        return NOTHING
    return word if all(a[1] is b[1] for a, b in zip(made, pairs)) else _union.like(word, kept)
