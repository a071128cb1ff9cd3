"""Positions of torchdata's StatefulDataLoader within an epoch, in samples, and its state at such a position on a
different number of ranks. Written for torchdata 0.11; its older versions have the same members."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SAMPLES = "samples"  # the member of a state that counts the samples that were read
State = dict[str, Any]
_RANDOM = "random"


class Unmapped(ValueError):
    """States that cannot be converted to a different number of ranks; the message says why."""


def _class(module: str, name: str) -> Any:
    """A class of a module, if the program has imported the module; otherwise a new class, which has no instances."""
    return getattr(sys.modules.get(module), name, None) or type(name, (), {})


def _own(name: str) -> Any:
    return _class("torchdata.stateful_dataloader.sampler", name)


def is_stateful_loader(loader: Any) -> bool:
    return isinstance(loader, _class("torchdata.stateful_dataloader", "StatefulDataLoader"))


def _is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, _class("torch.utils.data", "IterableDataset"))


def _main(state: Mapping[str, Any]) -> Any:
    """The part of a state that belongs to the sampler: with workers, the part in the last snapshot."""
    return state["_snapshot"]["_main_snapshot"] if "_snapshot" in state else state


def _readers(state: Mapping[str, Any]) -> list[State]:
    """The states of the datasets: of each worker, or of the process itself."""
    if "_snapshot" not in state:
        return [{"dataset_state": state["dataset_state"], "fetcher_state": state["fetcher_state"]}]
    workers = state["_snapshot"]["_worker_snapshots"]
    return [{name: workers[f"worker_{i}"][name] for name in ("dataset_state", "fetcher_state")}
            for i in range(len(workers))]


def _length(sized: Any) -> int | None:
    try:
        return len(sized)
    except TypeError:
        return None


class _Reading:
    """How a loader reads a map-style dataset: the samples have an order, of which each of ``shares`` ranks reads its
    part, ``batch`` samples at a time. After equal numbers of batches, the ranks have read the first samples of the
    order."""

    def __init__(self, loader: Any) -> None:
        batches = loader.batch_sampler
        is_shard = isinstance(batches, _class("accelerate.data_loader", "BatchSamplerShard"))
        processes = batches.num_processes if is_shard else 1
        self.loader = loader
        self.sampler: Any = loader.sampler if batches is None else getattr(
            batches.batch_sampler if is_shard else batches, "sampler", None)
        parts = processes if is_shard and batches.split_batches else 1
        self.batch = (getattr(batches, "batch_size", None) or 1) // parts
        self.counts_batches = batches is not None and not isinstance(batches, _own("BatchSampler"))
        is_known = not self.counts_batches or is_shard or type(batches) is _class("torch.utils.data", "BatchSampler")
        self.order = self._order() if is_known else None
        self.shares = processes * getattr(self.sampler, "num_replicas", 1)
        self.samples = _length(loader.dataset)

    def _order(self) -> str | None:
        """The name of the order; None if it is not known, or not the same after a load."""
        kind, sampler = type(self.sampler), self.sampler
        if kind is _class("torch.utils.data", "SequentialSampler"):
            return "sequential"
        if kind in (_class("torch.utils.data", "DistributedSampler"), _own("StatefulDistributedSampler")):
            return f"shuffled with seed {sampler.seed}" if sampler.shuffle else "sequential"
        if kind is _own("RandomSampler"):
            return f"{_RANDOM} with replacement" if sampler.replacement else _RANDOM
        return "seedable" if kind is _class("accelerate.data_loader", "SeedableRandomSampler") else None

    def position(self, state: Mapping[str, Any]) -> State:
        """Where the loader is, for :func:`resharded`: ``samples`` is the number that this rank has read; ``over`` says
        whether this epoch has no further batch."""
        main, steps = _main(state), state.get("_steps_since_snapshot", 0)
        if self.counts_batches or self.loader.batch_sampler is None:
            units = main["_sampler_iter_yielded"] + steps
            length = _length(self.loader.batch_sampler if self.counts_batches else self.sampler)
            samples = units * self.batch
            is_over = length is not None and units >= length
        else:
            samples = main["_sampler_iter_state"]["samples_yielded"] + steps * self.batch
            length = _length(self.sampler)
            rest = length % self.batch if length and self.loader.drop_last else 0
            is_over = length is not None and samples >= length - rest
        return {"order": self.order, "dataset": self.samples, "shares": self.shares, SAMPLES: samples,
                "over": bool(is_over or state["_iterator_finished"])}

    def require_known(self, states: Sequence[State]) -> None:
        """Raises Unmapped if a sampler, or its iterator, has a state of its own that is not known here."""
        batches, sampler = self.loader.batch_sampler, self.sampler
        known = _own("StatefulDistributedSampler")
        for own in batches if self.counts_batches else None, sampler:
            if hasattr(own, "state_dict") and not isinstance(own, known):
                raise Unmapped(f"its {type(own).__name__} has a state of its own")
        if self.order is None and any(_iterator(state) for state in states):
            raise Unmapped(f"the iterator of its {type(sampler).__name__} has a state of its own")

    def state(self, samples: int | None, finished: bool, states: Sequence[State], rank: int) -> State:
        """The loader's state after ``samples`` of this rank's samples; None: after the last one."""
        count = len(self.sampler) if samples is None else samples
        units = -(-count // self.batch)
        index: State | None = None
        iterator: State | None = None
        if self.counts_batches:
            units = len(self.loader.batch_sampler) if samples is None else count // self.batch
        else:
            # 0 once the epoch is over: otherwise torchdata's sampler would skip ``count`` samples of the next epoch.
            sampler = {"yielded": 0 if finished else count} if hasattr(self.sampler, "state_dict") else None
            drawn = {"yielded": count, "generator": _generator(states)} if self._is_random() else None
            if self.loader.batch_sampler is None:
                index, iterator = sampler, drawn
            else:
                iterator = {"samples_yielded": count, **({"sampler_state": sampler} if sampler else {}),
                            **({"sampler_iter_state": drawn} if drawn else {})}
        main = {"_index_sampler_state": index, "_sampler_iter_state": iterator}
        reader = {"dataset_state": _dataset_state(states), "fetcher_state": None}
        return _state(self.loader, main, [reader] * max(1, self.loader.num_workers), units, finished, states, rank)

    def _is_random(self) -> bool:
        return self.order is not None and self.order.startswith(_RANDOM)

    def local_samples(self, was: Mapping[str, Any], rank_count: int, size: int) -> int | None:
        """How many samples each rank must have read, so that all of them together have read the samples that the saving
        ranks had read at the position ``was``; None if the epoch was over.

        Raises:
            Unmapped: the order has changed, or is not known.
        """
        is_random = (was["order"] or "").startswith(_RANDOM) or self._is_random()
        is_inside = not was["over"] and was[SAMPLES] > 0
        if is_inside and self.order is None:
            raise Unmapped(f"the order in which its {type(self.sampler).__name__} reads is not in its state")
        if (is_inside or is_random) and was["order"] != self.order:
            raise Unmapped(f"the order of its samples was {was['order'] or 'unknown'}, "
                           f"and is {self.order or 'unknown'}")
        if is_inside and was["dataset"] != self.samples:
            raise Unmapped(f"the dataset of each rank had {was['dataset']} samples, and this rank's has {self.samples}")
        if is_random and rank_count == 1 < size and self.loader.generator is None:
            raise Unmapped("without a DistributedSampler, and without a generator with the same seed on all ranks, "
                           "each rank reads an order of its own")
        return None if was["over"] else was[SAMPLES] * was["shares"] // self.shares


def _iterator(state: State) -> Any:
    """The state of the sampler's iterator, if it has one."""
    found = _main(state)["_sampler_iter_state"]
    return found.get("sampler_iter_state") if found and "samples_yielded" in found else found


def _generator(states: Sequence[State]) -> Any:
    """The generator of a random order, which must be the same on all ranks."""
    found = [_iterator(state)["generator"] for state in states]
    if any(not np.array_equal(np.asarray(one), np.asarray(found[0])) for one in found):
        raise Unmapped("the ranks read different random orders")
    return found[0]


def _dataset_state(states: Sequence[State]) -> Any:
    """The state of a map-style dataset, if it has one."""
    found = [reader["dataset_state"] for state in states for reader in _readers(state)]
    if any(one != found[0] for one in found):
        raise Unmapped("the ranks' datasets had different states")
    return found[0] if found else None


def _state(loader: Any, main: State, readers: Sequence[State], units: int, finished: bool, states: Sequence[State],
           rank: int) -> State:
    """A state as torchdata's iterators read it: with workers, it is a snapshot with one reader per worker."""
    main = {**main, "_sampler_iter_yielded": units, "_IterableDataset_len_called": None,
            "_shared_seed": _main(states[0])["_shared_seed"]}
    workers = loader.num_workers
    if not workers:
        return {**main, **readers[0], "_num_yielded": units, "_iterator_finished": finished}
    seeds = [_main(state).get("_base_seed") for state in states]
    seed = seeds[rank % len(seeds)]
    base = sys.modules["torch"].initial_seed() % 2**62 if seed is None else seed + rank // len(seeds) * workers
    snapshot = {"_snapshot_step": units, "_last_yielded_worker_id": workers - 1,
                "_main_snapshot": {**main, "_num_workers": workers, "_base_seed": base},
                "_worker_snapshots": {f"worker_{i}": {"worker_id": i, **readers[i]} for i in range(workers)}}
    return {"_snapshot": snapshot, "_steps_since_snapshot": 0, "_iterator_finished": finished}


def _resharded_streams(loader: Any, states: Sequence[State], rank: int, size: int) -> State:
    """The state of an iterable dataset whose own state counts the samples that its reader, a process or a worker, has
    read. Reader i of n reads samples i, i + n and so on; worker w of k on rank r is reader r k + w."""
    if isinstance(loader.dataset, _class("accelerate.data_loader", "IterableDatasetShard")):
        raise Unmapped("what accelerate makes of an iterable dataset has no state")
    if any(state.get("_steps_since_snapshot") for state in states):
        raise Unmapped("its state is some steps old: use snapshot_every_n_steps=1")
    readers = [reader for state in states for reader in _readers(state)]
    counts = [_count(reader) for reader in readers]
    if any(_with_count(reader, 0) != _with_count(readers[0], 0) for reader in readers):
        raise Unmapped(f'the states of its datasets differ in more than "{SAMPLES}"')
    total, had = sum(counts), len(counts)
    if any(count != -(-(total - i) // had) for i, count in enumerate(counts)):
        raise Unmapped(f"its {had} readers have read {counts} samples, which are not the first {total} of all: save when "
                       "each worker has yielded as many batches as the others")
    workers = max(1, loader.num_workers)
    first, new = rank * workers, size * workers
    own = [_with_count(readers[0], -(-max(0, total - first - i) // new)) for i in range(workers)]
    finished = all(state["_iterator_finished"] for state in states)
    yielded = sum(state["_snapshot"]["_snapshot_step"] if "_snapshot" in state else state["_num_yielded"]
                  for state in states)
    return _state(loader, {"_index_sampler_state": None, "_sampler_iter_state": None}, own, yielded // size, finished,
                  states, rank)


def _counted(reader: State) -> list[State]:
    """Of the states of a dataset and of its iterator, those that count samples."""
    found = reader["dataset_state"], (reader["fetcher_state"] or {}).get("dataset_iter_state")
    return [one for one in found if isinstance(one, dict) and type(one.get(SAMPLES)) is int and one[SAMPLES] >= 0]


def _count(reader: State) -> int:
    found = {one[SAMPLES] for one in _counted(reader)}
    if len(found) != 1:
        raise Unmapped("neither the state_dict() of its iterable dataset nor that of the iterator says how many "
                       f'"{SAMPLES}" it has read')
    return int(found.pop())


def _with_count(reader: State, count: int) -> State:
    counted = _counted(reader)

    def changed(state: Any) -> Any:
        return {**state, SAMPLES: count} if any(state is one for one in counted) else state

    iterator = changed((reader["fetcher_state"] or {}).get("dataset_iter_state"))
    return {"dataset_state": changed(reader["dataset_state"]),
            "fetcher_state": {"dataset_iter_state": iterator, "fetcher_ended": False}}


def position(loader: Any, state: Mapping[str, Any]) -> State | None:
    """Where a StatefulDataLoader with a map-style dataset is, to be saved with its state; None for other loaders."""
    if not is_stateful_loader(loader) or _is_iterable(loader) or "_iterator_finished" not in state:
        return None
    try:
        return _Reading(loader).position(state)
    except (LookupError, TypeError):  # the loader's class has a state_dict() of its own
        return None


def shares(loader: Any) -> int | None:
    """Among how many ranks a StatefulDataLoader divides the samples; None for iterable datasets and other loaders."""
    return None if not is_stateful_loader(loader) or _is_iterable(loader) else _Reading(loader).shares


def counts_alike(loader: Any, state: State, was: State) -> bool:
    """Returns true if the position ``was`` is the loader's after it gets the state. It is not if the state counts
    batches, and their size has changed; nor does such a loader accept a state from a different number of workers."""
    reading = _Reading(loader)
    if not reading.counts_batches:
        return True
    workers = _main(state)["_num_workers"] if "_snapshot" in state else 0
    return bool(reading.position(state)[SAMPLES] == was[SAMPLES] and workers == loader.num_workers)


def resharded(loader: Any, states: Sequence[State], positions: Sequence[State | None], rank: int, size: int) -> State:
    """A StatefulDataLoader's state on rank ``rank`` of ``size``.

    Args:
        states: the states of all ranks that saved.
        positions: the positions of these ranks: see :func:`position`.

    Raises:
        Unmapped: they cannot be converted.
    """
    if isinstance(loader, _class("accelerate.data_loader", "DataLoaderDispatcher")):
        raise Unmapped("only rank 0 reads, and accelerate's states don't say how far: use dispatch_batches=False")
    if _is_iterable(loader):
        return _resharded_streams(loader, states, rank, size)
    known = [found for found in positions if found is not None]
    if len(known) < len(states):
        raise Unmapped("the step was saved without the loader's position")
    is_over = all(found["over"] for found in known)
    if not is_over and any(found != known[0] for found in known):
        raise Unmapped("the ranks had not read equal numbers of samples of one order")
    reading = _Reading(loader)
    reading.require_known(states)
    finished = all(state["_iterator_finished"] for state in states)
    return reading.state(reading.local_samples(known[0], len(states), size), finished, states, rank)
