"""What each rank has separately: random number generators, and the position of its data loader."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from . import _positions, _words
from ._arrays import Shard, is_like, is_torch_tensor, put_into
from ._decoding import Decoder
from ._positions import SAMPLES
from .errors import Error, Status, of_program

Shape = tuple[int, ...]
Rows = npt.NDArray[np.uint8]
Reshard = Callable[[list[dict[str, Any]], int, int], Mapping[str, Any]]

_POSITION = "libdcp.position"  # the member of a saved state that the loader does not get back
_TAGGED = "$tagged"  # the only member of a state's row if the state has tags
_PAGE = 4096


class PerRank:
    """A value that each rank has separately: anything that a state can contain. A load, on any number of ranks, gives
    rank r what rank r has saved; a rank that the saving run did not have keeps its value.

    Args:
        value: an array with the same shape and type on all ranks becomes a tensor in the checkpoint with one row per
            rank, and is loaded in place. For other values, such as numbers, mappings and arrays of different shapes,
            the checkpoint's JSON contains what is not a tensor, and each rank's tensors are separate tensors; a load
            replaces the old value by a new one, but fills those arrays of the old value that have the stored shape and
            type. In both cases, a load replaces None, and an array with a different shape but the same number of
            dimensions, by a new array of the stored shape and type.

    The checkpoint does not say whether an array was numpy's or torch's. If there is no array to replace, for example
    because the value is None, the new array is numpy's if torch is not imported, or if all arrays of the state are
    numpy's and it contains no object with a state dict; otherwise the new array is torch's.

    Attributes:
        value: the given value, or the loaded one.
        loaded: whether the last load had something for this rank.
    """

    _next: Any = None  # filled by a load, to replace the value

    def __init__(self, value: Any) -> None:
        if hasattr(value, "placements") and hasattr(value, "to_local"):
            raise TypeError(f"libdcp.PerRank: a {type(value).__name__} is one tensor of all ranks; save it as it is, or give "
                            "PerRank what its to_local() returns")
        self.value = value
        self.loaded = False

    def begin_load(self, new: Any) -> None:
        """Called before a load, with an array to fill instead of the value, or with None. The value changes only after
        the load has succeeded: a load that fails, or that has nothing for this rank, leaves it as it was."""
        self._next = new

    def end_load(self, is_loaded: bool) -> None:
        """Called after a load, which reports whether it had something for this rank."""
        self.loaded = is_loaded
        if is_loaded and self._next is not None and not put_into(self.value, self._next):
            self.value = self._next
        self._next = None

    @property
    def overwritten(self) -> Any:
        """During a load: the array that :meth:`end_load` would write to; None if there is none."""
        return self.value if self._next is not None and is_like(self.value, self._next) else None

    @property
    def array(self) -> Any:
        """The value, if it is an array."""
        return self.value

    @property
    def is_array(self) -> bool:
        return self._next is not None or isinstance(self.value, np.ndarray) or is_torch_tensor(self.value) or hasattr(
            self.value, "__cuda_array_interface__")

    def part(self, rank: int, size: int, stored: Shape | None) -> Shard:
        """This rank's row of the rows that are saved, or that were ``stored``."""
        rows = stored[0] if stored else size
        array = self.array if self._next is None else self._next
        row = array[None] if rank < rows else array[None][:0]
        return Shard(row, (rows, *array.shape), (min(rank, rows), *[0] * len(array.shape)))


class Stateful(Protocol):
    """What torchdata's loaders, and user-defined samplers, provide."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state_dict: dict[str, Any], /) -> None: ...


class Loader:
    """A data loader with its own state on each rank. The state is saved as JSON, with its types, and with small
    tensors, such as a generator's state; a load gives it back to the loader.

    If as many ranks load the state as saved it, each rank gets its state back. On a different number of ranks,
    ``reshard`` determines the states. Without it, the states are converted if they show which samples the ranks have
    read.

    **torchdata's StatefulDataLoader**, including accelerate's, with a map-style dataset: the epoch continues in its
    order. The ranks together have read the first p samples of this order, and rank r of n continues where it would be
    if the epoch had begun on n ranks and each of them had read p // n samples. So each remaining sample comes once,
    apart from the sampler's own padding at the epoch's end. If n does not divide p, up to n - 1 of the last samples
    that were read come again, which keeps the ranks' numbers of batches equal. An epoch that was over stays over. The
    size of batches and the number of workers may differ from before. The sampler can be a DistributedSampler,
    torchdata's StatefulDistributedSampler or, if all ranks read the same samples, the loader's own, with or without
    ``shuffle``. A ``batch_sampler`` can be torch's BatchSampler or what accelerate makes; these count batches, so more
    samples can come again, but fewer than n batches. Other samplers are accepted at the beginning and the end of an
    epoch.

    The same loader with an iterable dataset: the ``state_dict()`` of the dataset or of its iterator must count, in its
    member "samples", the samples that were yielded. With k workers on each of n ranks, worker w on rank r must read
    samples i, i + n k, i + 2 n k and so on of an order, where i = r k + w; the count is converted. If k > 1, the step
    must have been saved when all workers had yielded the same number of batches.

    **Any other loader**: the states must give the number of samples that each rank has read, in their member "samples",
    and must be equal otherwise. The samples that the ranks together have read are then taken to be the first ones of an
    order in which rank r of n reads samples r, r + n, r + 2 n and so on, and each rank's "samples" becomes the number
    of those first samples that are its own.

    Other states are refused. The loader's ``state_dict()`` and ``load_state_dict()`` must not need other ranks.

    Args:
        loader: an object with ``state_dict()``, which a checkpoint must be able to represent, and
            ``load_state_dict()``.
        room: the most bytes of a state as JSON, without its tensors; the same on all ranks.
        reshard: called on each rank by a load on a different number of ranks. Its arguments are the list of the states
            of all ranks that saved, in the order of ranks; this rank's number; and the present number of ranks. It
            returns this rank's state. An exception ends the load on all ranks.
    """

    hook = "libdcp.Loader(loader, reshard=function)"  # what an error recommends

    def __init__(self, loader: Stateful, *, room: int = 4096, reshard: Reshard | None = None) -> None:
        self.loader = loader
        self.room = room
        self.reshard = reshard

    def part(self, rank: int, size: int, stored: Shape | None) -> Shard:
        """New memory, from which this rank's state is saved; or into which all ranks' states are loaded, if some were
        ``stored``."""
        if stored:
            return Shard(np.zeros(stored, np.uint8), stored, (0, 0))
        try:
            _, arrays = self._text()
        except TypeError:  # which the save reports
            arrays = 0
        room = self.room + -(-arrays // _PAGE) * _PAGE
        return Shard(np.zeros((1, room), np.uint8), (size, room), (rank, 0))

    @property
    def _source(self) -> Any:
        """The loader whose state this is."""
        return self.loader

    def _text(self) -> tuple[bytes, int]:
        """The state as JSON, and the number of its bytes that are arrays."""
        encoder = _words.Inline()
        state = dict(of_program(self.loader.state_dict))
        position = _positions.position(self._source, state)
        word = encoder.word(state if position is None else {**state, _POSITION: position}, ())
        text = json.dumps(word, allow_nan=False)
        return (f'{{"{_TAGGED}": {text}}}' if '{"$' in text else text).encode(), encoder.array_bytes

    def refresh(self, row: Rows, name: str) -> None:
        """Writes the state into the row, as text that is padded with spaces.

        Raises:
            TypeError: something in it cannot be represented.
            ValueError: it is too long.
        """
        try:
            text, _ = self._text()
        except TypeError as e:
            raise TypeError(f"{name}: the loader's {e}") from None
        if len(text) > row.shape[1]:
            raise ValueError(f"{name}: the loader's state takes {len(text)} bytes as JSON; pass room={len(text)} or more "
                             "to libdcp.Loader")
        row[0] = np.frombuffer(text.ljust(row.shape[1]), np.uint8)

    def restore(self, rows: Rows, rank: int, size: int, name: str) -> None:
        """Gives the loader its state: one of those that were loaded, or one that is made from them.

        Raises:
            libdcp.Error: UNSUPPORTED: a row is not a JSON object; MISMATCH: the states do not fit this number of ranks.
        """
        states = [_object(bytes(row), name) for row in rows]
        positions = [state.pop(_POSITION, None) for state in states]
        if not self._is_resized(states, positions, size):
            state: Mapping[str, Any] = states[rank]
        elif self.reshard is not None:
            state = of_program(self.reshard, states, rank, size)
        else:
            state = self._converted(states, positions, rank, size, name)
        of_program(lambda: self.loader.load_state_dict(dict(state)))

    def _is_resized(self, states: list[dict[str, Any]], positions: list[Any], size: int) -> bool:
        """Whether a different number of ranks saved, or the samples were divided among a different number of ranks, or
        in different batches that the state counts."""
        shares = positions[0] and _positions.shares(self._source)
        return len(positions) != size or bool(shares and (
            shares != positions[0]["shares"] or not _positions.counts_alike(self._source, states[0], positions[0])))

    def _converted(self, states: list[dict[str, Any]], positions: list[Any], rank: int, size: int,
                   name: str) -> dict[str, Any]:
        try:
            if _positions.is_stateful_loader(self._source):
                return _positions.resharded(self._source, states, positions, rank, size)
            return _by_samples(states, rank, size)
        except (_positions.Unmapped, LookupError, TypeError) as e:  # the last two: not a state that torchdata makes
            raise Error(f"{name}: the loader's state of {len(states)} ranks can't be divided among {size}: {e}; "
                        f"{self.hook} can convert it: function(states, rank, size) gets the states of all ranks that "
                        "saved, this rank's number and the number of ranks, and returns this rank's state",
                        status=Status.MISMATCH, tensor=name) from None


def _by_samples(states: list[dict[str, Any]], rank: int, size: int) -> dict[str, Any]:
    counts = [state.pop(SAMPLES, None) for state in states]
    if not all(type(count) is int and count >= 0 for count in counts):
        raise _positions.Unmapped(f'it does not say how many "{SAMPLES}" each rank has read')
    if any(state != states[0] for state in states):
        raise _positions.Unmapped(f'the ranks\' states differ in more than "{SAMPLES}"')
    return {**states[0], SAMPLES: max(0, -(-(sum(counts) - rank) // size))}


def _object(text: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
        is_tagged = isinstance(found, dict) and list(found) == [_TAGGED]
        found = Decoder(is_tagged).value(found[_TAGGED] if is_tagged else found)
    except Error as e:
        raise e.saying(f"{name}: a loader's state: {e}") from None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):  # its checksum is right, so this is not damage, for which a load would fall back
        raise Error(f"{name}: a loader's state that is no JSON object", status=Status.UNSUPPORTED, tensor=name)
    return found


def _python_words() -> npt.NDArray[np.float64]:
    _, words, gauss = random.getstate()
    return np.array([*words, gauss is not None, gauss or 0.0], np.float64)  # words of 32 bits, exact


def _numpy_words() -> npt.NDArray[np.float64]:
    state: Any = np.random.get_state(legacy=False)
    inner = state["state"]
    return np.array([*inner["key"], inner["pos"], state["has_gauss"], state["gauss"]], np.float64)


def random_state() -> dict[str, PerRank]:
    """The states of the generators of ``random``, of ``numpy.random`` and, if torch is imported, of torch: the one for
    the CPU and, if the process uses a GPU, the one for that GPU. The result is a section to save with a state, and to
    load into; after a load, call :func:`set_random_state`."""
    found = {"python": PerRank(_python_words()), "numpy": PerRank(_numpy_words())}
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = PerRank(torch.get_rng_state())
        if torch.cuda.is_initialized():
            found["cuda"] = PerRank(torch.cuda.get_rng_state())
    return found


def set_random_state(state: Mapping[str, PerRank]) -> None:
    """Sets the generators to what a load has stored in the result of :func:`random_state`. A generator for which the
    checkpoint had nothing on this rank does not change."""
    loaded = {name: value.array for name, value in state.items() if value.loaded}
    if "python" in loaded:
        *words, has_gauss, gauss = loaded["python"].tolist()
        random.setstate((3, tuple(map(int, words)), gauss if has_gauss else None))
    if "numpy" in loaded:
        words = loaded["numpy"]
        np.random.set_state({"bit_generator": "MT19937", "has_gauss": int(words[-2]), "gauss": float(words[-1]),
                             "state": {"key": words[:-3].astype(np.uint32), "pos": int(words[-3])}})
    torch: Any = sys.modules.get("torch")
    if "torch" in loaded:
        torch.set_rng_state(loaded["torch"])
    if "cuda" in loaded:
        torch.cuda.set_rng_state(loaded["cuda"])
