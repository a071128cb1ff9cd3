"""torchdata's StatefulDataLoader in libdcp.Loader, loaded on another number of ranks than saved it; all ranks in one
process."""

import dataclasses
import itertools
import random
import tempfile
import unittest

import numpy as np

import libdcp
from libdcp import State

try:
    import torch
    from hypothesis import given, settings, strategies as some
    from torch.utils.data import (BatchSampler, DistributedSampler, IterableDataset, RandomSampler, SequentialSampler,
                                  get_worker_info)
    from torchdata.stateful_dataloader import StatefulDataLoader
    from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler
except ImportError:
    raise unittest.SkipTest("needs torch, torchdata and hypothesis") from None

DIVIDED = "distributed", "stateful", "batches", "single"
WHOLE = "sequential", "random"
SEED = 5


class Numbers(list):
    """A map-style dataset with a state of its own, the same on all ranks."""

    def state_dict(self):
        return {"version": len(self)}

    def load_state_dict(self, state):
        assert state == self.state_dict()


@dataclasses.dataclass
class Run:
    """``kind`` of sampler, on ``size`` ranks, in batches of ``batch`` samples, with ``workers`` processes."""
    kind: str
    size: int
    batch: int = 2
    workers: int = 0
    length: int = 20
    shuffle: bool = False
    drop_last: bool = False
    drop_tail: bool = False
    every: int = 1

    @property
    def is_divided(self):
        return self.kind in DIVIDED

    def loader(self, rank):
        data, workers = Numbers(range(self.length)), {"num_workers": self.workers, "snapshot_every_n_steps": self.every}
        if not self.is_divided:
            generator = torch.Generator().manual_seed(SEED)
            return StatefulDataLoader(data, self.batch, self.kind == "random", generator=generator,
                                      drop_last=self.drop_last, **workers)
        kind = StatefulDistributedSampler if self.kind == "stateful" else DistributedSampler
        sampler = kind(data, self.size, rank, shuffle=self.shuffle, seed=SEED, drop_last=self.drop_tail)
        if self.kind == "batches":
            return StatefulDataLoader(data, batch_sampler=BatchSampler(sampler, self.batch, self.drop_last), **workers)
        if self.kind == "single":
            return StatefulDataLoader(data, None, sampler=sampler, **workers)
        return StatefulDataLoader(data, self.batch, sampler=sampler, drop_last=self.drop_last, **workers)

    def loaders(self):
        return [self.loader(rank) for rank in range(self.size)]

    def order(self):
        """All samples in the order of an epoch, without padding."""
        if self.kind == "random":
            return read(dataclasses.replace(self, drop_last=False).loader(0))
        generator = torch.Generator().manual_seed(SEED)
        return torch.randperm(self.length, generator=generator).tolist() if self.shuffle else list(range(self.length))


class Stream(IterableDataset):
    """Counts the samples that a reader has read, a worker or a process: in the dataset's state, or its iterator's."""

    def __init__(self, rank, size, counts_in_iterator=False, length=24):
        self.rank, self.size, self.length, self.counts_in_iterator = rank, size, length, counts_in_iterator
        self.samples = self.epoch = 0

    def __iter__(self):
        return Cursor(self) if self.counts_in_iterator else self

    def __next__(self):
        worker = get_worker_info()
        workers, own = (worker.num_workers, worker.id) if worker else (1, 0)
        at = self.rank * workers + own + self.samples * self.size * workers
        if at >= self.length:
            raise StopIteration
        self.samples += 1
        return at

    def state_dict(self):
        return {"epoch": self.epoch} if self.counts_in_iterator else {"samples": self.samples, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.samples, self.epoch = state.get("samples", self.samples), state["epoch"]


class Plain(IterableDataset):
    def __iter__(self):
        return iter(range(20))


class Cursor:
    def __init__(self, stream):
        self.stream = stream

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.stream)

    def state_dict(self):
        return {"samples": self.stream.samples}

    def load_state_dict(self, state):
        self.stream.samples = state["samples"]


def read(loader, batches=None):
    """The samples of so many batches, or of all that remain in the epoch."""
    return [int(n) for batch in itertools.islice(iter(loader), batches) for n in np.atleast_1d(np.asarray(batch))]


def saved(loaders):
    """The rows that a step has of them."""
    rows = [libdcp.Loader(loader).part(0, 1, None).array for loader in loaders]
    for loader, row in zip(loaders, rows):
        libdcp.Loader(loader).refresh(row, "loader")
    return np.concatenate(rows)


def loaded(rows, loaders, **options):
    for rank, loader in enumerate(loaders):
        libdcp.Loader(loader, **options).restore(rows, rank, len(loaders), "loader")
    return loaders


def interleaved(parts):
    return [n for group in itertools.zip_longest(*parts) for n in group if n is not None]


class Test(unittest.TestCase):
    def check(self, was, now, batches):
        """Reads so many batches on each rank of ``was``, and what remains on the ranks of ``now``; if they are more
        than an epoch has, what remains is a new epoch."""
        loaders = was.loaders()
        had = [read(loader, batches) for loader in loaders]
        before = len(loaders[0])
        rest = [read(loader) for loader in loaded(saved(loaders), now.loaders())]
        order, units = was.order(), now.batch if now.kind == "batches" else 1
        self.assertEqual(len(set(map(len, rest))), 1, "ranks have different numbers of samples")
        if batches == before:
            self.assertEqual(rest, [[]] * now.size)
            return
        first = 0 if batches > before else len(had[0]) * (was.size if was.is_divided else 1)
        if batches > before and now.kind == "random":
            order = rest[0]
            self.assertEqual(sorted(order)[:len(order)], sorted(set(order)))
        begin = first - first % (units * now.size if now.is_divided else 1)
        for found in [interleaved(rest)] if now.is_divided else rest:
            self.complete(now, found, order[begin:])

    def complete(self, now, found, expected):
        """``found`` are the expected samples, followed by padding, or without those that are dropped."""
        ranks, batch = now.size if now.is_divided else 1, 1 if now.kind == "single" else now.batch
        self.assertEqual(found[:len(expected)], expected[:len(found)])
        self.assertLess(len(found) - len(expected), ranks)
        if now.drop_last or now.drop_tail:
            self.assertLess(len(expected) - len(found), ranks * batch + ranks)
        else:
            self.assertGreaterEqual(len(found), len(expected))

    def test_any_position(self):
        """No sample is lost, and none comes twice, apart from those that the manual of libdcp.Loader mentions."""
        sizes, flag = some.integers(1, 4), some.booleans()
        runs = some.builds(Run, some.just(""), sizes, some.integers(1, 5), drop_last=flag, drop_tail=flag)
        kinds = some.one_of(some.tuples(some.sampled_from(DIVIDED), some.sampled_from(DIVIDED), flag),
                            some.sampled_from([(kind, kind, False) for kind in WHOLE]),
                            some.tuples(some.just("sequential"), some.sampled_from(DIVIDED), some.just(False)))

        @settings(max_examples=300, deadline=None, derandomize=True, database=None)
        @given(runs, runs, kinds, some.integers(1, 30), some.integers(0, 31))
        def check(was, now, kinds, length, batches):
            was.kind, now.kind, shuffle = kinds
            was.shuffle = now.shuffle = shuffle
            was.length = now.length = length
            if length < max(was.size, now.size):  # a sampler that drops the tail would be empty
                was.drop_tail = now.drop_tail = False
            over = len(was.loader(0)) + 1
            if now.size == was.size:  # torchdata continues; after a stateful sampler's epoch by an empty one
                now, over = was, over - (was.kind == "stateful")
            self.check(was, now, min(batches, over))

        check()

    def test_workers(self):
        """Processes that read ahead, snapshots that are some steps old, and other numbers of them than before."""
        rng = random.Random(1)
        for kind in DIVIDED + WHOLE:
            for workers, other in (2, 2), (0, 2), (2, 0):
                was = Run(kind, rng.randint(1, 3), rng.randint(1, 3), workers, shuffle=kind != "sequential",
                          every=rng.choice((1, 3)))
                now = dataclasses.replace(was, size=was.size % 3 + 1, batch=rng.randint(1, 3), workers=other)
                if kind == "random":  # which draws other numbers with workers
                    now.workers = workers
                batches = rng.randint(0, len(was.loader(0)) + 1)
                with self.subTest(was=was, now=now, batches=batches):
                    self.check(was, now, batches)

    def test_other_batches_on_as_many_ranks(self):
        """torchdata counts the batches of a BatchSampler, and not samples, so their size matters."""
        for batch, other, workers, others in (2, 4, 0, 0), (4, 2, 0, 0), (2, 3, 0, 2), (2, 2, 2, 0), (2, 4, 2, 2):
            for size in 1, 2:
                was = Run("batches", size, batch, workers, length=24)
                now = dataclasses.replace(was, batch=other, workers=others)
                with self.subTest(was=was, now=now):
                    self.check(was, now, 3)

    def test_iterable(self):
        """A dataset that counts, or whose iterator does: on other ranks, with other workers, also after the epoch."""
        for (size, workers), (other, others), in_iterator, batches in (
                ((2, 0), (3, 0), False, 2), ((3, 0), (2, 2), True, 3), ((1, 2), (2, 0), False, 4),
                ((2, 2), (1, 2), True, 2), ((2, 0), (4, 0), True, 0), ((4, 0), (1, 0), False, 3), ((2, 0), (1, 0), False, 7)):
            with self.subTest(size=size, workers=workers, other=other, others=others):
                was = [StatefulDataLoader(Stream(r, size, in_iterator), 2, num_workers=workers) for r in range(size)]
                now = [StatefulDataLoader(Stream(r, other, in_iterator), 3, num_workers=others) for r in range(other)]
                had = [n for loader in was for n in read(loader, batches)]
                rest = [n for loader in loaded(saved(was), now) for n in read(loader)]
                self.assertEqual(sorted(had + rest), list(range(24)))

    def test_batches_of_accelerate(self):
        """Ranks that take turns at whole batches, or each a part of a batch: from the last whole total batch on."""
        from accelerate.data_loader import BatchSamplerShard

        def loaders(size, batch, split):
            whole = BatchSampler(SequentialSampler(range(24)), batch * size if split else batch, False)
            return [StatefulDataLoader(Numbers(range(24)), batch_sampler=BatchSamplerShard(whole, size, rank, split))
                    for rank in range(size)]

        for (size, batch), (other, now), split, batches in itertools.product(
                ((2, 3), (3, 2)), ((1, 4), (2, 2), (4, 1)), (False, True), range(5)):
            if size != other:
                with self.subTest(size=size, batch=batch, other=other, now=now, split=split, batches=batches):
                    was = loaders(size, batch, split)
                    read_first = sorted(n for loader in was for n in read(loader, batches))
                    rest = sorted(n for loader in loaded(saved(was), loaders(other, now, split)) for n in read(loader))
                    done = size * batch * batches
                    self.assertEqual(read_first, list(range(done)))
                    self.assertEqual(rest, list(range(done - done % (other * now) if done < 24 else 24, 24)))

    def test_through_files(self):
        """With a real step; the random order also continues in the next epoch, equally on all ranks."""
        was, now = Run("random", 2, 3), Run("random", 3, 2)
        loaders = was.loaders()
        had = [read(loader, 3) for loader in loaders]
        with tempfile.TemporaryDirectory(prefix="dcp-loader-") as scratch:
            libdcp.save(scratch, 1, {"data": {"loader": saved(loaders)}})
            found = now.loaders()
            for rank, loader in enumerate(found):
                libdcp.load(scratch, State({"data": {"loader": libdcp.Loader(loader)}}, rank, 3))
        rest = [read(loader) for loader in found]
        self.assertEqual([had[0] + one for one in rest], [was.order()] * 3)
        following = [read(loader) for loader in found]
        self.assertEqual(following, [following[0]] * 3)
        self.assertNotEqual(following[0], was.order())

    def test_other_groups(self):
        """As many ranks as before, which divide the samples among more groups: from tp=2 to tp=1."""
        was = [Run("distributed", 2, 3).loader(rank // 2) for rank in range(4)]
        had = [read(loader, 2) for loader in was]
        now = loaded(saved(was), Run("distributed", 4, 2).loaders())
        self.assertEqual(interleaved([had[0], had[2]]) + interleaved(map(read, now)), list(range(20)))

    def test_function(self):
        """What a reshard function gets and returns; it precedes the conversion."""
        was = Run("distributed", 2, 2).loaders()
        _ = [read(loader, 3) for loader in was]
        states = [loader.state_dict() for loader in was]
        given = []

        def reshard(states, rank, size):
            given.append((states, rank, size))
            return {**states[0], "_sampler_iter_state": {"samples_yielded": 19}}

        now = loaded(saved(was), Run("distributed", 1, 2).loaders(), reshard=reshard)
        self.assertEqual(given, [(states, 0, 1)])
        self.assertEqual(read(now[0]), [19])

    def test_refused(self):
        """Every reason; the error names the function that a program can pass, and what it gets."""
        def own(sampler, **options):
            return [StatefulDataLoader(Numbers(range(20)), 2, sampler=sampler, **options)]

        def unseeded():
            return [StatefulDataLoader(Numbers(range(20)), 2, shuffle=True) for _ in range(2)]

        def streams(size, workers=0, **options):
            return [StatefulDataLoader(Stream(rank, size), 2, num_workers=workers, **options) for rank in range(size)]

        pair = Run("distributed", 2).loaders()
        uneven = Run("distributed", 2).loaders()
        read(uneven[0], 3)
        plain = [StatefulDataLoader(Plain(), 2)]
        random_order = RandomSampler(range(20), generator=torch.Generator().manual_seed(1))
        for loaders, batches, now, said in (
                (own(random_order), 1, pair, "order of its samples was unknown"),
                (pair, 1, own(random_order), "the order in which its RandomSampler reads"),
                (Run("distributed", 1, shuffle=True).loaders(), 1, pair, "was shuffled with seed 5, and is sequential"),
                (Run("random", 1).loaders(), 0, pair, "was random, and is sequential"),
                (Run("sequential", 1, length=19).loaders(), 1, pair, "had 19 samples, and this rank's has 20"),
                (uneven, 0, Run("distributed", 1).loaders(), "the ranks had not read equal numbers"),
                (unseeded()[:1], 1, unseeded(), "each rank reads an order of its own"),
                (unseeded(), 1, unseeded()[:1], "different random orders"),
                (streams(1, 2), 1, streams(2), r"have read \[2, 0\] samples"),
                (streams(2, 2, snapshot_every_n_steps=4), 2, streams(1), "some steps old"),
                (plain, 1, streams(2), "says how many \"samples\"")):
            with self.subTest(said):
                for loader in loaders if batches else ():
                    read(loader, batches)
                with self.assertRaisesRegex(
                        libdcp.Error, f"{said}.*libdcp.Loader.loader, reshard=function. can convert it: "
                        "function.states, rank, size. gets the states of all ranks") as raised:
                    loaded(saved(loaders), now)
                self.assertEqual(raised.exception.status, libdcp.Status.MISMATCH)


if __name__ == "__main__":
    unittest.main()
