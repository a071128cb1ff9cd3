"""The functions that the library requires of a group of processes, for torch.distributed and for mpi4py.

Buffers are numpy arrays over the library's memory.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

MAX, MIN, SUM, XOR = range(4)
_REDUCE: tuple[Any, ...] = (np.maximum, np.minimum, np.add, np.bitwise_xor)

# gloo's all-reduce is a ring with twice as many steps as ranks, and in each step a rank waits for a neighbour to be
# scheduled. Up to this many ranks and bytes, a reduction on one rank and a broadcast take a fifth of the time.
FEW_RANKS = 32
FEW_BYTES = 65536


class Group(Protocol):
    """The collectives of ``dcp/comm.h``; each raises an exception if it fails."""

    rank: int
    size: int
    threads: bool

    def broadcast(self, data: Bytes, root: int) -> None: ...
    def allreduce(self, words: Words, op: int) -> None: ...
    def gather(self, send: Bytes, receive: Bytes | None, root: int) -> None: ...
    def alltoall(self, send: Bytes, sizes: list[int], receive: Bytes, receive_sizes: list[int]) -> None: ...
    def barrier(self) -> None: ...
    def exchange(self, sends: Sequence[tuple[int, Bytes]], receives: Sequence[tuple[int, Bytes]]) -> None: ...
    def duplicate(self) -> Group: ...
    def close(self) -> None: ...


class Alone:
    """This process only, whatever groups exist. It has no collectives."""

    rank = 0
    size = 1

    def close(self) -> None:
        """Does nothing."""


def _connection() -> Any:
    """A separate connection to torch's store. While one thread waits for a peer's address, other threads cannot use the
    same connection. If threads that make groups shared a connection, they could thus wait for each other in a cycle of
    ranks."""
    dist: Any = sys.modules["torch.distributed"]
    store = dist.distributed_c10d._get_default_store()
    try:
        return store.clone()
    except getattr(dist, "DistError", ()):
        raise
    except (AttributeError, NotImplementedError, RuntimeError):  # an older torch, or a store of the caller's own
        return store


class TorchGroup:
    """Uses its own gloo groups of some ranks of torch.distributed's default group, whatever that group's backend is.

    They are not in torch's list of groups. new_group names groups by that list, so it would wait forever if ranks have
    been in different numbers of groups; and it must be called by all ranks, or later calls would wait forever.
    """

    threads = True

    def __init__(self, ranks: Sequence[int], timeout: timedelta | None = None, name: str = "") -> None:
        """Makes the group.

        Args:
            timeout: how long an operation waits for another rank; None: as long as in the default group.
            name: the same on all ranks. The ranks must make their groups of one name in the same order, but threads may
                make groups of different names at the same time.
        """
        self._torch: Any = sys.modules["torch"]
        self._dist: Any = sys.modules["torch.distributed"]
        self._ranks = list(ranks)
        self._timeout = timeout or _timeout_of(self._dist.group.WORLD)
        self.size = len(self._ranks)
        self.rank = self._ranks.index(self._dist.get_rank())
        self._name = self._count("libdcp/" + hashlib.blake2b(repr((name, self._ranks)).encode(), digest_size=16).hexdigest())
        self._store = _connection()
        self._group, self._pairs = self._make("group"), self._make("pairs")

    def _count(self, name: str) -> str:
        """Returns a new name, by adding how often this rank has passed the given one, as counted in torch's store."""
        count = self._dist.distributed_c10d._get_default_store().add(f"{name}/made/{self.rank}", 1)
        return f"{name}/{count}"

    def _make(self, kind: str) -> Any:
        """For each connection, gloo waits five times the timeout, and some parts of gloo keep the timeout with which
        they were made, so the timeout cannot be shortened during that time."""
        prefix = self._dist.PrefixStore(f"{self._name}/{kind}", self._store)
        return self._dist.ProcessGroupGloo(prefix, self.rank, self.size, self._timeout)

    def _tensor(self, array: npt.NDArray[Any]) -> Any:
        return self._torch.from_numpy(array)

    def broadcast(self, data: Bytes, root: int) -> None:
        self._group.broadcast(self._tensor(data), root).wait()

    def allreduce(self, words: Words, op: int) -> None:
        if self.size <= FEW_RANKS and words.nbytes <= FEW_BYTES:
            rows = np.empty((self.size, len(words)), np.uint64) if self.rank == 0 else None
            self.gather(words.view(np.uint8), rows if rows is None else rows.reshape(-1).view(np.uint8), 0)
            if rows is not None:
                _REDUCE[op].reduce(rows, out=words)
            self.broadcast(words.view(np.uint8), 0)
            return
        ops = self._dist.ReduceOp
        signed = words.view(np.int64)
        if op in (MAX, MIN):
            words ^= np.uint64(1 << 63)  # signed words then have the order of unsigned ones
        self._group.allreduce([self._tensor(signed)], (ops.MAX, ops.MIN, ops.SUM, ops.BXOR)[op]).wait()
        if op in (MAX, MIN):
            words ^= np.uint64(1 << 63)

    def gather(self, send: Bytes, receive: Bytes | None, root: int) -> None:
        parts = []
        if receive is not None:
            parts = [list(self._tensor(receive).view(self.size, len(send)).unbind())]
        options = self._dist.GatherOptions()
        options.rootRank = root
        self._group.gather(parts, [self._tensor(send)], options).wait()

    def alltoall(self, send: Bytes, sizes: list[int], receive: Bytes, receive_sizes: list[int]) -> None:
        self._group.alltoall_base(self._tensor(receive), self._tensor(send), receive_sizes, sizes).wait()

    def barrier(self) -> None:
        self.allreduce(np.zeros(1, np.uint64), SUM)

    def exchange(self, sends: Sequence[tuple[int, Bytes]], receives: Sequence[tuple[int, Bytes]]) -> None:
        begun = [self._pairs.recv([self._tensor(data)], peer, 0) for peer, data in receives]
        begun += [self._pairs.send([self._tensor(data)], peer, 0) for peer, data in sends]
        for request in begun:
            request.wait()

    def duplicate(self) -> TorchGroup:
        return TorchGroup(self._ranks, self._timeout, self._name)

    def close(self) -> None:
        self._group = self._pairs = self._store = None


class MpiGroup:
    """Uses a communicator of mpi4py."""

    def __init__(self, comm: Any) -> None:
        self._mpi: Any = sys.modules["mpi4py.MPI"]
        self._comm: Any = comm.Dup()
        self._pairs: Any = comm.Dup()
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.threads = bool(self._mpi.Query_thread() == self._mpi.THREAD_MULTIPLE)

    def broadcast(self, data: Bytes, root: int) -> None:
        self._comm.Bcast([data, self._mpi.BYTE], root)

    def allreduce(self, words: Words, op: int) -> None:
        mpi = self._mpi
        self._comm.Allreduce(mpi.IN_PLACE, [words, mpi.UINT64_T], (mpi.MAX, mpi.MIN, mpi.SUM, mpi.BXOR)[op])

    def gather(self, send: Bytes, receive: Bytes | None, root: int) -> None:
        byte = self._mpi.BYTE
        self._comm.Gather([send, byte], None if receive is None else [receive, byte], root)

    def alltoall(self, send: Bytes, sizes: list[int], receive: Bytes, receive_sizes: list[int]) -> None:
        byte = self._mpi.BYTE
        self._comm.Alltoallv([send, sizes, _starts(sizes), byte], [receive, receive_sizes, _starts(receive_sizes), byte])

    def barrier(self) -> None:
        self._comm.Barrier()

    def exchange(self, sends: Sequence[tuple[int, Bytes]], receives: Sequence[tuple[int, Bytes]]) -> None:
        byte = self._mpi.BYTE
        begun = [self._pairs.Irecv([data, byte], peer) for peer, data in receives]
        begun += [self._pairs.Isend([data, byte], peer) for peer, data in sends]
        self._mpi.Request.Waitall(begun)

    def duplicate(self) -> MpiGroup:
        return MpiGroup(self._comm)

    def close(self) -> None:
        """Does not free the duplicates: freeing them is collective, and other ranks may have ended."""


def _starts(sizes: list[int]) -> list[int]:
    starts = [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
    return starts


def _timeout_of(group: Any) -> timedelta:
    """How long operations of a torch group wait for a rank: on CPUs, if it has a backend for them."""
    for device in sorted(group._device_types, key=lambda device: bool(device.type != "cpu")):
        timeout = getattr(getattr(group._get_backend(device), "options", None), "_timeout", None)
        if isinstance(timeout, timedelta):
            return timeout
    return timedelta(minutes=30)  # torch's default


def _torch_group(group: Any) -> TorchGroup | Alone | None:
    """Our group for a torch group, or for the default one if torch.distributed is initialized; for any other value,
    None. Makes no groups for a single rank."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return None
    if group is None:
        group = dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        return None
    ranks = dist.get_process_group_ranks(group)
    return TorchGroup(ranks, _timeout_of(group), group.group_name) if len(ranks) > 1 else Alone()


def find(group: Any) -> Group | None:
    """The group that ``group`` means, as documented at :class:`libdcp.Store`; None: this process only."""
    if isinstance(group, Alone):
        return None
    if isinstance(group, (TorchGroup, MpiGroup)):
        return group
    found = _torch_group(group)
    if isinstance(found, Alone):
        return None
    if found is not None or group is None:
        return found
    if type(group).__module__.split(".")[0] == "mpi4py":
        return MpiGroup(group)
    raise TypeError(f"group: {type(group).__name__} is neither a torch.distributed group nor an mpi4py communicator")
