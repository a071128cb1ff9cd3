"""Sharded checkpoints of numpy, torch and DTensor states: fast, atomic, every byte verified.

    libdcp.save("checkpoints", step, {"model": model.state_dict()})
    libdcp.load("checkpoints", {"model": model.state_dict()})
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._arrays import Shard
from ._calls import Loaded
from ._capi import lib as _lib
from ._directory import Pin
from ._lazy import LazyArray
from ._options import Report
from ._read import read
from ._state import State
from ._words import register
from .checkpoint import Checkpoint, Entry, Proof, prove
from .errors import Error, Status
from .ranks import Loader, PerRank, random_state, set_random_state
from .saving import Saving
from .store import Store, Tier, load, save, save_async, steps

__version__: str = _lib.version().decode()
__all__ = ["Checkpoint", "Entry", "Error", "LazyArray", "Loaded", "Loader", "PerRank", "Pin", "Proof", "Report", "Saving",
           "Shard", "State", "Status", "Store", "Tier", "load", "prove", "random_state", "read", "register", "save",
           "save_async", "set_random_state", "steps"]

if TYPE_CHECKING:
    from . import accelerate as accelerate, dcp as dcp, hf as hf, lightning as lightning, transformers as transformers
else:
    def __getattr__(name: str) -> Any:
        """Imports ``libdcp.hf``, ``libdcp.dcp`` (which needs torch) and the adapters of frameworks when they are first
        used."""
        if name in ("accelerate", "dcp", "hf", "lightning", "transformers"):
            return importlib.import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
