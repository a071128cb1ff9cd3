"""Numpy arrays, torch tensors, DTensors, arrays on a GPU and shards as pieces of tensors: types, boxes, addresses."""

from __future__ import annotations

import importlib
import operator
import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _shards
from ._capi import MAX_DIMS

# In the order of DCP_DTYPE_LIST, whose numbers start at 1.
DTYPES = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8",
          "BOOL", "C64", "C128", "F8_E8M0")
_NUMPY = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16", "i1": "I8", "u8": "U64",
          "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL", "c8": "C64", "c16": "C128"}
_NAMED = {"bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0"}
_OF_NUMPY = {name: numpy for numpy, name in _NUMPY.items()}
_OF_NAMED = {name: named for named, name in _NAMED.items()}
TORCH = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16",
          "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
          "complex64": "C64", "complex128": "C128", **_NAMED}
_NUMBERS = {name: number for number, name in enumerate(DTYPES, 1)}


@dataclass(frozen=True)
class Shard:
    """A part of a tensor that this rank holds.

    Args:
        array: the part's elements: a numpy array, a torch tensor, or an object with ``__cuda_array_interface__``.
        shape: the shape of the whole tensor.
        start: the index of the part's first element, one number per dimension.

    A rank that holds no part of a tensor passes an array without elements; for a scalar, one of shape (0,).
    """

    array: Any
    shape: tuple[int, ...]
    start: tuple[int, ...]


class Piece(NamedTuple):
    """A box of a tensor in this process's memory."""

    dtype: int
    shape: tuple[int, ...]
    start: tuple[int, ...]
    extent: tuple[int, ...]
    address: int
    strides: tuple[int, ...] | None  # in bytes; None: dense
    owner: Any  # the object that owns the memory
    device: int | None = None  # the number of the GPU that holds it


@dataclass(frozen=True)
class Pieces:
    """The boxes of a tensor that this rank holds, determined in advance; at least one, which may be empty."""

    pieces: tuple[Piece, ...]


def described(piece: Piece) -> str:
    """The tensor's dtype and shape, for other ranks."""
    return f"{DTYPES[piece.dtype - 1]} {piece.shape}"


def described_piece(text: str) -> Piece:
    """An empty piece, made from another rank's description, of a tensor of which this rank holds nothing."""
    name, _, numbers = text.partition(" ")
    return empty_piece(_NUMBERS[name], tuple(map(int, filter(None, numbers.strip("()").split(",")))))


def empty_piece(dtype: int, shape: tuple[int, ...]) -> Piece:
    """An empty piece of a tensor of which this rank holds nothing. A scalar's box has one dimension."""
    nothing = (0,) * max(len(shape), 1)
    return Piece(dtype, shape, nothing, nothing, 0, None, None)


def takes(value: Any, dtype: int, shape: tuple[int, ...]) -> bool:
    """Returns true for an array, numpy's or a tensor of torch's own type, with that type and shape."""
    torch: Any = sys.modules.get("torch")
    if isinstance(value, np.ndarray):
        return bool(value.dtype == numpy_dtype(DTYPES[dtype - 1]) and value.shape == shape)
    return bool(torch is not None and type(value) is torch.Tensor and value.dtype == torch_dtype(dtype)
                and tuple(value.shape) == shape and not _lacks_memory(value))


def array_like(value: Any, dtype: int, shape: tuple[int, ...]) -> Any:
    """A new array: numpy's if the value is numpy's or torch is not imported, otherwise torch's; for a tensor of torch's
    own type on the same device."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) is torch.Tensor:
        return torch.empty(shape, dtype=torch_dtype(dtype), device=value.device)
    return new_array(value, dtype, shape)


def new_array(like: Any, dtype: int, shape: tuple[int, ...]) -> Any:
    """A new array in CPU memory: numpy's if ``like`` is numpy's or torch is not imported, otherwise torch's."""
    torch: Any = sys.modules.get("torch")
    if isinstance(like, np.ndarray) or torch is None:
        return np.empty(shape, numpy_dtype(DTYPES[dtype - 1]))
    return torch.empty(shape, dtype=torch_dtype(dtype), device="cpu")  # not torch's default device


def is_plain(value: Any) -> bool:
    """Returns true for a numpy array, or a tensor of torch's own type: a new array can replace such a value."""
    torch: Any = sys.modules.get("torch")
    return type(value) is np.ndarray or torch is not None and (type(value) is torch.Tensor or is_uninitialized(value))


def is_uninitialized(value: Any) -> bool:
    """Returns true for a parameter or buffer of a lazy torch module that has not run yet."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and isinstance(
        value, (torch.nn.parameter.UninitializedParameter, torch.nn.parameter.UninitializedBuffer))


def torch_dtype(number: int) -> Any:
    """The torch.dtype for a dtype's number."""
    name = next(name for name, found in TORCH.items() if _NUMBERS[found] == number)
    return getattr(sys.modules["torch"], name)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype for a dtype's name in the file. For types that numpy lacks, the dtype of ml_dtypes if that is
    installed, otherwise unsigned integers for the bits."""
    if name in _OF_NUMPY:
        return np.dtype(_OF_NUMPY[name])
    try:
        found: Any = getattr(importlib.import_module("ml_dtypes"), _OF_NAMED[name])
    except (ImportError, AttributeError):
        found = "u2" if name == "BF16" else "u1"
    dtype: np.dtype[Any] = np.dtype(found)
    return dtype


def n_bytes(name: str, shape: tuple[int, ...]) -> int:
    """The size of a tensor in bytes, given its dtype's name in the file."""
    return int(np.prod(shape, dtype=np.int64)) * numpy_dtype(name).itemsize


def dtype_number(name: str) -> int:
    """The number of a dtype, given its name in the file, such as "F32"."""
    return _NUMBERS[name]


def _number_of_numpy(dtype: np.dtype[Any], name: object) -> int:
    found = _NAMED.get(dtype.name) or (_NUMPY.get(dtype.str[1:]) if dtype.isnative else None)
    if found is None:
        raise TypeError(f"{name}: a checkpoint has no type for numpy's {dtype}")
    return _NUMBERS[found]


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...], item: int) -> bool:
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != item:
            return False
        item *= length
    return True


def _piece(dtype: int, whole: tuple[int, ...], start: tuple[int, ...], count: tuple[int, ...], address: int,
           strides: tuple[int, ...], item: int, owner: Any) -> Piece:
    dense = 0 in count or _is_dense(count, strides, item)
    return Piece(dtype, whole, start, count, address, None if dense else strides, owner)


def _of_numpy(array: npt.NDArray[Any], whole: tuple[int, ...], start: tuple[int, ...], name: object) -> Piece:
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: an array with a mask; a checkpoint has none")
    return _piece(_number_of_numpy(array.dtype, name), whole, start, array.shape, array.ctypes.data, array.strides,
                  array.itemsize, array)


_numbers_of_torch: dict[Any, int] = {}  # by torch's dtype


def _torch_dtype(dtype: Any, name: object) -> int:
    found = TORCH.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise TypeError(f"{name}: a checkpoint has no type for {dtype}")
    number = _numbers_of_torch[dtype] = _NUMBERS[found]
    return number


def _lacks_memory(tensor: Any) -> str:
    """Why a torch tensor has no memory that could be saved; "" if it has some."""
    torch: Any = sys.modules["torch"]
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_nested:
        return ""
    if tensor.is_nested:
        return "is nested; save its values and offsets"
    if is_uninitialized(tensor):
        return "is not initialized; run the lazy module once first"
    if tensor.layout is not torch.strided:
        return f"is {tensor.layout}, and has no bytes that could be saved; make it dense"
    if hasattr(type(tensor), "__tensor_flatten__") and not hasattr(tensor, "placements"):
        return "has no memory of its own, but consists of other tensors; save these, or the dequantized tensor"
    return ""


def _refuse_lacking(tensor: Any, name: object) -> None:
    lacking = _lacks_memory(tensor)
    if lacking:
        raise TypeError(f"{name}: a {type(tensor).__name__} that {lacking}")


def _of_torch(tensor: Any, whole: tuple[int, ...], start: tuple[int, ...], name: object) -> Piece:
    _refuse_lacking(tensor, name)
    if tensor.is_quantized:
        raise TypeError(f"{name}: a quantized tensor has no bytes that could be saved; make it dense")
    if tensor.is_conj() or tensor.is_neg():
        raise TypeError(f"{name}: a lazily conjugated or negated view; call resolve_conj() or resolve_neg() first")
    where = tensor.device
    if where.type not in ("cpu", "cuda"):
        if where.type == "meta":
            raise TypeError(f"{name}: a tensor on the meta device, which has no memory to save from or to load into; give it "
                            'memory first, for example by to_empty(device="cpu")')
        raise TypeError(f"{name}: a tensor on {where}; saves and loads require memory of the CPU or of a CUDA "
                        "GPU")
    dtype = _numbers_of_torch.get(tensor.dtype) or _torch_dtype(tensor.dtype, name)
    count, strides, extent = tuple(tensor.shape), None, tensor.numel()
    if not tensor.is_contiguous():
        extent = 1 + sum((n - 1) * stride for n, stride in zip(count, tensor.stride()))
        item = tensor.element_size()
        strides = tuple(item * stride for stride in tensor.stride())
    address = tensor.data_ptr()
    end = (tensor.storage_offset() + extent) * tensor.element_size()
    if 0 not in count and (not address or end > tensor.untyped_storage().nbytes()):
        raise TypeError(f"{name}: a {type(tensor).__name__} whose storage was freed or shortened, so it has no memory for all of "
                        "its elements")
    piece = Piece(dtype, whole, start, count, address, strides, tensor)
    return piece if where.type == "cpu" else _on_device(piece, where.index, name)


def _on_device(piece: Piece, number: int, name: object) -> Piece:
    if piece.strides is not None:
        raise TypeError(f"{name}: an array on a GPU whose elements are not dense in row-major order; call contiguous() "
                        "first")
    return piece._replace(device=number)


def _of_interface(array: Any, whole: tuple[int, ...], start: tuple[int, ...], name: object) -> Piece:
    """A piece for an array of CuPy, numba and others, according to version 3 of the interface."""
    described = array.__cuda_array_interface__
    if described.get("mask") is not None:
        raise TypeError(f"{name}: an array with a mask; a checkpoint has none")
    dtype, shape = np.dtype(described["typestr"]), tuple(described["shape"])
    piece = Piece(_number_of_numpy(dtype, name), whole, start, shape, described["data"][0], None, array)
    strides = described.get("strides")
    if strides is not None and 0 not in shape and not _is_dense(shape, tuple(strides), dtype.itemsize):
        piece = piece._replace(strides=tuple(strides))
    where = getattr(array, "device", None)
    return _on_device(piece, getattr(where, "id", getattr(where, "index", 0)) or 0, name)


def _of_dense(value: Any, whole: tuple[int, ...], start: tuple[int, ...], name: object) -> Piece:
    if isinstance(value, np.ndarray):
        return _of_numpy(value, whole, start, name)
    if is_torch_tensor(value):
        return _of_torch(value, whole, start, name)
    if hasattr(value, "__cuda_array_interface__"):
        return _of_interface(value, whole, start, name)
    raise TypeError(f"{name}: a {type(value).__name__} is no numpy array, torch tensor or array on a GPU")


def is_torch_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def like_new(value: Any) -> Any:
    """A new array with the value's type, shape and device, to fill instead of the value; None for values of other
    types."""
    if type(value) is np.ndarray:
        return np.empty_like(value)
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and not _lacks_memory(value):
        return torch.empty_like(value.detach())
    return None


def is_like(value: Any, new: Any) -> bool:
    """Returns true for two arrays of numpy, or two of torch, of the same type and shape."""
    are_of_numpy = isinstance(value, np.ndarray) and isinstance(new, np.ndarray)
    are_of_torch = is_torch_tensor(value) and is_torch_tensor(new)
    return bool((are_of_numpy or are_of_torch) and value.dtype == new.dtype and value.shape == new.shape)


def put_into(value: Any, new: Any) -> bool:
    """Copies a new array into an old one if both have the same type and shape; returns whether it did so."""
    if not is_like(value, new):
        return False
    if isinstance(value, np.ndarray):
        value[...] = new
        return True
    torch: Any = sys.modules["torch"]
    with torch.inference_mode() if value.is_inference() else torch.no_grad():
        value.copy_(new)
    return True


def count_writes(tensors: Iterable[Any]) -> None:
    """Counts one write to each of these torch tensors, as torch's own in-place functions do, for writes that torch
    has not seen. Torch then refuses a backward pass that needs the old values, instead of computing it with the new
    ones. Torch counts no writes to inference tensors."""
    written = list(tensors)
    if written:
        sys.modules["torch"].autograd.graph.increment_version(written)


def storage(owner: Any) -> Any:
    """The object that keeps a piece's memory alive, even if a torch tensor gets other memory by ``.data =``."""
    return owner.untyped_storage() if is_torch_tensor(owner) else owner


class Places:
    """The addresses and memory layouts of arrays.

    Args:
        pieces: the pieces of the arrays, with their names.
    """

    def __init__(self, pieces: Iterable[tuple[object, Piece]]) -> None:
        found = [(name, piece) for name, piece in pieces if piece.owner is not None]
        torches = [(name, piece) for name, piece in found if is_torch_tensor(piece.owner)]
        self._names = [name for name, _ in torches]
        self._owners = [piece.owner for _, piece in torches]
        self._then = list(self._places())
        numpies = [(name, piece.owner) for name, piece in found if isinstance(piece.owner, np.ndarray)]
        self._all = [*self._names, *(name for name, _ in numpies)]
        self._arrays = [array for _, array in numpies]
        self._pins = [weakref.ref(array) for array in self._arrays]  # so that numpy does not resize them
        self._laid_out = self._layouts()

    def _places(self) -> Iterable[tuple[int, bool]]:
        """The addresses of the torch tensors, and whether they are dense. Reading both costs no more than reading only
        the addresses."""
        if not self._owners:
            return ()
        kind: Any = sys.modules["torch"].Tensor
        return zip(map(kind.data_ptr, self._owners), map(kind.is_contiguous, self._owners))

    def moved(self) -> tuple[object, bool] | None:
        """The name of a torch tensor that has moved, or that has become dense or ceased to be dense, and whether it has
        moved; None if there is none. Fast enough for thousands of tensors."""
        if all(map(operator.eq, self._places(), self._then)):
            return None
        return next(((n, a[0] != b[0]) for n, a, b in zip(self._names, self._places(), self._then) if a != b), None)

    def reshaped(self) -> object | None:
        """The name of an array whose shape, type or order of elements has changed; None if there is none. Takes several
        times as long as :meth:`moved`."""
        now = self._layouts()
        return None if now == self._laid_out else next(n for n, a, b in zip(self._all, now, self._laid_out) if a != b)

    def _layouts(self) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        if self._owners:
            kind: Any = sys.modules["torch"].Tensor
            found += zip(map(kind.shape.__get__, self._owners), map(kind.stride, self._owners),
                         map(kind.dtype.__get__, self._owners), map(kind.is_conj, self._owners), map(kind.is_neg, self._owners))
        found += ((array.shape, array.strides, array.dtype) for array in self._arrays)
        return found


def _is_of_shards(tensor: Any) -> bool:
    """Returns true if a torch tensor stores its elements in other tensors, so that many of its own members raise
    errors."""
    torch = sys.modules["torch"]
    return type(tensor) not in (torch.Tensor, torch.nn.Parameter) and _shards.of(tensor, "") is not None


def memory(value: Any) -> object:
    """A value that is equal for torch tensors that have the same elements in the same memory, on every rank; None for
    anything else."""
    if not is_torch_tensor(value) or _is_of_shards(value) or _lacks_memory(value):
        return None
    placements = getattr(value, "placements", None)
    local = value if placements is None else value.to_local()
    return (local.untyped_storage()._cdata, local.storage_offset(), local.shape, local.stride(), value.shape,
            value.dtype, placements, local.is_conj(), local.is_neg())


def place(value: Any) -> object:
    """A value that is equal for tensors of the same type and shape at the same address."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided:
        return value.data_ptr(), value.shape, value.stride(), value.dtype, value.is_conj(), value.is_neg()
    if isinstance(value, np.ndarray):
        return value.ctypes.data, value.shape, value.strides, value.dtype.str
    if isinstance(value, Shard):
        return place(value.array), value.shape, value.start
    return memory(value) or id(value)


def has_fill(value: Any) -> bool:
    """Returns true if ``fill`` supports the value."""
    return isinstance(value, np.ndarray) or is_torch_tensor(value)


def fill(value: Any, number: int) -> None:
    """Sets all elements to a number."""
    if isinstance(value, np.ndarray):
        value[...] = number
    else:
        value.fill_(number)


def is_tensor_type(kind: type) -> bool:
    """Returns true if ``pieces`` supports all values of a type. ``pieces`` also supports values of other types if they
    have ``__cuda_array_interface__``."""
    torch = sys.modules.get("torch")
    return issubclass(kind, (np.ndarray, Shard, Pieces)) or torch is not None and issubclass(kind, torch.Tensor)


def _of_shard(shard: Shard, name: object) -> Piece:
    count = tuple(shard.array.shape)
    nothing = not shard.shape and count == (0,)  # a scalar
    if not len(shard.shape) == len(shard.start) == len(count) - nothing:
        raise ValueError(f"{name}: a part of {len(count)} dimensions, at {shard.start} in a tensor of shape "
                         f"{shard.shape}")
    if any(s < 0 or s + n > whole for s, n, whole in zip(shard.start, count, shard.shape)):
        raise ValueError(f"{name}: the part {count} at {shard.start} is not within {shard.shape}")
    return _of_dense(shard.array, tuple(shard.shape), tuple(shard.start), name)


def _of_whole(value: Any, name: object) -> list[Piece]:
    if is_torch_tensor(value):
        _refuse_lacking(value, name)
    whole = tuple(value.shape)
    return [_of_dense(value, whole, (0,) * len(whole), name)]


def _of_subclass(value: Any, name: object) -> list[Piece]:
    """The pieces of a torch tensor whose elements or shards may be in other tensors."""
    shards = _shards.of(value, name)
    if shards is None:
        return _of_whole(value, name)
    whole, parts = shards
    found = [_of_shard(Shard(part, whole, start), name) for part, start in parts]
    return found or [empty_piece(_torch_dtype(value.dtype, name), whole)]


def _of_tensor(value: Any, name: object) -> list[Piece]:
    """The pieces of a tensor of torch's own types. A CheckpointableTensor is recognized by its members."""
    return _of_subclass(value, name) if hasattr(value, "global_offsets") else _of_whole(value, name)


def _of_dtensor(value: Any, name: object) -> list[Piece]:
    from . import _dtensor
    if _shards.has_own(value.to_local()):
        return _of_subclass(value, name)
    return [_of_torch(part, whole, start, name) for part, whole, start in _dtensor.parts(value, name)]


_ways: dict[type, Callable[[Any, object], list[Piece]]] = {
    Pieces: lambda value, name: list(value.pieces),
    Shard: lambda value, name: [_of_shard(value, name)],
    np.ndarray: _of_whole,
}


def _way(value: Any) -> Callable[[Any, object], list[Piece]]:
    torch = sys.modules.get("torch")
    kind = type(value)
    known = next((_ways[base] for base in (Pieces, Shard) if issubclass(kind, base)), None)
    if known:
        return known
    if hasattr(value, "placements"):
        return _of_dtensor
    if torch is None or not is_torch_tensor(value):
        return _of_whole
    return _of_tensor if kind in (torch.Tensor, torch.nn.Parameter) else _of_subclass


def pieces(value: Any, name: object) -> list[Piece]:
    """The boxes of a tensor that this rank holds; at least one, which may be empty.

    Raises:
        TypeError: a checkpoint cannot represent the value; the message begins with ``name``.
    """
    way = _ways.get(type(value))
    if way is None:
        way = _ways[type(value)] = _way(value)
    found = way(value, name)
    if len(found[0].shape) > MAX_DIMS:
        raise TypeError(f"{name}: {len(found[0].shape)} dimensions; a checkpoint has at most {MAX_DIMS}")
    return found
