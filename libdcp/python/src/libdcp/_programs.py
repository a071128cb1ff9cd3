"""``python -m libdcp ls|verify|prove|convert``: prints what dcp-inspect's commands of these names print, using only the
package."""

from __future__ import annotations

import argparse
import ctypes as c
import fnmatch
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import libdcp

from . import _arrays, _capi, _paths, convert
from ._capi import lib
from .checkpoint import Checkpoint
from .errors import Error, Status

DIFFERS, USAGE, FAILED = 1, 2, 3

_KINDS = ("complete", "partial", "abandoned")
_EXIT = {Status.CORRUPT: DIFFERS, Status.MISMATCH: DIFFERS, Status.ARG: USAGE, Status.NOT_FOUND: USAGE, Status.BUSY: USAGE,
         Status.UNSUPPORTED: USAGE, Status.STATE: USAGE}
_ROW = "{:<30} {:<10} {:<8} {:>10} {:>8} {:>6} {:>8}"


class _Usage(Exception):
    pass


def _note(text: str) -> None:
    print(f"libdcp: {text}", file=sys.stderr)


def _plain(text: str) -> str:
    """The text without characters that a terminal would interpret."""
    return "".join("?" if letter < " " or letter == "\x7f" else letter for letter in text)


def _bytes_text(n: int) -> str:
    value, units = float(n), ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.3g} {units[0]}"


def _age_text(age: int | None) -> str:
    if age is None:
        return "-"
    for most, unit, seconds in ((120, "s", 1), (7200, "min", 60), (172800, "h", 3600)):
        if age < most:
            return f"{age // seconds} {unit}"
    return f"{age // 86400} d"


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def _checked(path: str) -> tuple[list[str], int]:
    """Lines about damage in a step's folder, and the number of bytes that were read. The folder exists, so missing
    files are damage, too."""
    damage: list[str] = []
    total = 0

    def progress(_ctx: Any, _done: int, of: int) -> None:
        nonlocal total
        total = of
    options = _capi.VerifyOptions(on_damage=_capi.LINE(lambda _ctx, what: damage.append(what.decode("utf-8", "replace"))),
                                  on_note=_capi.LINE(lambda _ctx, what: _note(what.decode("utf-8", "replace"))),
                                  on_progress=_capi.PROGRESS(progress))
    try:
        lib.verify(os.fsencode(path), options)
    except Error as e:
        if e.status not in (Status.CORRUPT, Status.NOT_FOUND):
            raise
        damage = damage or [str(e)]
    return damage, total


def _listed(directory: str) -> list[tuple[int, int, str]]:
    """Number, kind and name of each step's folder."""
    listed, n = c.POINTER(_capi.Step)(), c.c_size_t()
    lib.steps_list(os.fsencode(directory), listed, n)
    try:
        return [(listed[i].step, listed[i].kind, listed[i].name.decode()) for i in range(n.value)]
    finally:
        _capi.free(listed)


def _is_step(path: str) -> bool:
    name = os.path.basename(os.path.realpath(path))
    found = os.listdir(path) if os.path.isdir(path) else []
    return name.startswith(("step-", ".tmp-step-", ".abandoned-step-")) or any(
        file == "state.h5" or file.startswith("shard-") for file in found)


def _described(directory: str, step: int, kind: int, name: str, every_byte: bool) -> dict[str, Any]:
    path, seen, damage = os.path.join(directory, name), _capi.Glance(), None
    try:
        lib.step_glance(os.fsencode(path), seen)
        if every_byte and _KINDS[kind] != "partial":
            damage = next(iter(_checked(path)[0]), None)
    except Error as e:
        if e.status not in (Status.CORRUPT, Status.NOT_FOUND, Status.VERSION) and every_byte:
            raise
        damage = None if _KINDS[kind] == "partial" else str(e)
    is_sharded = seen.layout == 1
    return {"name": name, "step": step, "state": "damaged" if damage and kind == 0 else _KINDS[kind],
            "layout": ("sharded" if is_sharded else "global") if seen.files else None, "files": seen.files or None,
            "bytes": seen.bytes, "tensors": seen.tensors or None,
            "ranks": (seen.files if seen.files and is_sharded else seen.ranks) or None,
            "age_s": None if seen.written < 0 else max(0, int(time.time() - seen.written)),
            "survives": None if seen.survives < 0 else seen.survives, "domains": seen.domains or None, "damage": damage,
            "_here": seen.files_here, "_lost": "domains" if seen.has_names else "hosts"}


def _print_step(row: dict[str, Any]) -> None:
    layout = row["layout"] or "-"
    if layout == "sharded" and row["_here"] != row["files"]:
        layout = f"{row['_here']} of {row['files']}"
    survives = "" if row["survives"] is None else (
        f"  survives the loss of {row['survives']} of {row['domains'] or 0} {row['_lost']}")
    print(_ROW.format(row["name"], row["state"], layout, _bytes_text(row["bytes"]), row["tensors"] or "-",
                      row["ranks"] or "-", _age_text(row["age_s"])) + survives
          + (f"  {_plain(row['damage'])}" if row["damage"] else ""))


def _ls(given: argparse.Namespace) -> int:
    directory = _paths.given(given.directory, "DIR")
    if not os.path.isdir(directory):
        raise _Usage(f"{directory}: not a folder")
    found = _listed(directory)
    if not found and _is_step(directory):
        raise _Usage(f"{directory}: is a step's folder; give the directory that it lies in, or try 'dcp-inspect show'")
    rows = [_described(directory, *step, given.verify) for step in found]
    if given.json:
        _print_json({"dir": directory,
                     "steps": [{key: value for key, value in row.items() if key[0] != "_"} for row in rows]})
    elif rows:
        print(_ROW.format("step", "state", "layout", "size", "tensors", "ranks", "age"))
        for row in rows:
            _print_step(row)
    else:
        _note(f"{directory}: holds no steps, which are folders with names such as step-00000120")
    return DIFFERS if given.verify and any(row["damage"] for row in rows) else 0


def _verify(given: argparse.Namespace) -> int:
    path = _paths.given(given.checkpoint, "CKPT")
    if not os.path.isdir(path):
        raise _Usage(f"{path}: not a folder; give the step's folder or the directory of steps")
    names = [name for _, kind, name in _listed(path) if kind == 0]
    if not names and (given.all or not _is_step(path)):
        raise _Usage(f"{path}: holds no complete step")
    found = []
    for name in names if given.all else names[-1:] or [""]:
        step = os.path.join(path, name) if name else path
        damage, n = _checked(step)
        found.append({"path": step, "intact": not damage, "bytes": n, "damage": damage})
        if not given.json:
            for line in damage:
                print(_plain(line))
            n_places = f"{len(damage)} place{'s' * (len(damage) != 1)}"
            print(f"{step}: DAMAGED, {n_places}" if damage else f"{step}: intact, {_bytes_text(n)} checked")
    is_intact = all(row["intact"] for row in found)
    if given.json:
        _print_json({"dir": path, "intact": is_intact, "steps": found} if given.all else found[0])
    elif not is_intact and not given.all and len(names) > 1:
        _note(f"{names[-1]} was used as the newest complete step; the complete step before it is {names[-2]}: to use "
              f"that one, give {os.path.join(path, names[-2])}")
    return 0 if is_intact else DIFFERS


def _matches(globs: Sequence[str], path: str) -> list[str]:
    """The globs that match the tensor's path, with or without /model/."""
    names = (path, path[1:], path.removeprefix("/model/"))
    return [glob for glob in globs if any(fnmatch.fnmatchcase(name, glob) for name in names)]


def _prove(given: argparse.Namespace) -> int:
    with Checkpoint(given.checkpoint) as checkpoint:
        found = {name: entry for name, entry in checkpoint.entries.items() if not given.glob or _matches(given.glob, name)}
        for glob in given.glob:
            if not any(_matches([glob], name) for name in found):
                raise _Usage(f"no tensor matches '{glob}'")
        proof = checkpoint.proof()
        crcs = {name: f"{proof.crc[name]:016x}" for name in found}
        if given.json:
            _print_json({"path": checkpoint.path, "step": checkpoint.step, "layout": checkpoint.layout,
                         "files": checkpoint.files, "state_id": proof.id,
                         "tensors": [{"path": name, "dtype": entry.dtype, "shape": list(entry.shape),
                                      "bytes": _arrays.n_bytes(entry.dtype, entry.shape), "crc64": crcs[name]}
                                     for name, entry in found.items()]})
            return 0
        for name, crc in crcs.items():
            print(f"{crc}  {_plain(name)}")
        print(f"step {checkpoint.step}: state id {proof.id}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m libdcp", description="Looks into checkpoints, as dcp-inspect does. CKPT is a step's folder, or a "
        "directory of steps, meaning its newest complete one.",
        epilog="Exit status: 0 done; 1 differs or corrupt; 2 wrong usage; 3 failure. `python -m libdcp convert` has "
        "its own help. dcp-inspect has further commands: show, diff, stat and layout.")
    parser.add_argument("--version", action="version", version=f"libdcp {libdcp.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(name: str, run: Callable[[argparse.Namespace], int], says: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=says, description=says)
        command.set_defaults(run=run)
        command.add_argument("--json", action="store_true", help="print one JSON object")
        return command
    ls = add("ls", _ls, "lists the steps of a directory")
    ls.add_argument("directory", metavar="DIR")
    ls.add_argument("--verify", action="store_true", help="check every byte of every step that is not partial")
    verify = add("verify", _verify, "checks every byte of a step")
    verify.add_argument("checkpoint", metavar="CKPT")
    verify.add_argument("--all", action="store_true", help="check every complete step of the directory CKPT")
    proof = add("prove", _prove, "prints the tensors' checksums and the state id")
    proof.add_argument("checkpoint", metavar="CKPT")
    proof.add_argument("glob", metavar="GLOB", nargs="*", help="which tensors to print, by their paths with or without "
                       "/model/")
    commands.add_parser("convert", help="between torch.distributed.checkpoint and steps", add_help=False)
    return parser


def main(words: Sequence[str]) -> int:
    """Returns the exit status."""
    if words[:1] == ["convert"]:
        return convert.main(list(words[1:]))
    given = _parser().parse_args(words)
    try:
        return int(given.run(given))
    except (_Usage, ValueError) as e:
        _note(str(e))
        return USAGE
    except Error as e:
        _note(str(e))
        return _EXIT.get(e.status, FAILED)
    except OSError as e:
        _note(str(e))
        return FAILED
