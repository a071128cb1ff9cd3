"""libdcp.read(lazy=True): arrays that are read and verified when they are indexed. With numpy alone, or torch."""

import copy
import gc
import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings

import numpy as np

import libdcp
import trees

INDICES = [(), ..., 0, -1, np.int64(1), slice(None), slice(1, 3), slice(-2, None), slice(3, 1), slice(None, None, 2),
           slice(None, None, -1), slice(4, 0, -3), slice(100, 200), None, (0, 1), (0, ..., 1), (..., -1), (slice(1, 3), 2),
           (slice(None), slice(1, 2), slice(None, None, 3)), (0, 1, 2), (0, 1, 2, ...), (None, 1, None, ..., slice(0, 2)),
           (slice(2, 2), ..., 0), (slice(None, None, -2), None, slice(None, None, -1))]


def array():
    return np.arange(5 * 4 * 6, dtype=np.float32).reshape(5, 4, 6)


def open_files(folder):
    links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
    return [target for target in map(os.path.realpath, links) if target.startswith(str(folder))]


def loaded(tree):
    """The tree, with all lazy arrays read."""
    if isinstance(tree, libdcp.LazyArray):
        return np.asarray(tree)
    if isinstance(tree, dict):
        return {key: loaded(inner) for key, inner in tree.items()}
    return type(tree)(map(loaded, tree)) if isinstance(tree, (list, tuple)) else tree


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-lazy-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(os.path.realpath(scratch.name)) / "steps"

    def read(self, **options):
        return libdcp.read(self.dir, lazy=True, as_torch=False, **options)

    def test_tree(self):
        state = {"model": {"w": array(), "n": 3}, "l": [np.ones(2), {"x": np.zeros(1, np.int8)}], "t": (np.ones(()), 1),
                 "top": np.zeros((0, 3)), "words": {"c": 1j, 5: "five"}}
        libdcp.save(self.dir, 1, state)
        for layout in ("global", "sharded"):
            libdcp.save(self.dir, 1, state, layout=layout, replace=True)
            found = self.read()
            self.assertIsInstance(found["l"][1]["x"], libdcp.LazyArray)
            self.assertEqual(trees.difference(loaded(found), state), "")
        self.assertEqual(trees.difference(loaded(self.read(only="/l/0")), {"l": state["l"]}), "")

    def test_attributes(self):
        libdcp.save(self.dir, 1, {"w": array(), "scalar": np.array(2.5), "none": np.zeros((0, 2), np.int16)})
        found = self.read()
        lazy = found["w"]
        self.assertEqual((lazy.shape, lazy.dtype, lazy.ndim, lazy.size, lazy.nbytes, len(lazy), lazy.path),
                         ((5, 4, 6), np.float32, 3, 120, 480, 5, "/model/w"))
        self.assertEqual(repr(lazy), "<libdcp.LazyArray '/model/w': float32 (5, 4, 6)>")
        self.assertEqual(np.asarray(lazy, np.float64).dtype, np.float64)
        self.assertEqual(float(found["scalar"][()]), 2.5)
        self.assertEqual(found["scalar"][...].shape, ())
        self.assertEqual(np.asarray(found["none"]).shape, (0, 2))
        self.assertEqual(sum(map(np.sum, lazy)), array().sum())  # ends by IndexError
        with self.assertRaises(TypeError):
            len(found["scalar"])
        if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
            with self.assertRaisesRegex(ValueError, "copy=False"):
                np.asarray(lazy, copy=False)
        for function in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, "pickled"):
                function(lazy)

    def test_indices(self):
        """What numpy gives for an array in memory, in value, type and shape."""
        libdcp.save(self.dir, 1, {"w": array()})
        lazy = self.read()["w"]
        for index in INDICES:
            with self.subTest(index=index):
                expected, found = array()[index], lazy[index]
                self.assertEqual((type(found), found.shape, found.dtype), (type(expected), expected.shape, expected.dtype))
                np.testing.assert_array_equal(found, expected)
        for index, kind in ((5, IndexError), (-6, IndexError), ((0, 0, 0, 0), IndexError), ((..., ...), IndexError),
                            (True, TypeError), ([0, 1], TypeError), (np.array([1]), TypeError), ("w", TypeError),
                            (1.0, TypeError), (array() > 1, TypeError), ((0, np.array([True] * 4)), TypeError)):
            with self.subTest(index=index), self.assertRaises(kind):
                lazy[index]

    def test_damage_is_found_when_touched(self):
        """In one tensor of two, and in one block of it."""
        big = np.random.default_rng(1).integers(0, 255, (12, 1 << 20), np.uint8)
        libdcp.save(self.dir, 1, {"good": array(), "bad": big})
        file = self.dir / "step-00000001" / "state.h5"
        at = file.read_bytes().index(big[6].tobytes()) + 5
        with open(file, "r+b") as stream:
            stream.seek(at)
            stream.write(bytes([big[6, 5] ^ 1]))
        found = self.read()
        np.testing.assert_array_equal(found["good"][...], array())
        np.testing.assert_array_equal(found["bad"][0, :9], big[0, :9])
        for touch in (lambda: found["bad"][6, 5], lambda: np.asarray(found["bad"]), lambda: found["bad"][6, 7]):
            with self.assertRaisesRegex(libdcp.Error, "/model/bad") as caught:
                touch()
            self.assertEqual((caught.exception.status, caught.exception.tensor), (libdcp.Status.CORRUPT, "/model/bad"))
        np.testing.assert_array_equal(found["bad"][-1], big[-1])

    def test_lifetime(self):
        """No writer removes the step, and its files are open, as long as one of its arrays exists."""
        with libdcp.Store(self.dir, keep=1) as store:
            store.save(1, {"a": array(), "b": np.ones(3)})
            found = self.read()
            store.save(2, {"a": array() + 1, "b": np.ones(3)})
            store.save(3, {"a": array() + 2, "b": np.ones(3)})
            one = found.pop("a")
            del found
            gc.collect()
            np.testing.assert_array_equal(one[1:], array()[1:])
            self.assertIn(1, libdcp.steps(self.dir))
            del one
            gc.collect()
            store.save(4, {"a": array(), "b": np.ones(3)})
            self.assertEqual(libdcp.steps(self.dir), [4])
            self.assertEqual([name for name in open_files(self.dir) if name.endswith("state.h5")], [])

    def test_failures_keep_nothing_open(self):
        libdcp.save(self.dir, 1, {"a": array()})
        before = open_files(self.dir)
        try:
            self.read(only="/none")
        except libdcp.Error as e:
            self.assertEqual(e.status, libdcp.Status.NOT_FOUND)
            self.assertEqual(open_files(self.dir), before)
        else:
            self.fail("not refused")

    def test_another_folder(self):
        libdcp.save(self.dir, 1, {"a": array()})
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        os.chdir(self.dir)
        found = libdcp.read("step-00000001", lazy=True, as_torch=False)
        os.chdir("/")
        np.testing.assert_array_equal(found["a"][1:3], array()[1:3])

    def test_threads(self):
        big = np.arange(3 << 20, dtype=np.int64).reshape(96, -1)
        libdcp.save(self.dir, 1, {"w": big, "v": big[::-1].copy()}, layout="sharded", shards=3)
        found, wrong, start = self.read(), [], threading.Barrier(8)

        def read(seed):
            rng = np.random.default_rng(seed)
            start.wait()
            for row in rng.integers(0, 95, 40):
                turned = big[::-1][row:row + 2, 7:99]
                if not (np.array_equal(found["w"][row], big[row]) and np.array_equal(found["v"][row:row + 2, 7:99], turned)):
                    wrong.append(row)
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_fork(self):
        libdcp.save(self.dir, 1, {"w": array()})
        found = self.read()["w"]
        found[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            os._exit(0 if np.array_equal(found[1:], array()[1:]) else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        np.testing.assert_array_equal(found[1:], array()[1:])

    def run_program(self, text):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", text, str(self.dir)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_memory(self):
        """A slice of a large tensor takes little memory."""
        with libdcp.Store(self.dir) as store:
            store.save(1, {"w": np.ones((192, 1 << 18), np.float32)})
        self.run_program(MEMORY)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "torch is not installed")
    def test_torch(self):
        self.run_program(TORCH)


MEMORY = """
import sys
import libdcp
import numpy as np

def most():
    return next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))

lazy = libdcp.read(sys.argv[1], lazy=True)["w"]
lazy[0, 0]
before = most()
assert lazy[100:104].sum() == 4 << 18 and lazy[7, ::2].base is None
assert most() - before < 64, (before, most())
assert np.asarray(lazy).nbytes >> 20 == 192
assert most() - before > 150, (before, most())
assert "torch" not in sys.modules
"""

TORCH = """
import sys
import torch
import libdcp

saved = {"w": torch.randn(5, 4).bfloat16(), "n": torch.arange(6), "scalar": torch.tensor(1.5),
         "f8": torch.randn(4).to(torch.float8_e5m2)}
libdcp.save(sys.argv[1], 1, saved)
torch.set_default_device("meta")
lazy = libdcp.read(sys.argv[1], lazy=True)
torch.set_default_device("cpu")
assert lazy["w"].dtype == torch.bfloat16 and lazy["w"].shape == torch.Size((5, 4))
for name, value in saved.items():
    assert torch.equal(lazy[name][...].float(), value.float()), name
for index in (0, -1, slice(1, 3), (slice(None, None, 2), 1), (..., slice(1, 2)), None):
    assert torch.equal(lazy["w"][index], saved["w"][index]), index
assert lazy["w"][::2].untyped_storage().nbytes() == 3 * 4 * 2
assert libdcp.read(sys.argv[1], lazy=True, as_torch=False)["n"][2] == 2
model = torch.nn.Linear(2, 3)
libdcp.save(sys.argv[1], 2, {"model": model.state_dict()})
other = torch.nn.Linear(2, 3)
other.load_state_dict({name: lazy[...] for name, lazy in libdcp.read(sys.argv[1], lazy=True)["model"].items()})
assert torch.equal(other.weight, model.weight)
"""

if __name__ == "__main__":
    unittest.main()
