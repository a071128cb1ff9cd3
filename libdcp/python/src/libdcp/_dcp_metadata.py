"""What a torch.distributed.checkpoint directory contains according to its ``.metadata``, a pickle, which is read
without torch and not executed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

from . import _pickles
from ._arrays import TORCH
from ._capi import MAX_DIMS
from ._dcp_archive import ORDERED_DICT, Files, Place, refuse
from ._pickles import Call, Global, PickleError
from .errors import Error, Status

FILE = ".metadata"
ACCELERATE = re.compile(r"(pytorch_model_fsdp|optimizer)_\d+")  # accelerate's directories, inside that of a step
_MAX_BYTES = 1 << 30
_CHECKPOINT = "torch.distributed.checkpoint.metadata"
_NAMES = frozenset({
    *((_CHECKPOINT, name) for name in ("Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "TensorProperties",
                                       "ChunkStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")),
    ("torch.distributed._shard.sharded_tensor.metadata", "TensorProperties"),
    ("torch.distributed._shard.sharded_tensor.metadata", "MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"), ("torch", "Size"),
    ("torch.serialization", "_get_layout"), ORDERED_DICT,
    *((module, name) for module in ("pathlib", "pathlib._local")
      for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")),
    *(("torch", name) for name in TORCH),
})

Keys = tuple[str | int, ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Chunk:
    """A box of a tensor, and its place in the files."""

    start: Sizes
    count: Sizes
    place: Place


@dataclass(frozen=True)
class Tensor:
    dtype: str  # torch's name
    shape: Sizes
    chunks: list[Chunk]


@dataclass(frozen=True)
class Contents:
    """Tensors and objects by their flat names, such as "model.layers.0.weight", and the keys that each name consists
    of, if they are known."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    objects: dict[str, Place] = field(default_factory=dict)
    keys: dict[str, Keys] = field(default_factory=dict)


class _Wrong(ValueError):
    pass


def _members(value: Any, *names: str) -> Mapping[Any, Any]:
    if not isinstance(value, Call) or value.of.name not in names:
        raise _Wrong(f"{_pickles.describe(value)} in the place of a {names[0]}")
    return value.members()


def _mapping(value: Any, what: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict):
        raise _Wrong(f"{what} is {_pickles.describe(value)}, not a mapping")
    return value


def _sizes(value: Any, what: str) -> Sizes:
    """The sizes in a torch.Size."""
    if isinstance(value, Call) and value.of == Global("torch", "Size") and len(value.arguments) == 1:
        value = value.arguments[0]
    if not isinstance(value, (tuple, list)) or len(value) > MAX_DIMS or any(
            type(n) is not int or not 0 <= n < 2**62 for n in value):
        raise _Wrong(f"{what} is no list of at most {MAX_DIMS} sizes")
    return tuple(value)


def _dtype(properties: Any) -> str:
    _members(properties, "TensorProperties")
    state = properties.state
    dtype = state[0] if isinstance(state, tuple) and state else properties.members().get("dtype")
    if not isinstance(dtype, Global) or dtype.module != "torch" or dtype.name not in TORCH:
        raise _Wrong(f"its type is {_pickles.describe(dtype)}, which a checkpoint cannot represent")
    return dtype.name


def _place(info: Any) -> Place:
    members = _members(info, "_StorageInfo")
    if members.get("transform_descriptors"):
        raise _Wrong("it was written through an extension (compressed, for example); save it without one")
    file, offset, length = (members.get(name) for name in ("relative_path", "offset", "length"))
    if not isinstance(file, str) or any(type(n) is not int or not 0 <= n < 2**62 for n in (offset, length)):
        raise _Wrong("its place in the files makes no sense")
    assert isinstance(offset, int) and isinstance(length, int)
    return Place(file, offset, length)


Index = tuple[str, Sizes | None]


def _places(storage_data: Any) -> dict[Index, Any]:
    found: dict[Index, Any] = {}
    for key, info in _mapping(storage_data, "storage_data").items():
        index = _members(key, "MetadataIndex")
        fqn, offset = index.get("fqn"), index.get("offset")
        if not isinstance(fqn, str):
            raise _Wrong("storage_data has a name that is no text")
        found[fqn, None if offset is None else _sizes(offset, "an offset in storage_data")] = info
    return found


def _corners(start: Sizes, count: Sizes) -> Iterator[tuple[Sizes, int]]:
    for ends in product((0, 1), repeat=len(start)):
        yield tuple(s + n * end for s, n, end in zip(start, count, ends)), -1 if sum(ends) % 2 else 1


def _check_tiling(shape: Sizes, chunks: list[Chunk]) -> None:
    """Checks that each element of the tensor is in exactly one chunk. Each corner of a box is given a sign,
    opposite to that of its neighbours. Boxes tile another box if and only if, at each point, their corners' signs add
    up to the sign of that box's corner there, or to 0, since these sums determine how many boxes contain each element.
    At the first point where the sum differs, there are too many or too few boxes."""
    signs: dict[Sizes, int] = {}
    boxes = [(c.start, c.count) for c in chunks]
    for start, count, weight in [*((s, n, 1) for s, n in boxes), ((0,) * len(shape), shape, -1)]:
        if 0 not in count:
            for corner, sign in _corners(start, count):
                signs[corner] = signs.get(corner, 0) + weight * sign
    wrong = [corner for corner, sign in signs.items() if sign]
    if wrong:
        at = min(wrong)
        raise _Wrong(f"its chunks {'overlap' if signs[at] > 0 else 'leave a gap'} at {at}")


def _tensor(fqn: str, described: Any, places: Mapping[Index, Any]) -> Tensor:
    members = _members(described, "TensorStorageMetadata")
    shape = _sizes(members.get("size"), "its shape")
    if prod(shape) >= 2**58:
        raise _Wrong(f"its shape, {shape}, is too large")
    if not isinstance(members.get("chunks"), list):
        raise _Wrong("it has no list of chunks")
    chunks: dict[tuple[Sizes, Sizes], Chunk] = {}
    for described_chunk in members["chunks"]:
        chunk = _members(described_chunk, "ChunkStorageMetadata")
        start, count = (_sizes(chunk.get(name), f"a chunk's {name}") for name in ("offsets", "sizes"))
        if not len(start) == len(count) == len(shape) or any(s + n > w for s, n, w in zip(start, count, shape)):
            raise _Wrong(f"a chunk of {count} elements at {start} is not within its shape, {shape}")
        info = places.get((fqn, start))
        if info is None:
            if 0 in count:
                continue
            raise _Wrong(f"nothing says in which file its chunk at {start} is")
        chunks[start, count] = Chunk(start, count, _place(info))
    _check_tiling(shape, list(chunks.values()))
    return Tensor(_dtype(members.get("properties")), shape, [c for c in chunks.values() if 0 not in c.count])


def _keys(planner_data: Any, fqns: Mapping[Any, Any]) -> dict[str, Keys]:
    if not isinstance(planner_data, dict):
        return {}
    found: dict[str, Keys] = {}
    for fqn, keys in planner_data.items():
        if fqn in fqns and isinstance(keys, tuple) and keys and isinstance(keys[0], str):
            if any(not isinstance(key, str) and (type(key) is not int or not 0 <= key < 2**31) for key in keys):
                raise _Wrong(f"{fqn}: the keys that lead to it are neither texts nor indices")
            found[fqn] = keys
    return found


def _contents(metadata: Any) -> Contents:
    members = _members(metadata, "Metadata")
    described = _mapping(members.get("state_dict_metadata"), "state_dict_metadata")
    places = _places(members.get("storage_data"))
    contents = Contents(keys=_keys(members.get("planner_data"), described))
    for fqn, what in described.items():
        if not isinstance(fqn, str):
            raise _Wrong(f"a name that is {_pickles.describe(fqn)}")
        try:
            if isinstance(what, Call) and what.of.name == "BytesStorageMetadata":
                contents.objects[fqn] = _place(places.get((fqn, None)))
            else:
                contents.tensors[fqn] = _tensor(fqn, what, places)
        except _Wrong as e:
            raise _Wrong(f"{fqn}: {e}") from None
    return contents


def _check_places(contents: Contents, folder: str) -> None:
    """Checks that no byte belongs to two chunks, so that a small file cannot represent huge tensors."""
    placed = [(place.file, place.offset, place.bytes, fqn) for fqn, place in contents.objects.items()]
    placed += [(c.place.file, c.place.offset, c.place.bytes, fqn)
               for fqn, tensor in contents.tensors.items() for c in tensor.chunks]
    placed.sort()
    for (file, offset, length, fqn), (next_file, next_offset, _, next_fqn) in zip(placed, placed[1:]):
        if file == next_file and offset + length > next_offset:
            raise refuse(folder, FILE, f"{fqn} and {next_fqn} are both at byte {next_offset} of {file}")


def read(files: Files) -> Contents:
    """The contents of the directory according to its metadata, checked for completeness and consistency.

    Raises:
        libdcp.Error: its ``.metadata`` is damaged, or contains something unexpected.
    """
    _, length = files.get(FILE)
    if length > _MAX_BYTES:
        raise refuse(files.folder, FILE, f"has {length} bytes; at most {_MAX_BYTES} are read")
    data = bytearray(length)
    files.read_into(FILE, 0, memoryview(data))
    try:
        contents = _contents(_pickles.read(bytes(data), _NAMES))
    except (PickleError, _Wrong) as e:
        raise refuse(files.folder, FILE, str(e)) from None
    _check_places(contents, files.folder)
    return contents


def is_directory(path: str) -> bool:
    """Returns true if torch.distributed.checkpoint seems to have written the directory.

    Raises:
        libdcp.Error: UNSUPPORTED: each rank has written its own ``.metadata``.
    """
    if os.path.isfile(os.path.join(path, "__0" + FILE)):
        raise Error(f"{path}: each rank has saved for itself (use_collectives=False); save with collectives to convert",
                    status=Status.UNSUPPORTED, path=path)
    return os.path.isfile(os.path.join(path, FILE))


def parts(path: str) -> list[str]:
    """The directories of torch.distributed.checkpoint that belong together: the path itself, or accelerate's model and
    optimizer in it; empty if there is none."""
    if is_directory(path):
        return [path]
    inner = [os.path.join(path, name) for name in sorted(os.listdir(path)) if ACCELERATE.fullmatch(name)]
    return list(filter(is_directory, inner))
