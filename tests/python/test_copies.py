"""An asynchronous save stores the state at the time of its call, whatever changes after the call has returned:
random trees of arrays of all kinds, compared byte for byte with a synchronous save of the same numbers."""

import copy
import os
import pathlib
import random
import tempfile
import threading
import unittest

import numpy as np

import libdcp

LIMIT_S = 60
DTYPES = (np.float32, np.float64, np.int8, np.uint16, np.int64, np.bool_, np.complex64)


def array_of(draw):
    """Returns an array: dense, every second row, transposed, reversed, empty, or a scalar; small, or large enough
    to be written directly."""
    rows, columns = draw.choice(((1, 1), (3, 5), (0, 4), (70, 1000), (301, 2003)))
    numbers = np.random.default_rng(draw.randrange(2**32)).integers(0, 100, (2 * rows, columns))
    whole = numbers.astype(draw.choice(DTYPES))
    if draw.random() < 0.1:
        return np.array(draw.randrange(100), draw.choice(DTYPES))
    return draw.choice((whole, whole[::2], whole.T, whole[::-1], whole[:, ::3]))


def tree_of(draw, depth=2):
    found = {}
    for i in range(draw.randrange(1, 6)):
        if depth and draw.random() < 0.4:
            found[f"folder{i}"] = tree_of(draw, depth - 1)
        elif draw.random() < 0.2:
            found[f"number{i}"] = draw.choice((3, 2.5, "text", [1, 2]))
        elif draw.random() < 0.2:
            found[f"own{i}"] = libdcp.PerRank(array_of(draw))
        elif draw.random() < 0.2:
            values = array_of(draw)
            found[f"shard{i}"] = libdcp.Shard(values, values.shape, (0,) * values.ndim)
        else:
            found[f"x{i}"] = array_of(draw)
    return found


def leaves(tree):
    for value in tree.values():
        if isinstance(value, dict):
            yield from leaves(value)
        elif isinstance(value, (libdcp.PerRank, libdcp.Shard)):
            yield value.array
        elif isinstance(value, np.ndarray):
            yield value


def spoil(tree):
    """Changes the state in every way, including numbers and names."""
    for array in leaves(tree):
        array[...] = 1
    for key, value in list(tree.items()):
        if isinstance(value, list):
            value.append(7)
        elif not isinstance(value, (np.ndarray, dict, libdcp.PerRank, libdcp.Shard)):
            tree[key] = "something else"
    tree["new"] = np.zeros(3)


class Steps:
    """A loader whose state is saved."""

    def __init__(self):
        self.at = 0

    def state_dict(self):
        return {"samples": self.at}

    def load_state_dict(self, state):
        self.at = state["samples"]


class Test(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = pathlib.Path(temporary.name)

    def same(self, one, two):
        for path in sorted((self.dir / two).glob("*.h5")):
            self.assertEqual((self.dir / one / path.name).read_bytes(), path.read_bytes(), path)

    def test_random_trees(self):
        for seed in range(20):
            draw = random.Random(seed)
            tree = {"model": tree_of(draw), "extra": tree_of(draw), "epoch": seed}
            layout = draw.choice(("global", "sharded"))
            limit = draw.choice((None, None, 0, 300_000))
            with self.subTest(seed=seed, layout=layout, limit=limit):
                libdcp.save(self.dir / "plain", seed, copy.deepcopy(tree), layout=layout)
                saving = libdcp.save_async(self.dir / "copied", seed, tree, layout=layout, copy_bytes=limit)
                spoil(tree["model"])
                spoil(tree["extra"])
                saving.wait()
                self.same(f"copied/step-{seed:08}", f"plain/step-{seed:08}")

    def test_nothing_is_written_before_the_call_has_returned(self):
        """So the save must write from its copy."""
        state = {"x": np.full(1 << 22, 3.0), "y": np.full((4, 70000), 4)[::2]}
        returned = threading.Event()
        in_time = []
        with libdcp.Store(self.dir) as store:
            for step in range(3):
                returned.clear()
                saving = store.save_async(step, state, progress=lambda done, total: in_time.append(returned.wait(LIMIT_S)))
                state["x"] += 1
                state["y"] += 1
                saving.fence()
                returned.set()
                saving.wait()
                with libdcp.Checkpoint(store.path(step)) as checkpoint:
                    self.assertTrue((checkpoint["/model/x"] == 3 + step).all())
                    self.assertTrue((checkpoint["/model/y"] == 4 + step).all())
                    self.assertFalse(checkpoint.verify())
        self.assertTrue(in_time and all(in_time))

    def test_a_declared_state(self):
        loader = Steps()
        state = {"w": np.zeros((300, 1000), np.float32), "loader": libdcp.Loader(loader),
                 "buffer": np.zeros(5), "turned": np.zeros((50, 400)).T}
        with libdcp.Store(self.dir) as store:
            declared = store.declare(state)
            for step in range(1, 6):
                loader.at = step
                for name in ("w", "buffer", "turned"):
                    state[name][...] = step
                store.save_async(step, declared, copy_bytes=None if step < 4 else 0)
                loader.at = -1
                for name in ("w", "buffer", "turned"):
                    state[name][...] = -1
        for step in range(1, 6):
            with libdcp.Checkpoint(self.dir / f"step-{step:08}") as checkpoint:
                for name in ("w", "buffer", "turned"):
                    self.assertTrue((checkpoint[f"/model/{name}"] == step).all())
            self.assertEqual(libdcp.load(self.dir / f"step-{step:08}", state)["step"], step)
            self.assertEqual(loader.at, step)

    def test_a_list_of_stores(self):
        state = {"w": np.zeros((300, 1000), np.float32)}
        tiers = [libdcp.Tier(self.dir / "fast", private=True), libdcp.Tier(self.dir / "slow", every=2)]
        with libdcp.Store(tiers) as store:
            for step in range(1, 5):
                state["w"][...] = step
                store.save_async(step, state)
                state["w"][...] = -1
        for name, steps in (("fast", (1, 2, 3, 4)), ("slow", (2, 4))):
            for step in steps:
                libdcp.load(self.dir / name / f"step-{step:08}", state)
                self.assertTrue((state["w"] == step).all())

    def test_forked_meanwhile(self):
        state = {"w": np.full(1 << 21, 1.0)}
        with libdcp.Store(self.dir) as store:
            for step in range(1, 4):
                state["w"][...] = step
                store.save_async(step, state)
                child = os.fork()
                if child == 0:
                    state["w"][...] = -1
                    os._exit(0)
                state["w"][...] = -2
                os.waitpid(child, 0)
        for step in range(1, 4):
            libdcp.load(self.dir / f"step-{step:08}", state)
            self.assertTrue((state["w"] == step).all())

    def test_without_a_copy_the_fence_counts(self):
        state = {"w": np.full(1 << 20, 1.0)}
        with libdcp.Store(self.dir) as store:
            saving = store.save_async(1, state, copy=False)
            saving.fence()
            state["w"][...] = 2
            store.save_async(2, state, copy=False).wait()
        libdcp.load(self.dir / f"step-{1:08}", state)
        self.assertTrue((state["w"] == 1).all())

    def test_options(self):
        state = {"w": np.ones(3)}
        with self.assertRaisesRegex(ValueError, "copy_bytes: -1"):
            libdcp.save_async(self.dir, 1, state, copy_bytes=-1)
        with self.assertRaisesRegex(ValueError, "copy_bytes: 100 bounds a copy, and copy=False makes none"):
            libdcp.save_async(self.dir, 1, state, copy=False, copy_bytes=100)
        with self.assertRaises(TypeError):
            libdcp.save(self.dir, 1, state, copy=True)
        libdcp.save_async(self.dir, 1, state).wait()


if __name__ == "__main__":
    unittest.main()
