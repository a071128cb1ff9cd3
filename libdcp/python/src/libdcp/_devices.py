"""The library's devices, which copy from and to a GPU's memory."""

from __future__ import annotations

import ctypes as c
import sys

from ._capi import lib

_made: dict[tuple[int, int], c.c_void_p] = {}  # by number and stream; never freed: stores use them until closed


def _stream(number: int) -> int:
    """The stream on which torch launches kernels; 0, the default stream, in programs without torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0
    handle: int = torch.cuda.current_stream(number).cuda_stream
    return handle


def device(number: int) -> c.c_void_p:
    """The device for GPU ``number``; saves and loads wait for what was launched on its current stream.

    Raises:
        libdcp.Error: DEVICE: there is no such GPU; UNSUPPORTED: the library was built without CUDA.
    """
    key = number, _stream(number)
    if key not in _made:
        handle = c.c_void_p()
        lib.device_cuda_create(number, key[1] or None, handle)
        _made[key] = handle
    return _made[key]


def stand_in(number: int, handle: c.c_void_p) -> None:
    """After this call, ``handle``, a dcp_device that the caller made, copies for GPU ``number``."""
    _made[number, 0] = handle
