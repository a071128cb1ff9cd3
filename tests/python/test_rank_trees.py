"""Random states whose keys and values differ between ranks, on 1 to 4 ranks, compared with torch.save and torch.load.

DCP_EXAMPLES is the number of states; DCP_SEED selects another beginning."""

import collections
import io
import math
import os
import pathlib
import shutil
import tempfile
import unittest

import hypothesis
import numpy as np
import torch
from hypothesis import strategies as st

import libdcp
import union_ranks
from rank_pool import Pool

EXAMPLES = int(os.environ.get("DCP_EXAMPLES", "60"))
SEED = int(os.environ.get("DCP_SEED", "1"))
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)
KEYS = st.one_of(st.sampled_from(["a", "b", "w.x", "model", "optimizer", "state", "0", "1", "rng", "\u00fc", "param_groups"]),
                 st.integers(0, 3))
SECTIONS = st.sampled_from(["model", "optimizer", "extra", "rng", "w", "b.c"])


def setUpModule():
    global pool
    pool = Pool(4)


def tearDownModule():
    pool.close()


@st.composite
def tensors(draw):
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    numbers = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 2, shape)
    return torch.from_numpy(np.asarray(numbers)).to(draw(st.sampled_from(DTYPES)))


WORDS = st.one_of(st.none(), st.booleans(), st.integers(-2**70, 2**70), st.floats(), st.text(max_size=4), st.binary(max_size=4),
                  st.complex_numbers())
HASHABLE = st.one_of(st.integers(-9, 9), st.text(max_size=3), st.booleans())
VALUES = st.recursive(
    st.one_of(WORDS, tensors()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
                            st.dictionaries(KEYS, inner, max_size=3),
                            st.sets(HASHABLE, max_size=3), st.frozensets(HASHABLE, max_size=3),
                            st.lists(inner, max_size=2).map(collections.deque),
                            st.dictionaries(HASHABLE, st.integers(0, 9), max_size=3).map(collections.Counter),
                            st.lists(st.tuples(KEYS, inner), max_size=2).map(collections.OrderedDict)),
    max_leaves=6)


class Each(collections.namedtuple("Each", "values")):
    """A value for each rank."""


class Some(collections.namedtuple("Some", "value ranks")):
    """A value that some ranks have, equal on all of them."""


@st.composite
def states(draw, ranks):
    """A tree of Some and Each."""
    def leaf():
        if draw(st.integers(0, 2)) == 0:
            kinds = draw(st.sampled_from([VALUES, WORDS, tensors(), st.just(torch.ones(2))]))
            return Each([draw(kinds) for _ in range(ranks)])
        held = draw(st.sets(st.integers(0, ranks - 1), min_size=1)) if draw(st.booleans()) else set(range(ranks))
        return Some(draw(VALUES), held)

    def mapping(keys, depth):
        return {key: mapping(KEYS, depth - 1) if depth and draw(st.booleans()) else leaf()
                for key in draw(st.lists(keys, unique_by=str, max_size=3))}
    return mapping(SECTIONS, 2)


def of_rank(tree, rank, wrap):
    """Returns what a rank has of it."""
    if isinstance(tree, Each):
        return wrap(tree.values[rank % len(tree.values)])
    if isinstance(tree, Some):
        return tree.value
    return {key: of_rank(inner, rank, wrap) for key, inner in tree.items()
            if not isinstance(inner, Some) or rank in inner.ranks}


def torch_gives(value):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def blank(value):
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value)
    if type(value) in (dict, collections.OrderedDict):
        return type(value)((key, blank(inner)) for key, inner in value.items())
    if type(value) in (list, tuple, collections.deque):
        return type(value)(map(blank, value))
    return None if type(value) is not libdcp.PerRank else libdcp.PerRank(blank(value.value))


def same(one, other):
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, (float, complex)):
        return repr(one) == repr(other)
    if isinstance(one, collections.abc.Mapping):
        return list(map(repr, one)) == list(map(repr, other)) if type(one) is collections.OrderedDict and not all(
            same(a, b) for a, b in zip(one, other)) else set(map(repr, one)) == set(map(repr, other)) and all(
                same(inner, other[key]) for key, inner in one.items())
    if isinstance(one, (list, tuple, collections.deque)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, (set, frozenset)):
        return set(map(repr, one)) == set(map(repr, other))
    return one == other


def unwrapped(value):
    """Returns the state with the values of PerRank in its place."""
    if isinstance(value, libdcp.PerRank):
        return value.value
    return {key: unwrapped(inner) for key, inner in value.items()} if type(value) is dict else value


def refused(answer):
    """Returns what a state must not have: two tensors with one path, or a name that is not valid in a path."""
    return isinstance(answer, (ValueError, libdcp.Error)) and any(
        text in str(answer) for text in ("would both be", "component", "is reserved"))


def settings(examples):
    return hypothesis.settings(max_examples=examples, deadline=None, derandomize=False, database=None,
                               suppress_health_check=list(hypothesis.HealthCheck))


class Test(unittest.TestCase):
    def check(self, tree, ranks, loading, call, **options):
        scratch = tempfile.mkdtemp(prefix="dcp-trees-")
        try:
            given = [of_rank(tree, rank, libdcp.PerRank) for rank in range(ranks)]
            answers = pool.call(call("save"), [(scratch, 1, state) for state in given])
            hypothesis.assume(not any(map(refused, answers)))
            for answer in answers:
                if isinstance(answer, Exception):
                    raise answer
                self.assertEqual(answer, [], "a warning")
            with libdcp.Checkpoint(scratch) as checkpoint:
                self.assertEqual(checkpoint.verify(), [])
            # Ranks that the saving run did not have get the values of an earlier rank, but keep their own
            # ones.
            templates = [blank_of(of_rank(tree, rank % ranks, libdcp.PerRank)) for rank in range(loading)]
            before = [unwrapped(template) for template in templates]
            whole = loading >= ranks
            found = pool.results(call("load"), [(scratch, state, {} if whole else {"strict": False}) for state in templates])
            for rank, loaded in enumerate(found):
                wanted = torch_gives(of_rank(tree, rank % ranks, lambda value: value))
                if rank >= ranks:
                    wanted = with_own(of_rank(tree, rank % ranks, libdcp.PerRank), wanted, before[rank])
                self.assertTrue(same(unwrapped(loaded), wanted), f"rank {rank}: {unwrapped(loaded)}, not {wanted}")
        finally:
            shutil.rmtree(scratch)

    def test_saves_and_loads(self):
        @hypothesis.seed(SEED)
        @settings(EXAMPLES)
        @hypothesis.given(st.data())
        def run(data):
            ranks, loading = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
            self.check(data.draw(states(ranks)), ranks, loading, lambda what: getattr(union_ranks, f"tree_{what}"))
        run()


def blank_of(state):
    """Returns a state to load into: mappings with names stay, and everything else is something else."""
    return {key: blank_of(inner) if type(inner) is dict and inner else blank(inner) for key, inner in state.items()}


def with_own(state, wanted, own):
    """Returns the state of a rank that the saving run did not have."""
    if isinstance(state, libdcp.PerRank):
        return own
    if type(state) is not dict:
        return wanted
    return {key: with_own(inner, wanted[key], own[key]) for key, inner in state.items()}


if __name__ == "__main__":
    unittest.main()
