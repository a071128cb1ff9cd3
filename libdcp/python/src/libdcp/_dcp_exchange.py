"""What ranks of torch.distributed.checkpoint tell each other before a collective call of the library.

DCP lets each rank save and load other keys; the library wants all ranks to name the same tensors. One all-reduce finds
out whether they do, and whether all of them have got so far; only what differs is sent, by way of rank 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np

from ._groups import MIN, SUM, Alone, TorchGroup
from .errors import Error, Status

Ranks = TorchGroup | Alone
_NONE = 2**64 - 1


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _gather(group: TorchGroup, text: bytes) -> list[bytes]:
    """All ranks' texts on rank 0, elsewhere none."""
    sizes = np.zeros(group.size, np.uint64)
    sizes[group.rank] = len(text)
    group.allreduce(sizes, SUM)
    expected = [int(n) for n in sizes] if group.rank == 0 else [0] * group.size
    received = np.empty(sum(expected), np.uint8)
    group.alltoall(np.frombuffer(text, np.uint8).copy(), [len(text), *[0] * (group.size - 1)], received, expected)
    ends = np.cumsum(expected)
    return [received[end - n:end].tobytes() for n, end in zip(expected, ends)] if group.rank == 0 else []


def _broadcast(group: TorchGroup, text: bytes) -> bytes:
    size = np.array([len(text)], np.uint64)
    group.broadcast(size.view(np.uint8), 0)
    data = np.frombuffer(text, np.uint8).copy() if group.rank == 0 else np.empty(int(size[0]), np.uint8)
    group.broadcast(data, 0)
    return data.tobytes()


class Table:
    """Rows by key, united over the ranks by :func:`attempt`; where they have other rows of a key, the lowest's counts.

    Args:
        rows: JSON values by key.
        everywhere: whether all ranks need it; else rank 0 alone gets the others' rows.
    """

    def __init__(self, rows: dict[str, Any], everywhere: bool) -> None:
        self.rows = rows
        self._everywhere = everywhere
        self._text = b""

    def encode(self) -> int:
        self._text = json.dumps(self.rows, sort_keys=True).encode()
        return _digest(self._text)

    def unite(self, group: TorchGroup) -> None:
        united: dict[str, Any] = {}
        for text in _gather(group, self._text):
            united = {**json.loads(text), **united}
        if group.rank == 0:
            self.rows = united
        if self._everywhere:
            self.rows = json.loads(_broadcast(group, json.dumps(united).encode()))


def attempt(group: Ranks, function: Callable[[], list[Table]]) -> list[Table]:
    """What the function returns, its tables united over the ranks; collective.

    Raises:
        Exception: what it has raised on this rank.
        libdcp.Error: STATE, where it has raised on others only.
    """
    failure, tables, digests = None, [], []
    try:
        tables = function()
        digests = [table.encode() for table in tables]
    except Exception as e:
        failure = e
    if isinstance(group, TorchGroup):
        differ = _compare(group, digests, failure)
        for table, differs in zip(tables, differ):
            if differs:
                table.unite(group)
    if failure is not None:
        raise failure
    return tables


def _compare(group: TorchGroup, digests: list[int], failure: Exception | None) -> list[bool]:
    """Whether ranks have other digests; of at most two tables."""
    words = np.zeros(5, np.uint64)
    words[0] = _NONE if failure is None else group.rank
    for i, digest in enumerate(digests):
        words[1 + 2 * i:3 + 2 * i] = digest, _NONE - digest
    group.allreduce(words, MIN)
    if failure is not None:
        raise failure
    if words[0] != _NONE:
        raise Error(f"rank {words[0]} has failed before the others could begin; its own error says why",
                    status=Status.STATE, rank=int(words[0]))
    return [int(words[1 + 2 * i]) != _NONE - int(words[2 + 2 * i]) for i in range(len(digests))]


def decide(group: Ranks, function: Callable[[], str]) -> str:
    """What it returns on rank 0, where alone it is called, on all ranks; collective.

    Raises:
        Exception: what it has raised on rank 0, there.
        libdcp.Error: STATE, on the others.
    """
    if not isinstance(group, TorchGroup):
        return function()
    failure, answer = None, b""
    if group.rank == 0:
        try:
            answer = b"+" + function().encode()
        except Exception as e:
            failure, answer = e, f"-rank 0 has failed: {e}".encode()
    answer = _broadcast(group, answer)
    if failure is not None:
        raise failure
    if answer[:1] == b"-":
        raise Error(answer[1:].decode(), status=Status.STATE, rank=0)
    return answer[1:].decode()
