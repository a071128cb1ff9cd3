"""Shared by the scripts that make records: files of tensors, the choice of held-out records, and messages."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from typing import Any, Callable, NoReturn


class Failure(Exception):
    """What is wrong, and the exit status."""


def fail(why: object, status: int = 2) -> NoReturn:
    raise Failure(why, status)


def run(program: str, make: Callable[[], None]) -> None:
    """Exits with 2 if an argument is wrong, with 3 if a file cannot be read or written."""
    try:
        make()
        return
    except Failure as e:
        why, status = e.args
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as e:
        why, status = e, 2
    except OSError as e:
        why, status = e, 3
    print(f"{program}: {why}", file=sys.stderr)
    sys.exit(status)


def check_characters(where: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        fail(f"{where} has half of a surrogate pair, which is no character: mend the text where it comes from")


def share(text: str) -> float:
    """Parses --held-out."""
    value = float(text)
    if not (0 < value < math.inf) or (value >= 1 and value != int(value)):
        raise argparse.ArgumentTypeError(f"{text} is neither a fraction between 0 and 1 nor a number of records")
    return value


def lowest(hashes: Any, amount: float) -> Any:
    """Selects the records that are held out: those with the lowest hashes. ``hashes`` is an array with a U64 for each
    record; the order of the records does not matter. Records with equal hashes are treated alike, so more records than
    requested may be held out."""
    import numpy as np
    if amount < 1:  # 0: none
        held = hashes < np.uint64(int(amount * 2**64))
    else:
        held = hashes <= np.sort(hashes)[min(int(amount), len(hashes)) - 1]
    if held.all() or (amount and not held.any()):
        fail(f"--held-out {amount:g} of {len(held)} records leaves none for one of the files: give another "
             "fraction, or a number")
    return held


def held_out_path(out: str) -> str:
    root, suffix = os.path.splitext(out)
    return f"{root}-held-out{suffix}"


def check_outputs(paths: list[str], sources: list[str]) -> None:
    """Checks at the start what would otherwise fail after an hour of work."""
    for path in paths:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            fail(f"{path}: there is no folder {folder}")
        if os.path.isdir(path):
            fail(f"{path} is a folder; a file is to be written")
        for source in sources:
            if os.path.exists(path) and os.path.exists(source) and os.path.samefile(path, source):
                fail(f"{path} would overwrite what is read: name another file as the first argument")


def write_safetensors(path: str, tensors: Any, about: dict[str, str]) -> None:
    """Writes the tensors, each given as (name, type, array), in the order in which they are given. safetensors' own
    writer would write the entries of `about` in a different order each time."""
    header: dict[str, Any] = {"__metadata__": about}
    offset = 0
    for name, dtype, values in tensors:
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [offset, offset + values.nbytes]}
        offset += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, values in tensors:
            file.write(values.tobytes())  # in row-major order, whatever the order in memory
