"""Failures as exceptions."""

from __future__ import annotations

import enum
import functools
import logging
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

log = logging.getLogger("libdcp")
T = TypeVar("T")


class Status(enum.IntEnum):
    """Why a call failed; the meanings are those of ``dcp/error.h``."""

    OK = 0
    ARG = -1
    MISMATCH = -2
    NOT_FOUND = -3
    CORRUPT = -4
    VERSION = -5
    NO_SPACE = -6
    IO = -7
    COMM = -8
    NO_MEMORY = -9
    UNSUPPORTED = -10
    STATE = -11
    BUSY = -12
    DEVICE = -13
    CANCELLED = -14


def status_of(error: BaseException) -> Status:
    """The status that the other ranks get for an exception."""
    if isinstance(error, Error):
        return error.status
    return Status.IO if isinstance(error, Exception) else Status.CANCELLED


class Error(Exception):
    """A failure of a call of the library; the same on all ranks of a collective call.

    Attributes:
        status: why; the remedy depends on the status.
        rank: the first rank that failed; -1: no single rank.
        ranks: the ranks concerned, as far as they are known; only the first 16.
        path: the file or folder concerned, or "".
        tensor: the tensor's path in the checkpoint, such as "/model/a.weight", or "".
        offset: the position in the file, or None.
        errno: the errno of the system call that failed, or 0.
    """

    _is_of_program = False  # see of_program

    def __init__(self, message: str, *, status: Status, rank: int = -1, ranks: tuple[int, ...] = (), path: str = "",
                 tensor: str = "", offset: int | None = None, errno: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.rank = rank
        self.ranks = ranks
        self.path = path
        self.tensor = tensor
        self.offset = offset
        self.errno = errno

    def saying(self, message: str) -> Error:
        """The same error with another message."""
        return Error(message, status=self.status, rank=self.rank, ranks=self.ranks, path=self.path, tensor=self.tensor,
                     offset=self.offset, errno=self.errno)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickling, by processes that send failures to each other."""
        made = functools.partial(type(self), status=self.status, rank=self.rank, ranks=self.ranks, path=self.path,
                                 tensor=self.tensor, offset=self.offset, errno=self.errno)
        return made, self.args


def of_program(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function of the program, or one that does little but call such functions. An :class:`Error` that the
    program raises there, perhaps because it uses libdcp, says nothing about the step that is being loaded: from here
    on, :func:`is_about_step` is false for it."""
    try:
        return function(*arguments)
    except Error as e:
        e._is_of_program = True
        raise


def call_all(functions: Iterable[Callable[[], object]], goes_on: bool) -> None:
    """Calls functions of the program one after the other, and raises their first exception.

    Args:
        goes_on: calls them all, even after an exception: other ranks call theirs, which may be collective.
    """
    failure: BaseException | None = None
    for function in functions:
        try:
            function()
        except BaseException as e:
            if not goes_on:
                raise
            if failure is not None:
                log.error("another function of the program has failed, too: %r", e)
            failure = failure or e
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # which would keep itself alive, through the frames of its traceback


def is_about_step(failure: BaseException) -> bool:
    """Returns true for a load's failure whose status may mean that the step is damaged or cannot be read. Returns false
    for exceptions of the program's own functions, whatever their type and status."""
    return isinstance(failure, Error) and not failure._is_of_program


def has_status(failure: BaseException, status: Status) -> bool:
    """Returns true for a failure with this status that is not one of the program's own functions."""
    return isinstance(failure, Error) and is_about_step(failure) and failure.status == status


def text_of(failure: BaseException | None) -> str:
    """The type and the text of an exception, whatever its ``__str__`` does."""
    try:
        return f"{type(failure).__name__}: {failure}"
    except Exception:
        return type(failure).__name__


class EarlierFailure(Exception):
    """A failure of an earlier call that this call must report. Raised inside the package, on all ranks, before anything
    is done.

    Attributes:
        failure: the earlier call's exception.
    """

    def __init__(self, failure: BaseException) -> None:
        super().__init__(text_of(failure))
        self.failure = failure
