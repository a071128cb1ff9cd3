"""``python -m libdcp.convert SRC DST``: converts torch.distributed.checkpoint's directories to steps, and vice versa;
also converts files of torch.save, and folders of accelerate and DeepSpeed, to steps."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import time
from typing import Any

from . import (_accelerate_import, _dcp_export, _dcp_import, _dcp_metadata, _deepspeed_import, _foreign, _paths, _source_state,
               _torch_import)
from ._dcp_rename import Renames, Unusable
from .errors import Error, Status
from .store import step_path, steps

_USAGE = 2


class _Usage(Exception):
    pass


class _Bar:
    """A progress line on a terminal, for work that takes more than two seconds."""

    def __init__(self) -> None:
        self._begin = self._last = time.monotonic()
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if sys.stderr.isatty() and now - self._begin > 2 and now - self._last > 0.2:
            self._last, self._shown = now, True
            print(f"\r{100 * done // max(total, 1)} % of {total / 1e9:.2f} GB", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m libdcp.convert",
        description="Converts a directory of torch.distributed.checkpoint, a file of torch.save, or a folder of accelerate "
        "or DeepSpeed to a step, or a step to a directory of torch.distributed.checkpoint, whichever SRC is. Little of it is in memory at any time, and nothing that a pickle names is run.",
        epilog="Exit status: 0 done, 1 failure, 2 wrong usage.")
    parser.add_argument("source", metavar="SRC", help="a directory with .metadata; or accelerate's of "
                        "save_state, whose files and directories are joined; or DeepSpeed's; or a file of "
                        "torch.save with a state dict, such as model.pt; or a step's folder, or a directory "
                        "of steps, meaning the newest one")
    parser.add_argument("destination", metavar="DST", help="a directory of steps, or the directory for "
                        "torch.distributed.checkpoint, which must not exist")
    parser.add_argument("--step", type=int, help="the number of the step that is made; by default that of SRC's name, "
                        "as in step-100, epoch=1-step=100.ckpt, checkpoint_100, iter_0000100 and 100, else 0")
    parser.add_argument("--rename", metavar="OLD=NEW", action="append", default=[], help="what SRC has under the keys "
                        "OLD (joined by dots) is under NEW in DST, as in optim=optimizer or app.model=model; can be "
                        "given several times. dcp-train reads the weights from model and the moments from optimizer")
    parser.add_argument("--skip-objects", action="store_true", help="leave out what is neither a tensor nor "
                        "consists of numbers, texts, lists and mappings, and print its names")
    parser.add_argument("--flat", action="store_true", help="in the directory that is made, /model/NAME is NAME "
                        "instead of model.NAME")
    return parser


_STEPS = (re.compile(r"step[-_=]?(\d{1,18})(?!\d)"),
          re.compile(r"(?:^|iter|checkpoint|ckpt)[-_=]?(\d{1,18})(?:\.\w+)?$"))


def _number(source: str) -> int:
    """The step's number in the names that frameworks give: Hugging Face's checkpoint-500, accelerate's
    checkpoint_000003, Lightning's epoch=1-step=240.ckpt, DeepSpeed's global_step100, Megatron's iter_0000100."""
    folder, name = os.path.split(os.path.abspath(source))
    if _dcp_metadata.ACCELERATE.fullmatch(name):
        name = os.path.basename(folder)
    found = next(filter(None, (pattern.search(name) for pattern in _STEPS)), None)
    return int(found.group(1)) if found else 0


def _skip(name: str, why: str) -> None:
    print(f"left out: {name}: {why}", file=sys.stderr)


def _tell_rest(source: str, parts: list[str]) -> None:
    """Reports what else is in the directory that contains the parts, such as a scheduler's file of torch.save."""
    rest = sorted(set(os.listdir(source)) - {os.path.basename(part) for part in parts}) if parts != [source] else []
    if rest:
        print(f"left out: {', '.join(rest)}: not of torch.distributed.checkpoint", file=sys.stderr)


def _number_for(arguments: argparse.Namespace) -> int:
    """The number of the step that is made."""
    if arguments.flat:
        raise _Usage("--flat is for converting a step, and SRC is none")
    step = _number(arguments.source) if arguments.step is None else int(arguments.step)
    if step < 0:
        raise _Usage("--step: a step's number is not negative")
    if step in steps(arguments.destination):
        raise _Usage(f"{arguments.destination} has a step {step} already; name another by --step")
    return step


def _import(arguments: argparse.Namespace, parts: list[str], bar: _Bar) -> str:
    step = _number_for(arguments)
    report = _dcp_import.convert(parts, arguments.destination, step, renames=Renames(arguments.rename),
                                 progress=bar, skip=_skip if arguments.skip_objects else None)
    _tell_rest(arguments.source, parts)
    return f"{step_path(arguments.destination, step)}: {report.bytes} bytes of tensors"


def _import_file(arguments: argparse.Namespace, bar: _Bar) -> str:
    step = _number_for(arguments)
    if not _torch_import.begins_as_zip(arguments.source):
        raise Error(f"{arguments.source} is not a file of torch.save; "
                    + (_foreign.kind(arguments.source) or "nothing else is known about it"), status=Status.UNSUPPORTED)
    folder, name = os.path.split(arguments.source)
    with _torch_import.opened(folder or ".") as files:
        return _save(arguments, step, _torch_import.state_in(files, name, _skip if arguments.skip_objects else None), bar)


def _import_accelerate(arguments: argparse.Namespace, parts: list[str], bar: _Bar) -> str:
    step = _number_for(arguments)
    with contextlib.ExitStack() as stack:
        files, *inner = (stack.enter_context(_torch_import.opened(path)) for path in (arguments.source, *parts))
        left: dict[str, str] = {}
        state = _accelerate_import.state_in(files, inner, stack, left.__setitem__,
                                            _skip if arguments.skip_objects else None)
        made = _save(arguments, step, state, bar)
    if left:
        print("left out: " + "; ".join(f"{name}: {why}" for name, why in left.items()), file=sys.stderr)
    return made


def _import_deepspeed(arguments: argparse.Namespace, folder: str, bar: _Bar) -> str:
    arguments.source = folder
    step = _number_for(arguments)
    with _torch_import.opened(folder) as files:
        return _save(arguments, step, _deepspeed_import.state_in(folder, files, _skip if arguments.skip_objects else None), bar)


def _save(arguments: argparse.Namespace, step: int, state: dict[Any, Any], bar: _Bar) -> str:
    report = _source_state.save(arguments.destination, step, Renames(arguments.rename).of_state(state), bar)
    return f"{step_path(arguments.destination, step)}: {report.bytes} bytes of tensors"


def _export(arguments: argparse.Namespace, bar: _Bar) -> str:
    if arguments.step is not None or arguments.skip_objects:
        raise _Usage("--step and --skip-objects are for making a step, and SRC is a step already, or contains steps")
    if os.path.lexists(arguments.destination):
        raise _Usage(f"{arguments.destination} exists; nothing is overwritten")
    for member in _dcp_export.convert(arguments.source, arguments.destination, flat=arguments.flat,
                                      renames=Renames(arguments.rename), progress=bar):
        print(f"left out: the member {member} of the step's JSON, which is not part of its state", file=sys.stderr)
    return str(arguments.destination)


def _refuse_urls(arguments: argparse.Namespace) -> None:
    try:
        for name in ("source", "destination"):
            _paths.given(getattr(arguments, name), "SRC" if name == "source" else "DST")
    except ValueError as e:
        raise _Usage(str(e)) from None


def _convert(arguments: argparse.Namespace, bar: _Bar) -> str:
    if os.path.isfile(arguments.source):
        return _import_file(arguments, bar)
    if not os.path.isdir(arguments.source):
        raise _Usage(f"{arguments.source} is neither a directory nor a file")
    parts = _dcp_metadata.parts(arguments.source)
    if parts != [arguments.source] and _accelerate_import.is_folder(arguments.source):
        return _import_accelerate(arguments, parts, bar)
    if parts:
        return _import(arguments, parts, bar)
    folder = _deepspeed_import.folder_of(arguments.source)
    return _import_deepspeed(arguments, folder, bar) if folder else _export(arguments, bar)


def main(words: list[str] | None = None) -> int:
    """Returns the exit status."""
    arguments = _parser().parse_args(words)
    bar = _Bar()
    try:
        _refuse_urls(arguments)
        made = _convert(arguments, bar)
    except (_Usage, Unusable) as e:
        print(f"libdcp.convert: {e}", file=sys.stderr)
        return _USAGE
    except ImportError as e:
        print(f"libdcp.convert: to write torch.distributed.checkpoint's files torch is needed: {e}", file=sys.stderr)
        return 1
    except (Error, OSError, TypeError, ValueError, RecursionError, MemoryError) as e:
        print(f"libdcp.convert: {e or type(e).__name__}", file=sys.stderr)
        return 1
    finally:
        bar.end()
    print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
