"""Reads files that torch.save wrote, and the parts of torch.distributed.checkpoint's ``.distcp`` files, without torch.

Each is a zip: ``data.pkl``, a pickle that describes the elements, and ``data/0`` and so on, the elements, which
are stored uncompressed.
"""

from __future__ import annotations

import io
import mmap
import os
import struct
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _paths, _pickles
from ._arrays import TORCH, numpy_dtype
from ._pickles import Call, Global, Persistent, PickleError
from .errors import Error, Status

MAX_PICKLE = 16 << 20  # the JSON of a checkpoint has no room for more
_MAX_READ = 16 << 20  # for a zip's tables
_MAX_OPEN = 64
_LOCAL_HEADER = struct.Struct("<4s22xHH")

_STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
             "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16",
             "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool", "ComplexFloatStorage": "complex64",
             "ComplexDoubleStorage": "complex128"}
_UNTYPED = (Global("torch.storage", "UntypedStorage"), Global("torch", "UntypedStorage"))
_REBUILD_V2 = Global("torch._utils", "_rebuild_tensor_v2")
_REBUILD_V3 = Global("torch._utils", "_rebuild_tensor_v3")
_REBUILD = (Global("torch._utils", "_rebuild_tensor"), _REBUILD_V2, _REBUILD_V3)
ORDERED_DICT = ("collections", "OrderedDict")
_NAMES = frozenset({(g.module, g.name) for g in (_REBUILD_V2, _REBUILD_V3, *_UNTYPED)}
                   | {("torch", name) for name in (*_STORAGES, *TORCH)} | {ORDERED_DICT})


@dataclass(frozen=True)
class Place:
    """A part of a file of the checkpoint."""

    file: str
    offset: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.file}, bytes {self.offset} to {self.offset + self.bytes}"


def refuse(folder: str, file: str, what: str, tensor: str = "") -> Error:
    """An exception for an error in a file of the checkpoint."""
    path = os.path.join(folder, file)
    return Error(f"{path}: {what}", status=Status.CORRUPT, path=path, tensor=tensor)


class Files:
    """The files of a folder, opened on use; reads nothing outside of the folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._open: OrderedDict[str, tuple[int, int]] = OrderedDict()  # descriptor and length

    def get(self, name: str) -> tuple[int, int]:
        """A file's descriptor, valid until the next call, and its length."""
        found = self._open.pop(name, None) or self._add(name)
        self._open[name] = found
        return found

    def _add(self, name: str) -> tuple[int, int]:
        if os.path.basename(name) != name or name in ("", ".", "..") or "\0" in name:
            raise Error(f"{self.folder}: its metadata names a file {name!r}, which is not in that folder",
                        status=Status.CORRUPT, path=self.folder)
        if len(self._open) == _MAX_OPEN:
            os.close(self._open.popitem(last=False)[1][0])
        try:
            fd = _paths.open_regular(os.path.join(self.folder, name))
        except OSError as e:
            raise refuse(self.folder, name, f"cannot be opened: {e.strerror}") from None
        return fd, os.fstat(fd).st_size

    def read_into(self, name: str, offset: int, into: memoryview) -> None:
        """Fills memory from a file."""
        fd, _ = self.get(name)
        done = 0
        while done < len(into):
            try:
                n = os.preadv(fd, [into[done:]], offset + done)
            except OSError as e:
                raise refuse(self.folder, name, f"cannot be read at byte {offset + done}: {e.strerror}") from None
            if n == 0:
                raise refuse(self.folder, name, f"ends at byte {offset + done}")
            done += n

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1][0])


class _View(io.RawIOBase):
    """A part of a file as a file object."""

    def __init__(self, files: Files, place: Place) -> None:
        self._files = files
        self._place = place
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._place.bytes}[whence]
        if at < 0:
            raise ValueError(f"it leads to byte {at}")
        self._at = at
        return at

    def read(self, n: int | None = -1) -> bytes:
        left = max(self._place.bytes - self._at, 0)
        n = left if n is None or n < 0 else min(n, left)
        if n > _MAX_READ:
            raise ValueError(f"its tables have {n} bytes, too many")
        data = bytearray(n)
        self._files.read_into(self._place.file, self._place.offset + self._at, memoryview(data))
        self._at += n
        return bytes(data)


class Archive:
    """A zip that torch.save wrote.

    Args:
        place: a part of a file, or, for a whole file, its name.

    Raises:
        libdcp.Error: it is something else, or damaged.
    """

    def __init__(self, files: Files, place: Place | str) -> None:
        self._files = files
        self._is_whole = isinstance(place, str)
        self._place = place = Place(place, 0, files.get(place)[1]) if isinstance(place, str) else place
        _, length = files.get(place.file)
        if place.offset + place.bytes > length:
            raise refuse(files.folder, place.file, f"has {length} bytes, but the metadata refers to {place}")
        self._view = _View(files, place)
        try:
            found = zipfile.ZipFile(self._view)
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError, OverflowError) as e:
            raise self.refused(f"no zip: {e}") from None
        self._members = {member.filename: member for member in found.infolist()}
        roots = [name[:-len("data.pkl")] for name in self._members if name.endswith("/data.pkl")]
        if len(self._members) != len(found.infolist()) or len(roots) != 1:
            raise self.refused("a zip file that torch.save did not write: it has no data.pkl, or several members have "
                               "one name")
        self._root = roots[0]
        if self._members.get(self._root + "byteorder") and self.bytes_of("byteorder", 16) != b"little":
            raise self.refused("its elements are not little-endian")

    @property
    def length(self) -> int:
        """The zip's size in bytes."""
        return self._place.bytes

    def refused(self, what: str) -> Error:
        at = f"at bytes {self._place.offset} to {self._place.offset + self._place.bytes}: "
        return refuse(self._files.folder, self._place.file, what if self._is_whole else at + what)

    def place_of(self, name: str) -> Place:
        """The position of a member's bytes in the file."""
        member = self._members.get(self._root + name)
        if member is None:
            raise self.refused(f"the zip has no {name}")
        is_stored = member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        if not is_stored or member.flag_bits & 1:
            raise self.refused(f"{name} is compressed or encrypted in the zip, which torch.save never does")
        try:
            self._view.seek(member.header_offset)
            magic, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(self._view.read(_LOCAL_HEADER.size))
        except (struct.error, ValueError):
            magic, name_bytes, extra_bytes = b"", 0, 0
        begin = member.header_offset + _LOCAL_HEADER.size + name_bytes + extra_bytes
        if magic != b"PK\3\4" or begin + member.file_size > self._place.bytes:
            raise self.refused(f"{name} is not where the zip's table says")
        return Place(self._place.file, self._place.offset + begin, member.file_size)

    def bytes_of(self, name: str, limit: int) -> bytes:
        place = self.place_of(name)
        if place.bytes > limit:
            raise self.refused(f"{name} has {place.bytes} bytes; at most {limit} are read")
        data = bytearray(place.bytes)
        self._files.read_into(place.file, place.offset, memoryview(data))
        return bytes(data)

    def value(self, names: _pickles.Names | None, limit: int = MAX_PICKLE) -> Any:
        """What the pickle represents: see :func:`libdcp._pickles.read`."""
        try:
            return _pickles.read(self.bytes_of("data.pkl", limit), names)
        except PickleError as e:
            raise self.refused(f"data.pkl: {e}") from None

    def tensor(self, made: Call) -> StoredTensor:
        """The position and layout of a dense tensor's elements.

        Raises:
            libdcp.Error: the call makes something else, or the tensor does not fit into its storage.
        """
        if made.of not in _REBUILD or len(made.arguments) < (7 if made.of == _REBUILD_V3 else 4):
            raise self.refused(f"{_pickles.describe(made)} in the place of a dense tensor")
        reference, first, shape, strides = made.arguments[:4]
        dtype = _dtype_of(made.arguments[6]) if made.of == _REBUILD_V3 else None
        storage = _storage(reference, dtype)
        if storage is None or not _is_sizes((first,)) or not _is_sizes(shape) or not _is_sizes(strides, len(shape)):
            raise self.refused("a tensor whose storage, shape or strides make no sense")
        dtype, member, _ = storage
        data = self.place_of(member)
        item = _item(dtype)
        end = 0 if 0 in shape else first + sum((n - 1) * stride for n, stride in zip(shape, strides)) + 1
        if end * item > data.bytes:
            raise self.refused(f"a tensor of shape {shape} needs {end * item} bytes, but {member} has {data.bytes}")
        begin = data.offset if 0 in shape else data.offset + first * item
        return StoredTensor(dtype, shape, strides, Place(data.file, begin, data.offset + data.bytes - begin))


def _item(dtype: str) -> int:
    return numpy_dtype(TORCH[dtype]).itemsize


def _is_sizes(value: Any, n: int | None = None) -> bool:
    return (isinstance(value, tuple) and all(type(x) is int and 0 <= x < 2**62 for x in value)
            and n in (None, len(value)))


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as stored in a file: element (i, j, ...) is ``i * strides[0] + j * strides[1] + ...`` elements after the
    first one, which is at ``place``."""

    dtype: str  # torch's name
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    place: Place

    @property
    def item(self) -> int:
        return _item(self.dtype)

    def _is_dense(self) -> bool:
        length = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides)):
            if n != 1 and stride != length:
                return False
            length *= n
        return True

    def read_into(self, files: Files, offset: int, into: memoryview) -> None:
        """Fills memory with bytes of the elements in row-major order, starting at byte ``offset``."""
        if self._is_dense():
            files.read_into(self.place.file, self.place.offset + offset, into)
            return
        first, end = offset // self.item, -(-(offset + len(into)) // self.item)
        fd, length = files.get(self.place.file)
        if os.fstat(fd).st_size < length:
            raise refuse(files.folder, self.place.file, "has become shorter")
        with mmap.mmap(fd, length, access=mmap.ACCESS_READ) as mapped:  # briefly, since mapped pages count as memory
            elements: Any = np.ndarray(self.shape, f"V{self.item}", mapped, self.place.offset,
                                       tuple(stride * self.item for stride in self.strides))
            data = elements.flat[first:end].tobytes()
            del elements
        into[:] = data[offset - first * self.item:][:len(into)]


def _storage(value: Any, dtype: str | None) -> tuple[str, str, int] | None:
    """For a reference to a storage: its elements' type, the zip's member and the number of elements."""
    words = value.id if isinstance(value, Persistent) else None
    if not isinstance(words, tuple) or len(words) != 5 or words[0] != "storage" or not isinstance(words[1], Global):
        return None
    found = dtype if words[1] in _UNTYPED else _STORAGES.get(words[1].name)
    if found is None or not isinstance(words[2], str) or type(words[4]) is not int or words[4] < 0:
        return None
    return found, "data/" + words[2], words[4]


def _dtype_of(value: Any) -> str | None:
    return value.name if isinstance(value, Global) and value.module == "torch" and value.name in TORCH else None


def read_tensor(files: Files, place: Place) -> StoredTensor:
    """The position and layout of a saved tensor's elements.

    Raises:
        libdcp.Error: the part holds something else, or the tensor does not fit into it.
    """
    archive = Archive(files, place)
    made = archive.value(_NAMES)
    if not isinstance(made, Call):
        raise archive.refused(f"{_pickles.describe(made)} in the place of a dense tensor")
    return archive.tensor(made)
