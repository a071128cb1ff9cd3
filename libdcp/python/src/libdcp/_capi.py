"""The C library through ctypes: its structs, and its functions, which raise exceptions instead of returning statuses.

Declares what the headers in ``dcp/`` declare; their comments are the manual.
"""

from __future__ import annotations

import ctypes as c
import os
import pathlib
from typing import Any

from .errors import Error, Status

MAX_DIMS = 8
STAGING_NONE = 2**64 - 1


class DcpError(c.Structure):
    _fields_ = [("status", c.c_int), ("rank", c.c_int), ("message", c.c_char * 1024), ("system_error", c.c_int),
                ("n_ranks", c.c_int), ("ranks", c.c_int * 16), ("offset", c.c_uint64), ("tensor", c.c_char * 1032),
                ("path", c.c_char * 4096), ("reserved", c.c_char * 256)]


class Tensor(c.Structure):
    _fields_ = [("path", c.c_char_p), ("dtype", c.c_int), ("ndim", c.c_uint32), ("shape", c.c_uint64 * MAX_DIMS)]


class Box(c.Structure):
    _fields_ = [("start", c.c_uint64 * MAX_DIMS), ("count", c.c_uint64 * MAX_DIMS)]


class Message(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_uint64), ("peer", c.c_int)]


U64P = c.POINTER(c.c_uint64)
BROADCAST = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_uint64, c.c_int)
ALLREDUCE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_uint64, c.c_int)
GATHER = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_uint64, c.c_void_p, c.c_int)
ALLTOALL = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, U64P, c.c_void_p, U64P)
BARRIER = c.CFUNCTYPE(c.c_int, c.c_void_p)
DUPLICATE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(c.c_void_p))
FREE = c.CFUNCTYPE(None, c.c_void_p)
HOST_OF = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int)
EXCHANGE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.POINTER(Message), c.c_uint64, c.POINTER(Message), c.c_uint64)
PROGRESS = c.CFUNCTYPE(None, c.c_void_p, c.c_uint64, c.c_uint64)
STOP = c.CFUNCTYPE(c.c_int, c.c_void_p)
PHASE = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_double, c.c_double)
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
SOURCE = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_uint64, c.c_uint64, c.c_void_p, c.POINTER(DcpError))
LINE = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)
FILLED = c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_uint64, c.c_double, c.c_double)
TIERS_LOAD = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.POINTER(DcpError))


class Sized(c.Structure):
    """A struct that begins with its size."""

    def __init__(self, **members: Any) -> None:
        super().__init__(c.sizeof(self), **members)


class CommOps(Sized):
    _fields_ = [("size", c.c_size_t), ("broadcast", BROADCAST), ("allreduce", ALLREDUCE), ("gather", GATHER),
                ("alltoall", ALLTOALL), ("barrier", BARRIER), ("duplicate", DUPLICATE), ("free", FREE),
                ("threads", c.c_int), ("host_of", HOST_OF), ("exchange", EXCHANGE)]


_POLICIES: list[tuple[str, Any]] = [("keep_every", c.c_uint64), ("keep_seconds", c.c_uint64), ("keep_best", c.c_uint32),
                                    ("keep_highest", c.c_int), ("keep_metric", c.c_char_p)]


class StoreOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("keep", c.c_uint32), ("replace", c.c_int), ("keep_latest", c.c_int),
                ("private_dirs", c.c_int), ("redundancy", c.c_char_p), ("tool", c.c_char_p), ("log", LOG),
                ("log_ctx", c.c_void_p), ("take_over", c.c_int), ("domain", c.c_char_p), ("stripe_count", c.c_int64),
                ("stripe_bytes", c.c_uint64), *_POLICIES]


class TierStruct(Sized):
    _fields_ = [("size", c.c_size_t), ("path", c.c_char_p), ("every", c.c_uint64), ("keep", c.c_uint32),
                ("is_private", c.c_int), ("redundancy", c.c_char_p), ("layout", c.c_int), ("domain", c.c_char_p),
                ("stripe_count", c.c_int64), ("stripe_bytes", c.c_uint64), *_POLICIES]


class TiersOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("replace", c.c_int), ("tool", c.c_char_p), ("log", LOG), ("log_ctx", c.c_void_p),
                ("on_filled", FILLED), ("filled_ctx", c.c_void_p), ("take_over", c.c_int),
                ("on_fill_progress", PROGRESS), ("fill_progress_ctx", c.c_void_p), ("loads_only", c.c_int)]


class TiersStep(c.Structure):
    _fields_ = [("step", c.c_uint64), ("tier", c.c_size_t)]


class Seldom(c.Structure):
    """A ``stop`` function that is called only now and then, since each call takes the interpreter from other
    computation."""

    _fields_ = [("stop", STOP), ("ctx", c.c_void_p), ("seconds", c.c_double), ("asked", c.c_double)]


class SaveOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("layout", c.c_int), ("engine", c.c_int), ("shards", c.c_int),
                ("about_json", c.c_char_p), ("staging_bytes", c.c_uint64), ("when_busy", c.c_int),
                ("on_progress", PROGRESS), ("progress_ctx", c.c_void_p), ("stop", STOP), ("stop_ctx", c.c_void_p),
                ("on_phase", PHASE), ("phase_ctx", c.c_void_p), ("replicas", c.c_int), ("make_room", c.c_int),
                ("copy_bytes", c.c_uint64), ("is_copied", c.c_int)]


class ReportStruct(Sized):
    _fields_ = [("size", c.c_size_t), ("bytes", c.c_uint64), ("cloned_bytes", c.c_uint64), ("unchanged", c.c_uint64),
                ("engine", c.c_int), ("total_s", c.c_double), ("plan_s", c.c_double), ("gather_s", c.c_double),
                ("copy_s", c.c_double), ("write_s", c.c_double), ("sync_s", c.c_double), ("publish_s", c.c_double),
                ("slow_ratio", c.c_double), ("slow_s", c.c_double), ("median_s", c.c_double), ("slow_rank", c.c_int),
                ("slow_host", c.c_char * 68)]


class Rename(c.Structure):
    _fields_ = [("from_", c.c_char_p), ("to", c.c_char_p)]


class LoadOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("only", c.POINTER(c.c_char_p)), ("n_only", c.c_size_t),
                ("renames", c.POINTER(Rename)), ("n_renames", c.c_size_t), ("cast", c.c_int),
                ("missing_keys", c.c_int), ("unexpected_keys", c.c_int), ("engine", c.c_int), ("on_missing", LINE),
                ("ctx", c.c_void_p), ("on_progress", PROGRESS), ("progress_ctx", c.c_void_p), ("stop", STOP),
                ("stop_ctx", c.c_void_p)]


class VerifyOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("on_damage", LINE), ("on_note", LINE), ("ctx", c.c_void_p),
                ("on_progress", PROGRESS), ("progress_ctx", c.c_void_p), ("stop", STOP), ("stop_ctx", c.c_void_p)]


class ProveOptions(Sized):
    _fields_ = [("size", c.c_size_t), ("replicas", c.c_int), ("log", LOG), ("log_ctx", c.c_void_p), ("stop", STOP),
                ("stop_ctx", c.c_void_p)]


class Step(c.Structure):
    _fields_ = [("step", c.c_uint64), ("kind", c.c_int), ("name", c.c_char * 64)]


P = c.c_void_p
OUT = c.POINTER(c.c_void_p)
ERR = c.POINTER(DcpError)

# First the functions whose last argument is an error and that return a status; then the others.
_STATUS: dict[str, list[Any]] = {
    "comm_self": [OUT],
    "comm_from_ops": [c.POINTER(CommOps), P, c.c_int, c.c_int, OUT],
    "comm_set_host": [P, c.c_char_p],
    "state_create": [OUT],
    "state_add_strided": [P, c.POINTER(Tensor), c.POINTER(Box), P, c.POINTER(c.c_int64)],
    "state_add_many": [P, c.c_size_t, P, P, P],
    "state_add_source": [P, c.POINTER(Tensor), c.POINTER(Box), SOURCE, P, c.c_int],
    "state_add_device": [P, c.POINTER(Tensor), c.POINTER(Box), P, P],
    "device_cuda_create": [c.c_int, P, OUT],
    "store_open": [P, c.c_char_p, c.POINTER(StoreOptions), OUT],
    "store_continue_from": [P, c.c_uint64],
    "store_mark_intact": [P, c.c_uint64],
    "step_remove": [P, c.c_uint64],
    "step_pin": [c.c_char_p, OUT],
    "steps_list": [c.c_char_p, c.POINTER(c.POINTER(Step)), c.POINTER(c.c_size_t)],
    "save": [P, c.c_uint64, P, c.c_char_p, c.POINTER(SaveOptions), c.POINTER(ReportStruct)],
    "save_async": [P, c.c_uint64, P, c.c_char_p, c.POINTER(SaveOptions), OUT],
    "save_copy": [P, P, c.POINTER(SaveOptions), c.POINTER(c.c_int)],
    "save_wait": [P, c.POINTER(ReportStruct)],
    "tiers_open": [P, c.POINTER(TierStruct), c.c_size_t, c.POINTER(TiersOptions), OUT],
    "tiers_continue_from": [P, c.c_uint64],
    "tiers_mark_intact": [P, c.c_size_t, c.c_uint64],
    "tiers_save": [P, c.c_uint64, P, c.c_char_p, c.POINTER(SaveOptions), c.c_int, c.POINTER(ReportStruct)],
    "tiers_save_async": [P, c.c_uint64, P, c.c_char_p, c.POINTER(SaveOptions)],
    "tiers_wait": [P, c.POINTER(ReportStruct)],
    "tiers_wait_in_thread": [P, c.POINTER(c.c_size_t), c.POINTER(ReportStruct)],
    "tiers_steps": [P, c.POINTER(TierStruct), c.c_size_t, c.POINTER(c.POINTER(TiersStep)), c.POINTER(c.c_size_t)],
    "tiers_load_step": [P, c.c_uint64, TIERS_LOAD, P],
    "tiers_load": [P, TIERS_LOAD, P, U64P],
    "checkpoint_open": [P, c.c_char_p, OUT],
    "checkpoint_open_private": [P, c.c_char_p, OUT],
    "load_with": [P, P, c.POINTER(LoadOptions), c.POINTER(ReportStruct)],
    "checkpoint_read": [P, c.c_char_p, c.POINTER(Box), P],
    "about_read": [c.c_char_p, c.POINTER(c.c_void_p)],
    "verify": [c.c_char_p, c.POINTER(VerifyOptions)],
    "prove": [P, P, c.POINTER(ProveOptions), OUT],
    "checkpoint_crc": [P, c.c_size_t, U64P],
    "st_header": [c.POINTER(Tensor), c.c_size_t, c.POINTER(c.c_void_p), U64P],
    "st_open_incomplete": [c.c_char_p, OUT],
    "st_read": [P, c.c_char_p, c.c_uint64, c.c_uint64, P],
}
_OTHERS: dict[str, tuple[Any, list[Any]]] = {
    "version": (c.c_char_p, []),
    "status_text": (c.c_char_p, [c.c_int]),
    "comm_rank": (c.c_int, [P]),
    "comm_size": (c.c_int, [P]),
    "comm_destroy": (None, [P]),
    "comm_set_stop": (None, [P, STOP, P]),
    "state_destroy": (None, [P]),
    "state_local_bytes": (c.c_uint64, [P]),
    "store_close": (None, [P]),
    "step_unpin": (None, [P]),
    "save_fence_within": (c.c_int, [P, c.c_double]),
    "save_is_done": (c.c_int, [P]),
    "save_cancel": (None, [P]),
    "tiers_close": (None, [P]),
    "tiers_is_due": (c.c_int, [P, c.c_uint64]),
    "tiers_has": (c.c_int, [P, c.c_size_t, c.c_uint64]),
    "tiers_fence_within": (c.c_int, [P, c.c_double]),
    "tiers_is_done": (c.c_int, [P]),
    "tiers_is_filled": (c.c_int, [P]),
    "checkpoint_close": (None, [P]),
    "checkpoint_path": (c.c_char_p, [P]),
    "checkpoint_step": (c.c_uint64, [P]),
    "checkpoint_layout": (c.c_int, [P]),
    "checkpoint_files": (c.c_int, [P]),
    "checkpoint_json": (c.c_char_p, [P]),
    "checkpoint_tensors": (c.c_size_t, [P]),
    "checkpoint_find": (c.POINTER(Tensor), [P, c.c_char_p]),
    "checkpoint_tensor": (c.POINTER(Tensor), [P, c.c_size_t]),
    "checkpoint_state_id": (c.c_int, [P, U64P]),
    "proof_destroy": (None, [P]),
    "proof_id": (c.c_uint64, [P]),
    "proof_tensors": (c.c_size_t, [P]),
    "proof_tensor": (c.POINTER(Tensor), [P, c.c_size_t]),
    "proof_crc": (c.c_uint64, [P, c.c_size_t]),
    "st_close": (None, [P]),
    "st_tensors": (c.c_size_t, [P]),
    "st_tensor": (c.POINTER(Tensor), [P, c.c_size_t]),
    "convert": (c.c_int, [c.c_int, P, c.c_int, P, c.c_uint64]),
}


def kept(function: Any) -> Any:
    """Keeps a C callback from ever being freed: when the interpreter ends, it frees what modules hold, while threads
    may still call the callback."""
    c.pythonapi.Py_IncRef(c.py_object(function))
    return function


def raise_error(status: int, err: DcpError) -> None:
    """Raises the library's error."""
    known = min(err.n_ranks, len(err.ranks))
    raise Error(err.message.decode("utf-8", "replace"), status=Status(status), rank=err.rank,
                ranks=tuple(err.ranks[:known]), path=err.path.decode("utf-8", "surrogateescape"),
                tensor=err.tensor.decode("utf-8", "replace"), offset=None if err.offset == 2**64 - 1 else err.offset,
                errno=err.system_error)


class Library:
    """The library's functions, without their prefix; those that return a status raise :class:`Error`.

    Arguments for pointers are passed directly, without ctypes' byref(): the garbage collector can't look into byref's
    result, so a traceback that contains such a result would forever keep the options, their functions, and the
    exceptions that these functions have raised.
    """

    def __init__(self, path: str) -> None:
        self._library = c.CDLL(path)
        for name, arguments in _STATUS.items():
            self._declare(name, c.c_int, [*arguments, ERR])
            setattr(self, name, self._raising(name))
        for name, (result, arguments) in _OTHERS.items():
            setattr(self, name, self._declare(name, result, arguments))
        self.stop_seldom = c.cast(self._library.dcp_stop_seldom, STOP)  # takes a struct dcp_seldom

    def _declare(self, name: str, result: Any, arguments: list[Any]) -> Any:
        function = getattr(self._library, "dcp_" + name)
        function.restype = result
        function.argtypes = arguments
        return function

    def _raising(self, name: str) -> Any:
        function = getattr(self._library, "dcp_" + name)

        def call(*arguments: Any) -> None:
            err = DcpError()
            status = function(*arguments, c.byref(err))
            if status:
                raise_error(status, err)
        return call

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self._library} has no dcp_{name}")


def _find() -> str:
    named = os.environ.get("LIBDCP_LIBRARY")
    return named or str(pathlib.Path(__file__).parent / "_native" / "libdcp.so")


PATH = _find()
lib = Library(PATH)
_libc = c.CDLL(None)
_libc.free.argtypes = [c.c_void_p]
_libc.free.restype = None
_fnmatch = c.PyDLL(None).fnmatch  # it is called for thousands of paths, each time too briefly to release Python's lock
_fnmatch.argtypes = [c.c_char_p, c.c_char_p, c.c_int]
_fnmatch.restype = c.c_int


def free(pointer: Any) -> None:
    """Frees memory that the library says must be freed with free()."""
    _libc.free(c.cast(pointer, c.c_void_p))


def matches(glob: bytes, path: bytes) -> bool:
    """Returns true if the path matches the glob, as the library decides it. Python's fnmatch has other rules for
    backslashes, [^a] and [[:alpha:]]."""
    return not _fnmatch(glob, path, 0)


def path_bytes(path: str) -> bytes:
    """A path for :func:`matches`. The path of what is not a tensor may contain characters that no C text has."""
    return path.replace("\0", "\ufffd").encode("utf-8", "replace")
