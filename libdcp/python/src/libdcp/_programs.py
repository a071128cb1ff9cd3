"""``python -m libdcp COMMAND`` and the script ``libdcp`` start the programs of the package: dcp-inspect, dcp-export,
dcp-import and dcp-reshard, built without MPI."""

from __future__ import annotations

import os
import pathlib
import signal
import sys
from collections.abc import Sequence

import libdcp

from . import _capi, convert

USAGE, FAILED = 2, 3

_COMMANDS = {
    "ls": ("dcp-inspect", "lists the steps of a directory"),
    "show": ("dcp-inspect", "prints the tensors of a step, or the values of one"),
    "verify": ("dcp-inspect", "checks every byte"),
    "prove": ("dcp-inspect", "prints the tensors' checksums and the state id"),
    "diff": ("dcp-inspect", "compares two checkpoints"),
    "stat": ("dcp-inspect", "prints sizes by kind and module, and statistics"),
    "layout": ("dcp-inspect", "shows which rank holds what, as a table or drawing"),
    "export": ("dcp-export", "makes a Hugging Face folder or a plain HDF5 file of a step"),
    "import": ("dcp-import", "makes step 0 of a Hugging Face folder"),
    "reshard": ("dcp-reshard", "rewrites a step for another number of ranks, mesh or layout"),
    "convert": ("", "makes a step of a checkpoint of torch.distributed.checkpoint, or such a checkpoint of a step"),
}
_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS")  # as in libdcp/comm/alone/mpi.h


def _note(text: str) -> None:
    print(f"libdcp: {text}", file=sys.stderr)


def _help() -> str:
    lines = [f"  {name:<8} {says}" for name, (_, says) in _COMMANDS.items()]
    return "\n".join(["Usage: libdcp COMMAND ARGUMENTS   (or: python -m libdcp COMMAND ARGUMENTS)", "", *lines, "",
                      "Each command has its own --help. All commands run as one process; under mpirun, the programs",
                      "dcp-inspect, dcp-export, dcp-import and dcp-reshard of a build with MPI share the work.", "",
                      "Exit status: 0 done; 1 differs or corrupt; 2 wrong usage; 3 failure; 143 stopped by SIGTERM."])


def _start(command: str, words: Sequence[str]) -> int:
    """Becomes the program of the command, which is beside the library: ``bin/dcp-inspect`` beside ``_native/libdcp.so``
    in the package, and beside ``lib/libdcp.so`` in a build. Returns only if that fails."""
    program = _COMMANDS[command][0]
    path = pathlib.Path(_capi.PATH).resolve().parent.parent / "bin" / program
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and a program inherits that
    arguments = [command, *words] if program == "dcp-inspect" else words
    try:
        os.execv(path, [f"libdcp {command}", *arguments])
    except OSError as e:
        _note(f"cannot start {path}: {e.strerror}: the programs must be in the folder bin beside that of {_capi.PATH}")
        return FAILED


def _convert(words: Sequence[str]) -> int:
    for size in filter(None, map(os.environ.get, _SIZES)):
        if size.isdigit() and int(size) > 1:
            _note(f"convert runs as one process, not as {size} ranks: start it without a launcher")
            return USAGE
    return convert.main(list(words))


def main(words: Sequence[str]) -> int:
    """Returns the exit status, unless the process becomes another program."""
    command, rest = (words[0], words[1:]) if words else ("", [])
    if command in ("--help", "-h"):
        print(_help())
        return 0
    if command in ("--version", "-V"):
        print(f"libdcp {libdcp.__version__}")
        return 0
    if command not in _COMMANDS:
        wrong = f"'{command}' is none of" if command else "missing command: one of"
        _note(f"{wrong} {', '.join(_COMMANDS)}; try 'libdcp --help'")
        return USAGE
    return _convert(rest) if command == "convert" else _start(command, rest)


def script() -> int:
    """The script ``libdcp``."""
    return main(sys.argv[1:])
