"""Paths that callers pass; opening files safely; making files and folders durable."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import IO, Any

from .errors import Error, Status

Path = str | os.PathLike[str]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(//?)")


def is_url(path: Path) -> bool:
    """Returns true for a URL. pathlib turns ``s3://bucket`` into ``s3:/bucket``, which may also be a path in a folder
    ``s3:``."""
    found = _SCHEME.match(os.fsdecode(path))
    if found is None or found[2] == "//":
        return found is not None
    return not isinstance(path, str) and not os.path.isdir(found[1] + ":")


def given(path: Path, what: str, order: str = "") -> str:
    """A path of a file system, as text.

    Args:
        what: the purpose of the path, for messages.
        order: the arguments of the caller's function, for users who confuse their order.

    Raises:
        TypeError: it is not a path.
        ValueError: it is a URL, empty, or contains a character that no path has.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        hint = f"; the arguments are {order}" if order else ""
        if isinstance(path, (list, tuple)):
            hint += "; a list of stores is what libdcp.Store takes"
        raise TypeError(f"{what}: of type {type(path).__name__}, which is no path{hint}")
    text = os.fsdecode(path)
    if not text:
        raise ValueError(f"{what}: an empty text is no path; \".\" is the current directory")
    if "\0" in text or any("\ud800" <= letter <= "\udfff" and not "\udc80" <= letter <= "\udcff" for letter in text):
        raise ValueError(f"{what}: {text!r} contains a character that no path can contain")
    if is_url(path):
        scheme = text.partition(":")[0]
        raise ValueError(f"{what}: {text} is a URL, and {scheme}:// is not supported: checkpoints lie in directories of "
                         f"a file system (a directory of that name is ./{text})")
    return text


def here() -> str:
    """The working directory; "" if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def anchored(path: str, folder: str) -> str:
    """The path as it was meant when ``folder`` was the working directory: if the working directory has changed since, a
    relative path is joined to ``folder``. A Tier's path can begin with braces."""
    begin = re.sub(r"^\{env:([^}]*)\}", lambda found: os.environ.get(found[1], ""), path)
    is_told_by_itself = os.path.isabs(begin) or not folder or folder == here() or "{" in folder
    return path if is_told_by_itself else os.path.join(folder, path)


def open_regular(path: Path) -> int:
    """Opens a file in a folder that comes from elsewhere, where any name may be that of a pipe or a device: opening a
    pipe would wait for its writer.

    Returns:
        A descriptor to read from, which the caller closes.

    Raises:
        libdcp.Error: CORRUPT: it is not a regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Error(f"{os.fsdecode(path)}: is not a regular file", status=Status.CORRUPT, path=os.fsdecode(path))
    return fd


def sync(stream: IO[bytes]) -> None:
    """Makes what was written to a file durable."""
    stream.flush()
    os.fsync(stream.fileno())


def sync_folder(path: str) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def published(folder: str) -> Iterator[str]:
    """Makes a folder that gets its name at the end of the block, once it is complete and durable, and is removed if the
    block raises an exception. If the process is killed, the folder remains as ``.tmp-NAME-`` and 12 random hexadecimal
    digits, which no other export uses; process ids would not do, since processes on hosts that share a file system can
    have equal ones.

    Args:
        folder: its absolute path; an empty folder there is replaced.
    """
    parent, name = os.path.split(folder)
    os.makedirs(parent, exist_ok=True)
    made = os.path.join(parent, f".tmp-{name}-{secrets.token_hex(6)}")
    os.mkdir(made)
    try:
        yield made
        for inner, _, _ in os.walk(made):
            sync_folder(inner)
        os.rename(made, folder)
        sync_folder(parent)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
