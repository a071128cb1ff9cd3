"""Reads checkpoints without loading them, and proves states."""

from __future__ import annotations

import ctypes as c
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from . import _arrays, _calls, _capi, _checked, _foreign, _groups, _locks, _options, _paths, _signals, _tree
from ._capi import MAX_DIMS, lib
from ._comm import Comm, attempted, working
from ._options import ProveKeywords
from ._paths import Path
from .errors import Error, Status

if TYPE_CHECKING:
    from typing_extensions import Unpack  # missing from Python 3.10


@dataclass(frozen=True)
class Proof:
    """A state's checksums, which are equal for equal states, whatever the ranks and the layout.

    Attributes:
        id: one number for all tensors' paths, types, shapes and bytes, as 16 hexadecimal digits.
        crc: the CRC-64 of each tensor's bytes, by path.
    """

    id: str
    crc: Mapping[str, int] = field(compare=False)


@dataclass(frozen=True)
class Entry:
    """A tensor of a checkpoint: its dtype as named in the file, for example "F32", and its shape."""

    dtype: str
    shape: tuple[int, ...]


class _Opened:
    """A checkpoint that is open for as long as this object exists; a read in progress keeps it alive. A read drops its
    reference even if it ends with an exception: otherwise, the traceback's frames would keep this object alive."""

    def __init__(self, path: str) -> None:
        self.handle = c.c_void_p()
        self.comm = Comm(alone=True)
        self.loading = _locks.lock()
        lib.checkpoint_open(self.comm.handle, os.fsencode(path), self.handle)

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if is_finalizing():  # modules may have lost their names; the end of the process releases the step
            return
        if getattr(self, "handle", None):
            lib.checkpoint_close(self.handle)
        if hasattr(self, "comm"):
            self.comm.close()


_PART_BYTES = 32 << 20  # in each part of a read; signals are handled between the parts


def parts_of(start: Sequence[int], count: Sequence[int], size: int) -> Iterator[tuple[Sequence[int], Sequence[int]]]:
    """Divides a box into boxes whose dense elements follow one another, each of at most _PART_BYTES if an element
    has ``size`` bytes."""
    cut = next((d for d, n in enumerate(count) if n > 1), None)
    if cut is None or math.prod(count) * size <= _PART_BYTES:
        yield start, count
        return
    n = max(1, _PART_BYTES // (math.prod(count[cut + 1:]) * size))
    for at in range(0, count[cut], n):
        inner = (*count[:cut], min(n, count[cut] - at), *count[cut + 1:])
        yield from parts_of((*start[:cut], start[cut] + at, *start[cut + 1:]), inner, size)


class Checkpoint(Mapping[str, npt.NDArray[Any]]):
    """A step as a mapping from tensors' paths to numpy arrays, which are read and verified when they are accessed.

    Any number of threads can use one checkpoint at once, each as fast as with a checkpoint of its own.

    Args:
        path: a step's folder, or a directory of steps, whose newest step is opened. No writer removes the step until
            the checkpoint is closed.

    Attributes:
        path: the step's folder.
        step: its number.
        layout: "global", or "sharded" in ``files`` files.
        json: its JSON object; its "state" contains what was not a tensor in the state that was saved.

    Two checkpoints are equal only if they are the same object; :meth:`diff` and :meth:`proof` compare contents.

    Tensors of types that numpy lacks (BF16, the 8-bit floats) have the types of ml_dtypes if that is installed;
    otherwise their arrays contain the bits as unsigned integers.
    """

    def __reduce__(self) -> NoReturn:
        raise TypeError("a libdcp.Checkpoint can be neither copied nor pickled: open its path anew")

    def __init__(self, path: Path) -> None:
        text = _paths.given(path, "path")
        self._folder = _paths.here()
        self._opened: _Opened | None = None
        try:
            with _signals.Shield():
                self._opened = _Opened(text)
        except Error as e:
            raise e.saying(_foreign.told(e, text)) from None
        handle = self._opened.handle
        self.path: str = os.fsdecode(lib.checkpoint_path(handle))
        self.step: int = lib.checkpoint_step(handle)
        self.layout: _options.Layout = _options.layout_of(lib.checkpoint_layout(handle))
        self.files: int = lib.checkpoint_files(handle)
        self.stored = _tree.Stored(lib.checkpoint_json(handle))
        self.json: dict[str, Any] = self.stored.members
        self._numbers: dict[str, int] = {}
        self._entries: dict[str, Entry] = {}
        for i in range(lib.checkpoint_tensors(handle)):
            t = lib.checkpoint_tensor(handle, i).contents
            path_text = t.path.decode()
            self._numbers[path_text] = i
            self._entries[path_text] = Entry(_arrays.DTYPES[t.dtype - 1], tuple(t.shape[:t.ndim]))

    @property
    def entries(self) -> Mapping[str, Entry]:
        """Each tensor's dtype and shape; reads nothing."""
        return self._entries

    def dtype(self, name: str) -> str:
        return self._entry(name).dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def _entry(self, name: str) -> Entry:
        found = self._entries.get(name)
        if found is None:
            raise KeyError(self._lacks(name))
        return found

    def _lacks(self, name: str) -> str:
        said = f"{name!r} is no tensor of {self.path}"
        alike = [path for path in self._entries if isinstance(name, str) and path.endswith((f"/{name}", f".{name}"))]
        near = alike or difflib.get_close_matches(str(name), self._entries, 1)
        return f"{said}; did you mean {' or '.join(map(repr, near[:3]))}?" if near else said

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        """Reads nothing."""
        return name in self._entries

    __eq__ = object.__eq__  # not a mapping's, which would read and compare all tensors
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<libdcp.Checkpoint {self.path!r}: {len(self)} tensors>"

    def read(self, name: str, start: tuple[int, ...] | None = None,
             count: tuple[int, ...] | None = None) -> npt.NDArray[Any]:
        """Reads a box of a tensor: ``count`` elements in each dimension, starting at ``start``; by default the whole
        tensor.

        Raises:
            KeyError: there is no such tensor; the message lists similar names.
            TypeError: start or count is not a tuple of integers.
            ValueError: the box is not inside the tensor.
            libdcp.Error: CORRUPT: bytes differ from what was saved.
        """
        given = _checked.checked("read", {"start": start, "count": count}, _checked.BOXES)
        entry = self._entry(name)
        start, count = given["start"] or (0,) * len(entry.shape), given["count"]
        if count is None:
            count = tuple(whole - first for whole, first in zip(entry.shape, start))
        if not len(start) == len(count) == len(entry.shape) or any(
                s < 0 or n < 0 or s + n > whole for s, n, whole in zip(start, count, entry.shape)):
            raise ValueError(f"{name}: {count} elements from {start} on are not within its shape, {entry.shape}")
        array = np.empty(count, _arrays.numpy_dtype(entry.dtype))
        self.read_into(name, start, count, array.ctypes.data)
        return array

    def read_into(self, name: str, start: Sequence[int], count: Sequence[int], address: int) -> None:
        """Reads a box that is inside the tensor into memory, as dense elements."""
        dims, opened, size = c.c_uint64 * MAX_DIMS, self._open(), _arrays.n_bytes(self._entries[name].dtype, ())
        try:
            for first, n in parts_of(start, count, size) if math.prod(count) else ():
                box = _capi.Box(dims(*first), dims(*(n or (1,))))
                lib.checkpoint_read(opened.handle, name.encode(), box, address)
                address += math.prod(n) * size
        finally:
            del opened

    def fill(self, state: Mapping[Any, Any]) -> None:
        """Fills the memory of a state's tensors from the open checkpoint, as :func:`libdcp.load` does."""
        opened = self._open()
        try:
            with opened.comm.work(), opened.loading:
                _calls.load_open(opened.handle, opened.comm, state, {"strict": False})
        finally:
            del opened

    def proof(self) -> Proof:
        """What :func:`libdcp.prove` returns for an equal state, computed from the tables. With layout sharded, tensors
        that are cut along a dimension other than their first are read."""
        opened, word = self._open(), c.c_uint64()
        try:
            crc = {name: self._crc(opened.handle, name, i) for name, i in self._numbers.items()}
            if not lib.checkpoint_state_id(opened.handle, word):
                raise ValueError(f"{self.path} has no state id")
        finally:
            del opened
        return Proof(f"{word.value:016x}", crc)

    def _crc(self, handle: c.c_void_p, name: str, number: int) -> int:
        word = c.c_uint64()
        try:
            lib.checkpoint_crc(handle, number, word)
        except Error as e:
            if e.status != Status.UNSUPPORTED:
                raise
            with working(_groups.Alone()) as comm:
                return next(iter(_proven(comm, {"x": self.read(name)}, {}).crc.values()))
        return word.value

    def diff(self, other: Checkpoint) -> dict[str, str]:
        """The tensors that differ, by path, and how: "only here", "only there", "dtype F32, there BF16", "shape (2, 3),
        there (3, 2)" or "bytes". Compares checksums; see :meth:`proof` for what is read."""
        ours, theirs = self.proof().crc, other.proof().crc

        def said(name: str) -> str:
            if name not in theirs:
                return "only here"
            if name not in ours:
                return "only there"
            a, b = self._entries[name], other._entries[name]
            if a.dtype != b.dtype:
                return f"dtype {a.dtype}, there {b.dtype}"
            if a.shape != b.shape:
                return f"shape {a.shape}, there {b.shape}"
            return "bytes" if ours[name] != theirs[name] else ""
        found = {name: said(name) for name in sorted({*ours, *theirs})}
        return {name: how for name, how in found.items() if how}

    def verify(self, progress: _options.Progress | None = None) -> list[str]:
        """Reads and checks every byte of what is at the path now, even if another step was saved there in the meantime.

        Returns a line for each problem that was found; an empty list if the step is intact."""
        _checked.checked("verify", {"progress": progress}, _checked.VERIFIES)
        damage: list[str] = []
        failures = _options.Failures()
        options = _capi.VerifyOptions(
            on_damage=_capi.LINE(failures.guard(lambda what: damage.append(what.decode("utf-8", "replace")))))
        failures.follow(options, progress)
        failures.follow_cancel(options)
        with _signals.Shield():
            try:
                lib.verify(os.fsencode(_paths.anchored(self.path, self._folder)), options)
            except Error:
                if not damage or failures.first:
                    raise
            finally:
                failures.raise_first()
        return damage

    def _open(self) -> _Opened:
        opened = self._opened
        if opened is None:
            raise ValueError("the checkpoint is closed")
        return opened

    def close(self) -> None:
        """Reads in progress on other threads are completed; the files are closed after the last such read."""
        with _signals.Shield():
            self._opened = None

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def prove(state: Mapping[Any, Any], *, group: Any = None, **options: Unpack[ProveKeywords]) -> Proof:
    """Computes a state's checksums without saving it; compare them with :meth:`Checkpoint.proof`. Collective.

    Args:
        state, group, replicas: as in :func:`libdcp.save`.
    """
    with working(group) as comm:
        return _proven(comm, state, options)


def _proven(comm: Comm, state: Mapping[Any, Any], options: ProveKeywords) -> Proof:
    proof = c.c_void_p()
    try:
        made = attempted(comm, lambda: _options.prove_options(options))
        with _calls.Prepared(comm, state) as prepared:
            prepared.refresh()
            prepared.unite()
            prepared.failures.follow_cancel(made)
            prepared.call(lib.prove, comm.handle, prepared.handle, made, proof)
        crc = {lib.proof_tensor(proof, i).contents.path.decode(): lib.proof_crc(proof, i)
               for i in range(lib.proof_tensors(proof))}
        return Proof(f"{lib.proof_id(proof):016x}", crc)
    finally:
        lib.proof_destroy(proof)
