"""Hugging Face folders: writes a step's model as such a folder, and fills a state from one.

    libdcp.hf.export("checkpoints", "my-model", dtype="bf16")   # for AutoModelForCausalLM.from_pretrained("my-model")
    libdcp.hf.load("my-model", model.state_dict())
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from . import _checked, _hf_export, _hf_load, _paths
from ._calls import Loaded
from ._comm import attempted, working
from ._paths import Path
from .checkpoint import Checkpoint

__all__ = ["export", "load"]

_DTYPES = {"f32": "F32", "float32": "F32", "bf16": "BF16", "bfloat16": "BF16", "f16": "F16", "float16": "F16"}
_MOST = 2**63 - 1


def _dtype(name: str, value: Any) -> str | None:
    if value is None:
        return None
    text = str(value).removeprefix("torch.")
    if text not in _DTYPES:
        raise ValueError(f"{name}: {value!r} is none of f32, bf16, f16")
    return _DTYPES[text]


def _size(name: str, value: Any) -> int:
    """Bytes, from an integer or a text such as "5GB"."""
    wrong = f"{name}: {value!r} must be a size of at least 1 byte, such as 5GB, 1.5TB or 512KiB"
    if value is None:
        return _hf_export.FILE_BYTES
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(wrong)
    found = re.fullmatch(r"(\d+(?:\.\d*)?)(?:([kKMGTPE])(i?)B|B?)", str(value), re.ASCII)
    if not found:
        raise ValueError(wrong)
    number, prefix, binary = found.groups()
    unit = (1024 if binary else 1000) ** ("KMGTPE".index(prefix.upper()) + 1) if prefix else 1
    size = int(Decimal(number) * unit)
    if not 0 < size <= _MOST:
        raise ValueError(wrong)
    return size


def export(ckpt: Path | Checkpoint, out: Path, *, dtype: Any = None, max_shard_size: int | str | None = None) -> None:
    """Writes the model of a step as a folder that Hugging Face's transformers loads: config.json, the tokenizer's and
    other files that the step carries, and the tensors below /model as model.safetensors, or as several such files with
    an index. Runs in one process; every byte that is read is checked. The files are those that dcp-export writes, but
    dcp-export also compares the tensors with what config.json requires.

    Args:
        ckpt: a step's folder; a directory of steps, whose newest step is exported; or an open checkpoint. config.json
            is the member "model" of its JSON: ``libdcp.save(..., json={"model": model.config.to_diff_dict()})``.
        out: the folder to make. It must not exist, or must be empty; it gets its name once it is complete and durable.
        dtype: "f32", "bf16" or "f16", or torch's: floats are rounded to this type. None: as stored.
        max_shard_size: the most bytes of tensors in a file, unless a single tensor is larger: a number, or a text such
            as "5GB", which is the default.

    The parts that torch.compile, FSDP, activation checkpointing, DDP and PEFT add to names are left out, and so is an
    ``lm_head.weight`` that config.json ties to the embedding.

    Raises:
        libdcp.Error: NOT_FOUND: no step, or no model in it; CORRUPT, which names the tensor.
        FileExistsError: ``out`` exists.
    """
    given = _checked.checked("export", {"dtype": dtype, "max_shard_size": max_shard_size},
                             {"dtype": _dtype, "max_shard_size": _size})
    folder = _paths.given(out, "out")
    with contextlib.nullcontext(ckpt) if isinstance(ckpt, Checkpoint) else Checkpoint(ckpt) as checkpoint:
        _hf_export.write(checkpoint, folder, given["dtype"], given["max_shard_size"])


def load(folder: Path, state: Mapping[Any, Any], *, group: Any = None, strict: bool = True,
         cast: bool = False) -> Loaded:
    """Fills the memory of a state's tensors from the safetensors of a Hugging Face folder, on any number of ranks; each
    rank reads the parts that it holds. Collective. safetensors have no checksums, so a flipped bit of a tensor is not
    noticed.

    Args:
        folder: a folder with model.safetensors, or with model.safetensors.index.json and the files that it names; or
            the path of a .safetensors file or an index.
        state: as for :func:`libdcp.save`: ``model.state_dict()``, or ``{"model": ...}``. Its tensors are numpy arrays,
            torch tensors, DTensors or :class:`libdcp.Shard`, and are written in place; what is not a tensor stays as it
            is. Ranks may name different tensors, as pipeline stages do. The parts that wrappers add to names are
            ignored.
        group: see :class:`libdcp.Store`.
        strict: it is an error if the folder lacks a tensor that a rank names, or has one that no rank names. If not
            strict, tensors that the folder lacks are left unchanged; the result's ``.missing`` lists the names that the
            folder lacks, and its ``.unexpected`` those that the states lack. If torch tensors share their memory, or
            config.json ties them, the folder needs only one of them.
        cast: tensors of a different dtype are converted; without it, they are an error.

    Returns:
        A dict with config.json as "model", if there is one.

    Raises:
        libdcp.Error: the same on all ranks: NOT_FOUND, MISMATCH; CORRUPT or UNSUPPORTED: a file's header is wrong or
            has something unknown; then nothing was changed. IO: a file could not be read.
    """
    with working(group) as comm:
        def check() -> tuple[str, bool, bool]:
            given = _checked.checked("load", {"strict": strict, "cast": cast}, _checked.LOADS)
            return _paths.given(folder, "folder", "libdcp.hf.load(folder, state)"), given["strict"], given["cast"]
        return _hf_load.load(comm, *attempted(comm, check), state=state)
