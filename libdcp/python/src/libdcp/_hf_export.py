"""Writes the model of a step as a Hugging Face folder, with the bytes that dcp-export writes."""

from __future__ import annotations

import ctypes as c
import fnmatch
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _arrays, _capi, _hf_json, _hf_names, _paths
from ._calls import FILES
from ._capi import lib
from .checkpoint import Checkpoint, parts_of
from .errors import Error, Status

MODEL = "/model/"
FILE_BYTES = 5 * 10**9
ONE_FILE = 2**63 - 1
log = logging.getLogger("libdcp")

# The order of safetensors' own writer: larger types first, which keeps all elements aligned.
_ORDER = ("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16", "F8_E8M0", "F8_E4M3", "F8_E5M2",
          "I8", "U8", "BOOL", "C128")
_OF_PEFT = re.compile(r"(^|\.)base_model\.model\..*\.(lora_\w+|modules_to_save)\.")
_FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E8M0")
# For each type that has infinity: numpy's type for its bits, and the bits of infinity.
_INFINITE = {"F64": ("u8", 0x7ff << 52), "F32": ("u4", 0xff << 23), "F16": ("u2", 0x1f << 10),
             "BF16": ("u2", 0xff << 7), "F8_E5M2": ("u1", 0x1f << 2)}
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
               "vocab.txt", "merges.txt", "*.model", "tokenizer.model.v*", "*.tiktoken", "tekken.json",
               "tokenization_*.py", "chat_template.json", "chat_template.jinja")


@dataclass(frozen=True)
class _Item:
    """A tensor of the export."""

    name: str
    source: str  # its path in the checkpoint
    stored: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return _arrays.n_bytes(self.dtype, self.shape)


@dataclass(frozen=True)
class _File:
    name: str
    items: list[_Item]


def _are_equal(checkpoint: Checkpoint, one: str, other: str) -> bool:
    entry = checkpoint.entries[one]
    if entry != checkpoint.entries[other]:
        return False
    boxes = parts_of((0,) * len(entry.shape), entry.shape, _arrays.n_bytes(entry.dtype, ()))
    return all(checkpoint.read(one, tuple(start), tuple(count)).tobytes() == checkpoint.read(
        other, tuple(start), tuple(count)).tobytes() for start, count in boxes)


def _without_copy(checkpoint: Checkpoint, config: dict[str, Any], sources: dict[str, str]) -> dict[str, str]:
    """Leaves out the copy of a tied embedding, which transformers makes itself."""
    embedding = _hf_names.embedding_of(config, sources)
    if embedding is None or _hf_names.COPY not in sources:
        return sources
    copy, tied = sources[_hf_names.COPY], sources[embedding]
    if _are_equal(checkpoint, copy, tied):
        return {name: source for name, source in sources.items() if source != copy}
    if checkpoint.entries[copy] == checkpoint.entries[tied]:
        log.warning("%s: the configuration ties %s to %s, but they differ: both are written, and transformers uses "
                    "only the latter", checkpoint.path, copy, tied)
    return sources


def _items(checkpoint: Checkpoint, config: dict[str, Any] | None, dtype: str | None) -> list[_Item]:
    """The tensors to export, in the order of their names."""
    paths = [path for path in checkpoint.entries if path.startswith(MODEL)]
    if not paths:
        raise Error(f"{checkpoint.path}: has no tensor under {MODEL}: nothing to export", status=Status.NOT_FOUND,
                    path=checkpoint.path)
    names = [path.removeprefix(MODEL) for path in paths]
    adapter = next(filter(_OF_PEFT.search, names), None)
    if config is not None and adapter:
        raise Error(f"{checkpoint.path}: {adapter} is of an adapter of PEFT, which the model of the configuration lacks: "
                    "load the step into the model with its adapters, and save what merge_and_unload() returns",
                    status=Status.MISMATCH, tensor=MODEL + adapter, path=checkpoint.path)
    # Without a configuration, wrappers' parts stay in the names.
    rename = _hf_names.unwrapper(names) if config is not None else lambda name: name
    sources: dict[str, str] = {}
    for path, name in zip(paths, map(rename, names)):
        if name in sources:
            raise Error(f"{sources[name]} and {path} would both be named {name}", status=Status.MISMATCH, tensor=path,
                        path=checkpoint.path)
        sources[name] = path
    sources = _without_copy(checkpoint, config or {}, sources)
    entries = {name: checkpoint.entries[source] for name, source in sources.items()}
    return [_Item(name, sources[name], entry.dtype, dtype if dtype and entry.dtype in _FLOATS else entry.dtype,
                  entry.shape) for name, entry in sorted(entries.items(), key=lambda item: item[0].encode())]


def _filled(items: Sequence[_Item], most: int) -> list[list[_Item]]:
    """The items of each file: fills one file after another."""
    found: list[list[_Item]] = [[]]
    filled = 0
    for item in items:
        if filled and item.nbytes > most - filled:
            found.append([])
            filled = 0
        found[-1].append(item)
        filled += min(item.nbytes, most - filled)
    return found


def _assigned(items: Sequence[_Item], numbers: Mapping[str, int]) -> list[list[_Item]]:
    """The items of each file: items without a number go into the first file."""
    found: list[list[_Item]] = [[] for _ in range(max(numbers.values()))]
    for item in items:
        found[numbers.get(item.name, 1) - 1].append(item)
    return found


def _files(items: Sequence[_Item], split: int | Mapping[str, int]) -> list[_File]:
    found = _filled(items, split) if isinstance(split, int) else _assigned(items, split)
    def name(i: int) -> str:
        return "model.safetensors" if len(found) == 1 else f"model-{i:05}-of-{len(found):05}.safetensors"
    return [_File(name(i), sorted(of_file, key=lambda item: (_ORDER.index(item.dtype), item.name.encode())))
            for i, of_file in enumerate(found, 1)]


def _head(items: Sequence[_Item]) -> bytes:
    shape = c.c_uint64 * _capi.MAX_DIMS
    tensors = (_capi.Tensor * len(items))(*(
        _capi.Tensor(item.name.encode(), _arrays.dtype_number(item.dtype), len(item.shape), shape(*item.shape))
        for item in items))
    head, n = c.c_void_p(), c.c_uint64()
    lib.st_header(tensors, len(items), head, n)
    try:
        return c.string_at(head, n.value)
    finally:
        _capi.free(head)


def _n_infinite(dtype: str, raw: npt.NDArray[Any]) -> int:
    kind, bits = _INFINITE.get(dtype, ("u1", -1))
    mask = (1 << 8 * np.dtype(kind).itemsize - 1) - 1  # all except the sign
    return 0 if bits < 0 else int(np.count_nonzero((raw.view(kind) & np.array(mask, kind)) == bits))


def _data(checkpoint: Checkpoint, item: _Item) -> Iterator[npt.NDArray[Any]]:
    """The tensor's bytes as exported, in pieces."""
    size, new, overflows = _arrays.n_bytes(item.stored, ()), _arrays.n_bytes(item.dtype, ()), 0
    for start, count in parts_of((0,) * len(item.shape), item.shape, size) if item.elements else ():
        raw = np.empty(prod(count) * size, np.uint8)
        checkpoint.read_into(item.source, start, count, raw.ctypes.data)
        if item.dtype != item.stored:
            made = np.empty(prod(count) * new, np.uint8)
            lib.convert(_arrays.dtype_number(item.stored), raw.ctypes.data, _arrays.dtype_number(item.dtype),
                        made.ctypes.data, prod(count))
            overflows += _n_infinite(item.dtype, made) - _n_infinite(item.stored, raw)
            raw = made
        yield raw
    if overflows:
        log.warning("%s: %d elements are too large for %s and became infinite", item.source, overflows, item.dtype)


def _write(path: str, pieces: Iterator[Any]) -> None:
    with open(path, "xb") as stream:
        for piece in pieces:
            stream.write(memoryview(piece))
        _paths.sync(stream)


def _main_dtype(files: Sequence[_File]) -> str:
    """The type of the largest tensor of floats. 8-bit floats do not count, since a configuration names the type in
    which to compute."""
    found = [item for file in files for item in file.items if item.dtype in _FLOATS[:4] and item.elements]
    return max(found, key=lambda item: item.nbytes).dtype if found else "F32"


def _is_trained(checkpoint: Checkpoint) -> bool:
    """Returns true if dcp-train saved the step: its steps record the data that were read."""
    return isinstance(checkpoint.json.get("data"), dict)


def _companions(checkpoint: Checkpoint) -> dict[str, str]:
    """The paths of the model's other files, by name."""
    return {path.removeprefix(FILES): path for path in checkpoint.entries if path.startswith(FILES)}


def _texts(checkpoint: Checkpoint, config: dict[str, Any] | None, files: Sequence[_File]) -> dict[str, Any]:
    """The JSON files of the export, by name."""
    made: dict[str, Any] = {}
    if len(files) > 1:
        items = [item for file in files for item in file.items]
        made["model.safetensors.index.json"] = {
            "metadata": {"total_parameters": sum(item.elements for item in items),
                         "total_size": sum(item.nbytes for item in items)},
            "weight_map": {item.name: file.name for file in files for item in file.items}}
    if config is None:
        log.warning("%s: holds no model configuration, so config.json is not written", checkpoint.path)
        return made
    has_tokenizer = any(fnmatch.fnmatchcase(name, known) for name in _companions(checkpoint) for known in _TOKENIZERS)
    if config.get("vocab_size") == 256 and _is_trained(checkpoint) and not has_tokenizer:
        made.update(_hf_json.byte_tokenizer())
    return {**made, "config.json": _hf_json.config_of(config, _main_dtype(files))}


def _write_companion(checkpoint: Checkpoint, source: str, path: str) -> None:
    entry = checkpoint.entries[source]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    try:
        _write(path, _data(checkpoint, _Item("", source, entry.dtype, entry.dtype, entry.shape)))
    except FileExistsError:
        raise Error(f"{checkpoint.path}: {source} has the name of a file that an export makes itself", tensor=source,
                    status=Status.CORRUPT, path=checkpoint.path) from None


def _fill(checkpoint: Checkpoint, folder: str, dtype: str | None, split: int | Mapping[str, int]) -> None:
    config = checkpoint.json.get("model")
    config = config if isinstance(config, dict) else None
    files = _files(_items(checkpoint, config, dtype), split)
    for file in files:
        pieces = (piece for item in file.items for piece in _data(checkpoint, item))
        head = _head(file.items)
        _write(os.path.join(folder, file.name), (piece for some in ([head], pieces) for piece in some))
    for name, content in _texts(checkpoint, config, files).items():
        _write(os.path.join(folder, name), iter([_hf_json.text(content).encode()]))
    for name, source in _companions(checkpoint).items():
        _write_companion(checkpoint, source, os.path.join(folder, name))


def _check_place(checkpoint: Checkpoint, out: str) -> None:
    """Checks that the folder is new or empty, is not in the step, and would not look like a step beside it."""
    if os.path.lexists(out) and not (os.path.isdir(out) and not os.path.islink(out) and not os.listdir(out)):
        raise FileExistsError(f"{out} exists; nothing is overwritten")
    step, parent = os.path.realpath(checkpoint.path), os.path.realpath(os.path.dirname(out))
    is_like_step = os.path.dirname(step) == parent and os.path.basename(out).startswith("step-")
    if os.path.commonpath((step, parent)) == step or is_like_step:
        raise ValueError(f"{out} is in the checkpoint itself; choose a path outside of it")


def write(checkpoint: Checkpoint, out: str, dtype: str | None, split: int | Mapping[str, int]) -> None:
    """Makes the folder ``out``, which gets its name once it is complete and durable.

    Args:
        dtype: the type in which floats are written, such as "BF16"; None: as stored.
        split: the most bytes of data in a file, unless a single tensor is larger; or, by tensors' names, the numbers of
            their files, which begin at 1.
    """
    out = os.path.abspath(out)
    _check_place(checkpoint, out)
    with _paths.published(out) as made:
        _fill(checkpoint, made, dtype, split)
