"""The Python package with numpy alone, one process."""

import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import unittest

import numpy as np

import libdcp
from libdcp import State


class Sampler:
    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def make_state():
    return {
        "model": {"a": np.arange(12, dtype=np.float32).reshape(3, 4), "b": {"c": np.array(7), "e": np.zeros((0, 3))}},
        "ema": {"a": np.full((3, 4), 0.5, np.float16)},
        "optimizer": {"state": {"a": {"exp_avg": np.ones((3, 4)), "step": np.array(2.0)}},
                      "param_groups": [{"lr": 0.1, "betas": [0.9, 0.99], "params": ["a"]}]},
        "columns": np.arange(24).reshape(4, 6).T,
        "epoch": 3, "name": "run", "losses": [1.5, 0.5], "nothing": None,
    }


def arrays(state):
    return [state["model"]["a"], state["model"]["b"]["c"], state["ema"]["a"], state["columns"],
            *state["optimizer"]["state"]["a"].values()]


@contextlib.contextmanager
def not_as_root():
    """A context in which files' modes matter."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-python-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "steps"

    def test_save_and_load(self):
        saved, state = make_state(), make_state()
        report = libdcp.save(self.dir, 5, saved, json={"lr": 0.25})
        self.assertEqual(report.bytes, sum(a.nbytes for a in arrays(saved)))
        for array in arrays(state):
            array[...] = 0
        state.update(epoch=0, name="", losses=[0, 0], nothing=1)
        state["optimizer"]["param_groups"][0]["lr"] = 0
        members = libdcp.load(self.dir, state)
        self.assertEqual((members["step"], members["lr"]), (5, 0.25))
        for loaded, array in zip(arrays(state), arrays(saved)):
            np.testing.assert_array_equal(loaded, array)
        for key in ("epoch", "name", "losses", "nothing"):
            self.assertEqual(state[key], saved[key])
        self.assertEqual(state["optimizer"]["param_groups"], saved["optimizer"]["param_groups"])

    def test_lists_with_arrays(self):
        libdcp.save(self.dir, 1, {"m": {"l": [1, {"a": np.ones(2)}, 2], "n": None}})
        array = np.zeros(2)
        state = {"m": {"l": [0, {"a": array}, 0], "n": 1}}
        libdcp.load(self.dir, state)
        self.assertEqual((array.tolist(), state["m"]), ([1, 1], {"l": [1, {"a": array}, 2], "n": None}))

    def test_names(self):
        libdcp.save(self.dir, 1, make_state())
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(list(checkpoint), ["/ema/a", "/model/a", "/model/b.c", "/model/b.e", "/model/columns",
                                                "/optimizer/exp_avg/a", "/optimizer/step/a"])
            self.assertEqual((checkpoint.dtype("/ema/a"), checkpoint.shape("/model/columns")), ("F16", (6, 4)))
            self.assertEqual(repr(checkpoint), f"<libdcp.Checkpoint {str(self.dir / 'step-00000001')!r}: 7 tensors>")

    def test_one_name_twice(self):
        with self.assertRaisesRegex(ValueError, r"state\['model'\]\['a'\] and state\['a'\] would both be /model/a"):
            libdcp.save(self.dir, 1, {"model": {"a": np.ones(2)}, "a": np.ones(2)})

    def test_objects_without_a_word(self):
        for value in (object(), print, State, lambda: 0):
            with self.assertRaisesRegex(TypeError, r"^state\['model'\]\['x'\]\[0\]: "):
                libdcp.save(self.dir, 1, {"model": {"x": [value]}})
        with self.assertRaisesRegex(TypeError, "no type for numpy's <U1"):
            libdcp.save(self.dir, 1, {"x": np.array(["a"])})
        self.assertEqual(libdcp.steps(self.dir), [])

    def test_wrong_arguments(self):
        state = {"x": np.ones(2)}
        for step, what in ((-1, ValueError), (1.0, TypeError), ("1", TypeError), (state, TypeError)):
            with self.subTest(step), self.assertRaisesRegex(what, "^step: "):
                libdcp.save(self.dir, step, state)
            with self.subTest(step), self.assertRaisesRegex(what, "^step: "), libdcp.Store(self.dir) as store:
                store.save_async(step, state)
        for wrong in (Sampler(), [np.ones(2)], None, 1):
            with self.subTest(wrong), self.assertRaisesRegex(TypeError, f"of type {type(wrong).__name__}, and not"):
                libdcp.save(self.dir, 1, wrong)
        with self.assertRaisesRegex(TypeError, "'memory' in a list of stores is no libdcp.Tier"):
            libdcp.Store(["memory", libdcp.Tier(self.dir)])
        self.assertEqual(libdcp.steps(self.dir), [])
        libdcp.save(self.dir, np.int64(1), state)
        self.assertEqual(libdcp.steps(self.dir), [1])

    def test_only_the_cause_is_shown(self):
        """The library's own failure, which only says that it got no state, is not shown."""
        with self.assertRaises(TypeError) as caught:
            libdcp.save(self.dir, 1, {"x": object()})
        self.assertNotIn("libdcp.errors.Error", "".join(traceback.format_exception(caught.exception)))

    def test_numbers_that_json_lacks(self):
        """torch's ReduceLROnPlateau has one."""
        libdcp.save(self.dir, 1, {"x": np.ones(1), "best": float("inf"), "s": {"low": [-math.inf, 1.0], "n": math.nan}})
        state = {"x": np.ones(1), "best": 0.0, "s": {"low": [0.0, 0.0], "n": 0.0}}
        members = libdcp.load(self.dir, state)
        self.assertEqual((state["best"], state["s"]["low"]), (math.inf, [-math.inf, 1.0]))
        self.assertTrue(math.isnan(state["s"]["n"]))
        self.assertEqual(members["state"]["best"], math.inf)

    def test_keys_that_are_lost_in_names(self):
        with self.assertRaisesRegex(ValueError, r"state\['m'\]\[1\] and state\['m'\]\['1'\] would both be /m/1"):
            libdcp.save(self.dir, 1, {"m": {1: np.ones(1), "1": np.ones(1)}})
        with self.assertRaisesRegex(ValueError, r"^state\['m'\]\['a\\x00b'\]: a name with a NUL"):
            libdcp.save(self.dir, 1, {"m": {"a\0b": np.ones(2)}})

    def test_masked_arrays(self):
        with self.assertRaisesRegex(TypeError, r"^state\['x'\]: an array with a mask"):
            libdcp.save(self.dir, 1, {"x": np.ma.masked_array([1.0, 2.0], mask=[0, 1])})

    def test_tuples_with_arrays(self):
        array = np.zeros(2)
        libdcp.save(self.dir, 1, {"m": {"t": (np.ones(2), 5, ["a", np.ones(1)])}})
        state = {"m": {"t": (array, 0, ["", np.zeros(1)])}}
        libdcp.load(self.dir, state)
        loaded = state["m"]["t"]
        self.assertIs(loaded[0], array)
        self.assertEqual((array.tolist(), loaded[1:]), ([1, 1], (5, ["a", np.ones(1)])))

    def test_objects_do_not_take_the_place_of_arrays(self):
        for stored in (3, [None, 5], None):
            libdcp.save(self.dir, 1, {"m": {"a": np.ones(2)}}, json={"state": {"m": stored}}, replace=True)
            state = {"m": {"a": np.zeros(2)}}
            libdcp.load(self.dir, state)
            self.assertEqual(state["m"]["a"].tolist(), [1, 1])

    def test_read_only_arrays(self):
        array, other = np.zeros(2), np.zeros(2)
        array.flags.writeable = False
        libdcp.save(self.dir, 1, {"x": np.ones(2), "y": np.ones(2)})
        state = {"x": array, "y": other}
        for given in (state, libdcp.State(state)):
            with self.assertRaisesRegex(ValueError, r"^state\['x'\]: a read-only array"):
                libdcp.load(self.dir, given)
        libdcp.load(self.dir, state, only="/model/y")
        self.assertEqual((array.tolist(), other.tolist()), ([0, 0], [1, 1]))
        libdcp.save(self.dir, 2, state)

    def test_parts(self):
        whole = np.arange(40.0).reshape(10, 4)
        libdcp.save(self.dir, 1, {"x": whole})
        part = libdcp.Shard(np.zeros((3, 2)), (10, 4), (4, 1))
        libdcp.load(self.dir, {"x": part})
        np.testing.assert_array_equal(part.array, whole[4:7, 1:3])
        with self.assertRaisesRegex(ValueError, "is not within"):
            libdcp.load(self.dir, {"x": libdcp.Shard(np.zeros((3, 2)), (10, 4), (8, 1))})
        libdcp.State({"x": libdcp.Shard(np.zeros(0), (), ())}).close()  # the value of a rank without a part of a scalar
        with self.assertRaisesRegex(ValueError, "a part of 1 dimensions"):
            libdcp.State({"x": libdcp.Shard(np.zeros(1), (), ())})
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.save(self.dir, 2, {"x": part})
        self.assertEqual(caught.exception.status, libdcp.Status.MISMATCH)
        self.assertEqual(caught.exception.tensor, "/model/x")

    def test_another_array_of_a_rank_in_a_declared_state(self):
        for new in (np.full(3, 4.0), np.ones(4)):
            of_rank = libdcp.PerRank(np.ones(3))
            with libdcp.Store(self.dir, replace=True) as store:
                state = store.declare({"model": {"a": of_rank}})
                store.save(1, state)
                of_rank.value = new
                for save in (store.save, lambda *step: store.save_async(*step, copy=False).result()):
                    with self.assertRaisesRegex(ValueError, "other memory than when the state was declared"):
                        save(2, state)
                self.assertEqual(store.steps(), [1])

    def test_another_array_in_a_declared_state(self):
        """It is refused each time, even if something else is wrong the first time."""
        for wrong in (0, object()):
            given = {"model": {"a": np.ones(3)}, "x": {"y": 0}}
            with self.subTest(wrong=wrong), libdcp.Store(self.dir, replace=True) as store:
                state = store.declare(given)
                store.save(1, state)
                given["model"]["a"], given["x"]["y"] = np.zeros(3), wrong
                for refused in (TypeError if wrong else ValueError, ValueError, ValueError):
                    with self.assertRaises(refused):
                        store.save(2, state)
                    given["x"]["y"] = 0
                self.assertEqual(store.steps(), [1])

    def test_reshaped_arrays_of_a_declared_state(self):
        """At the same address. A call that copies does not wait for the check, so the next call refuses the array."""
        def new_shape(array): array.shape = (4, 3)
        def new_type(array): array.dtype = np.int64
        for change, (copy, saved) in itertools.product((new_shape, new_type), ((False, [1, 2]), (True, [1, 2, 3]))):
            name = f"{self.dir}/{change.__name__}-{copy}"
            with self.subTest(name), libdcp.Store(name) as store:
                array = np.arange(12.).reshape(3, 4).copy()
                state = store.declare({"model": {"a": array}})
                for step in (1, 2):
                    store.save_async(step, state, copy=copy).result()
                change(array)
                with self.assertRaisesRegex(ValueError, "'a'.* another shape, type or strides"):
                    for step in (3, 4):
                        store.save_async(step, state, copy=copy).result()
                self.assertEqual(store.steps(), saved)

    def test_a_reshaped_array_of_a_declared_state_is_not_loaded_into(self):
        def new_shape(array): array.shape = (4, 3)
        def new_type(array): array.dtype = np.int64
        with libdcp.Store(self.dir) as store:
            store.save(1, {"a": np.ones((3, 4))})
            for change in (new_shape, new_type):
                array = np.zeros((3, 4))
                declared = store.declare({"a": array})
                change(array)
                with self.subTest(change.__name__), self.assertRaisesRegex(ValueError, "'a'.* another shape, type or strides"):
                    store.load(declared)
                self.assertFalse(array.any())

    def test_an_array_of_a_declared_state_is_not_resized(self):
        """It would get other memory, and the save would read the old one."""
        array = np.ones(12)
        with libdcp.Store(self.dir) as store:
            state = store.declare({"model": {"a": array}})
            with self.assertRaisesRegex(ValueError, "cannot resize"):
                array.resize(1 << 20, refcheck=False)
            state.close()
            array.resize(1 << 20, refcheck=False)

    def test_lazy_reads(self):
        state = make_state()
        libdcp.save(self.dir, 1, state)
        with libdcp.Checkpoint(self.dir) as checkpoint:
            np.testing.assert_array_equal(checkpoint["/model/columns"], state["columns"])
            np.testing.assert_array_equal(checkpoint.read("/model/a", (1, 1), (2, 2)), state["model"]["a"][1:3, 1:3])
            self.assertEqual(checkpoint["/model/b.c"].shape, ())
            self.assertEqual(checkpoint["/model/b.e"].shape, (0, 3))
            self.assertEqual(checkpoint.verify(), [])
            with self.assertRaises(KeyError):
                checkpoint["/model/none"]
            with self.assertRaisesRegex(ValueError, "not within its shape"):
                checkpoint.read("/model/a", (1, 1), (3, 1))
            for wrong in (1, "12", (1.5, 0), {1: 2}):
                with self.assertRaisesRegex(TypeError, "start: .* a tuple of integers, one for each dimension"):
                    checkpoint.read("/model/a", wrong)

    def test_damage(self):
        libdcp.save(self.dir, 1, make_state())
        file = self.dir / "step-00000001" / "state.h5"
        raw = bytearray(file.read_bytes())
        at = raw.index(np.arange(12, dtype=np.float32).tobytes())
        raw[at] ^= 1
        file.write_bytes(raw)
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(len([line for line in checkpoint.verify() if "/model/a" in line]), 1)
            with self.assertRaises(libdcp.Error) as caught:
                checkpoint["/model/a"]
        self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)
        self.assertIn("/model/a", str(caught.exception))

    def test_proof(self):
        state = make_state()
        proof = libdcp.prove(state)
        libdcp.save(self.dir, 1, state, layout="sharded")
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(checkpoint.proof(), proof)
            self.assertEqual(checkpoint.proof().crc, proof.crc)
        state["model"]["a"][0, 0] += 1
        self.assertNotEqual(libdcp.prove(state), proof)

    def test_diff(self):
        state = {name: np.ones((2, 3)) for name in ("same", "bytes", "shape", "dtype", "here")}
        libdcp.save(self.dir, 1, state)
        del state["here"]
        state.update(shape=np.ones((3, 2)), dtype=np.ones((2, 3), np.float32), there=np.ones(1))
        state["bytes"][1, 2] = -1
        libdcp.save(self.dir, 2, state, layout="sharded")
        with (libdcp.Checkpoint(self.dir / "step-00000001") as a, libdcp.Checkpoint(self.dir) as b):
            self.assertEqual(a.diff(b), {
                "/model/bytes": "bytes", "/model/dtype": "dtype F64, there F32", "/model/here": "only here",
                "/model/shape": "shape (2, 3), there (3, 2)", "/model/there": "only there"})
            self.assertEqual(a.diff(a), {})

    def test_asynchronous(self):
        state = {"x": np.zeros(1 << 20)}
        done = threading.Event()
        with libdcp.Store(self.dir, keep=2) as store:
            declared = store.declare(state)
            for step in range(1, 5):
                state["x"][...] = step
                saving = store.save_async(step, declared)
                saving.fence()
            saving.add_done_callback(lambda future: done.set())
            self.assertTrue(done.wait(60))
            self.assertEqual(saving.result(timeout=1).bytes, state["x"].nbytes)
            self.assertEqual(store.steps(), [3, 4])
        state["x"][...] = 0
        libdcp.load(self.dir, state)
        self.assertEqual(set(state["x"]), {4.0})

    def test_failure_comes_with_the_next_call(self):
        with libdcp.Store(self.dir) as store:
            store.save(3, {"x": np.ones(2)})
            for call, step, how in ((store.save, 4, "was saved"), (store.save_async, 5, "is being saved")):
                store.save_async(2, {"x": np.ones(2)})
                with self.assertRaises(libdcp.Error) as caught:
                    call(step, {"x": np.ones(2)})
                self.assertEqual(caught.exception.status, libdcp.Status.STATE)
                self.assertRegex(str(caught.exception), "^step 2 was not saved: .* older than step [0-9], .*; "
                                 f"step {step}, which this call is for, {how}$")
            store.save(6, {"x": np.ones(2)})
            self.assertEqual(store.steps(), [3, 4, 5, 6])
            store.save_async(2, {"x": np.ones(2)})
            with self.assertRaisesRegex(libdcp.Error, "step-00000006 exists already") as caught:  # its own failure
                store.save(6, {"x": np.ones(2)})
            self.assertIn("older than step", str(caught.exception.__cause__))

    def test_asynchronous_failures_of_a_declared_state(self):
        with libdcp.Store(self.dir) as store:
            declared = store.declare({"x": np.ones(2)})
            store.save_async(3, declared)
            for _ in range(2):  # a thread begins it, but not after a failure
                saving = store.save_async(2, declared)
                saving.fence()
                saving.cancel()
                with self.assertRaises(libdcp.Error) as caught:
                    saving.wait()
                self.assertEqual(caught.exception.status, libdcp.Status.STATE)
            store.save_async(4, declared)
        self.assertEqual(libdcp.steps(self.dir), [3, 4])

    def test_words_added_to_a_declared_state(self):
        state = {"model": {"a": np.ones(2), "b": {"c": np.ones(3)}}, "epoch": 1}
        with libdcp.Store(self.dir) as store:
            declared = store.declare(state)
            store.save(1, declared)
            state["model"]["b"]["lr"] = 0.5
            state["epoch"] = 2
            store.save_async(2, declared).fence()
            state["epoch"] = 3
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(checkpoint.json["state"], {"model": {"b": {"lr": 0.5}}, "epoch": 2})

    def test_arrays_added_to_a_declared_state(self):
        state = {"model": {"a": np.ones(2)}, "optimizer": {"state": {}, "param_groups": []}}
        with libdcp.Store(self.dir) as store:
            declared = store.declare(state)
            store.save(1, declared)
            state["optimizer"]["state"]["a"] = {"exp_avg": np.ones(2)}
            with self.assertRaisesRegex(ValueError, "has 2 tensors, and had 1 when it was declared"):
                store.save_async(2, declared)
            store.save(2, store.declare(state))
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertIn("/optimizer/exp_avg/a", checkpoint)

    def test_checkpoints_that_nobody_closes(self):
        libdcp.save(self.dir, 1, {"x": np.ones(2)})
        libdcp.Checkpoint(self.dir)
        libdcp.save(self.dir, 2, {"x": np.ones(2)}, keep=1)
        self.assertEqual(libdcp.steps(self.dir), [2])

    def test_stores_after_their_close(self):
        for directory in (self.dir, [libdcp.Tier(self.dir)]):
            with libdcp.Store(directory) as store:
                store.save(len(libdcp.steps(self.dir)), {"x": np.ones(2)})
            store.close()
            for call in (lambda: store.is_due(1), store.steps, store.newest, lambda: store.save(9, {}),
                         lambda: store.load({}), lambda: store.remove(1), lambda: store.continue_from(1)):
                with self.assertRaisesRegex(ValueError, "the store is closed"):
                    call()

    def test_a_program_that_ends_waits_for_its_save(self):
        program = ("import sys, numpy, libdcp; store = libdcp.Store(sys.argv[1]);"
                   "state = store.declare({'x': numpy.ones(1 << 23)});"
                   "store.save_async(1, state); store.save_async(2, state)")
        subprocess.run([sys.executable, "-c", program, self.dir], check=True)
        self.assertEqual(libdcp.steps(self.dir), [1, 2])

    def test_list_of_stores(self):
        fast, slow = self.dir / "fast", self.dir / "slow"
        tiers = [libdcp.Tier(fast, keep=2), libdcp.Tier(slow, every=3, layout="sharded")]
        state = {"x": np.zeros(1 << 16), "epoch": 0}
        with libdcp.Store(tiers) as store:
            declared = store.declare(state)
            for step in range(1, 8):
                self.assertTrue(store.is_due(step))
                state["x"][...] = state["epoch"] = step
                saving = store.save_async(step, declared)
                saving.fence()
            saving.wait()
            self.assertEqual(store.newest(), 7)
        self.assertEqual((libdcp.steps(fast), libdcp.steps(slow)), ([6, 7], [3, 6]))
        with open(fast / "step-00000007/state.h5", "r+b") as file:
            file.truncate(5000)
        with libdcp.Store(tiers) as store:
            self.assertEqual(store.load(state)["step"], 6)
            self.assertEqual((set(state["x"]), state["epoch"]), ({6.0}, 6))
            self.assertEqual(store.load(state, step=3)["step"], 3)
            self.assertEqual(set(state["x"]), {3.0})
            with self.assertRaisesRegex(libdcp.Error, "step 2 is in none"):
                store.load(state, step=2)
            with self.assertRaisesRegex(ValueError, "none of auto"):
                store.load(state, engine="fast")
            store.save(4, state)  # including the last one
            self.assertEqual(store.steps(), [3, 4])
        self.assertEqual((libdcp.steps(fast), libdcp.steps(slow)), ([4], [3, 4]))
        for name, value in (("keep", 2), ("keep_every", 5)):
            with self.assertRaisesRegex(ValueError, f"{name}: see libdcp.Tier"):
                libdcp.Store(tiers, **{name: value})

    def test_policies_keep_more_than_the_newest_steps(self):
        losses = [3, 1, 2, 5, 6, 7, 8, 1.5]
        policies = {"keep": 1, "keep_best": 1, "keep_every": 5, "keep_metric": "loss"}
        for highest, kept in ((False, [2, 5, 8]), (True, [5, 7, 8])):
            directory = self.dir / str(highest)
            with libdcp.Store(directory, keep_highest=highest, **policies) as store:
                for step, loss in enumerate(losses, 1):
                    store.save(step, {"x": np.full(3, loss)}, about={"loss": loss})
            self.assertEqual(libdcp.steps(directory), kept)
        first, second = self.dir / "first", self.dir / "second"
        tiers = [libdcp.Tier(first, keep_highest=True, **policies), libdcp.Tier(second, every=2, **policies)]
        with libdcp.Store(tiers) as store:
            for step, loss in enumerate(losses, 1):
                store.save_async(step, {"x": np.full(3, loss)}, about=json.dumps({"loss": loss})).wait()
        self.assertEqual((libdcp.steps(first), libdcp.steps(second)), ([5, 7, 8], [2, 8]))
        with self.assertRaisesRegex(libdcp.Error, "set keep to"):
            libdcp.Store(self.dir, keep_every=2)

    def test_on_published(self):
        called = []

        def publish(step, path):
            called.append((step, path))
            self.assertEqual(libdcp.load(path, {"x": np.zeros(2)})["step"], step)

        state = {"x": np.ones(2)}
        with libdcp.Store(self.dir / "one", keep=1, on_published=publish) as store:
            store.save(1, state)
            self.assertEqual(called, [(1, store.path(1))])
            state["x"] += 1
            store.save_async(2, state).wait()
            state["x"] += 1
            store.save_async(3, state)
        self.assertEqual(called, [(step, store.path(step)) for step in (1, 2, 3)])
        called.clear()
        first, second = self.dir / "{env:USED}", self.dir / "second"
        os.environ["USED"] = "first"
        with libdcp.Store([libdcp.Tier(first, private=True), libdcp.Tier(second, every=2)], on_published=publish) as store:
            for step in range(1, 5):
                state["x"] += 1
                store.save_async(step, state).wait()
                self.assertIn((step, str(self.dir / f"first/step-0000000{step}")), called)
        self.assertEqual(sorted(called), sorted([*((step, str(self.dir / f"first/step-0000000{step}")) for step in range(1, 5)),
                                                 *((step, str(self.dir / f"second/step-0000000{step}")) for step in (2, 4))]))
        called.clear()
        with libdcp.Store([libdcp.Tier(first, private=True), libdcp.Tier(second)], on_published=publish) as store:
            store.save(9, state)
            self.assertEqual(sorted(called), [(9, str(self.dir / f"{name}/step-00000009")) for name in ("first", "second")])

    def test_failures_of_on_published(self):
        """They are raised, but the step exists."""
        def fail(step, path):
            store.pin(step).release()  # it may use the store
            raise OSError(f"no upload of {step}")

        store = libdcp.Store(self.dir, on_published=fail)
        with self.assertRaisesRegex(OSError, "no upload of 1"):
            store.save(1, {"x": np.ones(2)})
        with self.assertLogs("libdcp", "ERROR"):
            # The save may be over before the function has run: close() waits for both.
            store.save_async(2, {"x": np.zeros(2)}).wait()
            with self.assertRaisesRegex(OSError, "no upload of 2"):
                store.close()
        self.assertEqual(libdcp.steps(self.dir), [1, 2])
        with self.assertRaisesRegex(TypeError, "on_published: .*a function"):
            libdcp.Store(self.dir, on_published=5)

    def test_on_published_comes_before_the_next_call_removes_the_step(self):
        """Even if the next call of the store is what ends the background save."""
        seen = []
        for number, call in enumerate((lambda: store.save(6, state), lambda: store.continue_from(4))):
            path = self.dir / str(number)
            store = libdcp.Store([libdcp.Tier(path, keep=1)], on_published=lambda step, path: seen.append(
                (step, os.path.isdir(path))))
            state = {"x": np.ones(2)}
            store.save(4, state)
            store.save_async(5, state)
            call()
            self.assertEqual(seen[:2], [(4, True), (5, True)])
            store.save(7, state)
            store.close()
            self.assertTrue(all(was_there for _, was_there in seen), seen)
            seen.clear()

    def test_on_published_may_use_the_store(self):
        """A failure for one step does not stop the save of the next one, and the store waits for the function."""
        began, pinned = threading.Event(), []

        def publish(step, path):
            began.set()
            time.sleep(0.05)  # so that calls of the store come meanwhile
            pinned.append(store.pin(step))
            self.assertLessEqual(step, store.newest())
            if step == 1:
                raise OSError("no upload")

        state = {"x": np.ones(2)}
        store = libdcp.Store(self.dir, on_published=publish)
        declared = store.declare(state)
        failed = 0
        for step in range(1, 6):
            state["x"] += 1
            try:
                store.save_async(step, declared)
            except OSError:
                failed += 1
            began.wait(60)
        try:
            store.close()
        except OSError:
            failed += 1
        self.assertEqual(failed, 1)
        self.assertEqual(libdcp.steps(self.dir), [1, 2, 3, 4, 5])
        self.assertEqual(len(pinned), 5)
        for pin in pinned:
            pin.release()

    def test_a_list_of_stores_goes_back(self):
        fast, slow = self.dir / "fast", self.dir / "slow"
        tiers = [libdcp.Tier(fast, keep=8), libdcp.Tier(slow, every=3, keep=5)]
        w = np.zeros(1 << 12, np.float32)
        with libdcp.Store(tiers) as store:
            for step in range(1, 10):
                w[:] = step
                store.save_async(step, {"w": w}).wait()
            store.load({"w": w}, step=6)
            self.assertEqual(set(w), {6.0})
            for step in range(7, 10):
                w[:] = 1000 + step
                store.save_async(step, {"w": w}).wait()
        self.assertEqual(libdcp.steps(slow), [3, 6, 9])
        shutil.rmtree(fast)
        with libdcp.Store(tiers) as store:
            self.assertEqual(store.load({"w": w})["step"], 9)
            self.assertEqual(set(w), {1009.0})

    def test_relative_paths_and_chdir(self):
        here = os.getcwd()
        self.addCleanup(os.chdir, here)
        mine, other = f"{self.dir}/mine", f"{self.dir}/other"
        w = np.full(4, 50.0)
        for name in ("one", "list"):
            libdcp.save(f"{other}/{name}", 50, {"w": w})
        os.makedirs(mine)
        for path, of in (("one", "one"), ("list", [libdcp.Tier("list")])):
            os.chdir(mine)
            with libdcp.Store(of) as store:
                w[:] = 1
                store.save(1, {"w": w})
                with libdcp.Checkpoint(path) as checkpoint:
                    os.chdir(other)
                    self.assertEqual(checkpoint.verify(), [])
                self.assertEqual((store.newest(), store.steps()), (1, [1]))
                w[:] = 2
                self.assertEqual((store.load({"w": w})["step"], w[0]), (1, 1.0))
                store.save(2, {"w": w})
            self.assertEqual(libdcp.steps(f"{mine}/{path}"), [1, 2])

    def test_another_directory_in_the_place_of_an_open_one(self):
        mine, other = f"{self.dir}/mine", f"{self.dir}/other"
        w = np.full(4, 50.0)
        libdcp.save(other, 50, {"w": w})
        with libdcp.Store(mine) as store:
            store.save(1, {"w": w})
            for act in (store.newest, store.steps, lambda: store.load({"w": w}), lambda: store.load({"w": w}, step=50)):
                os.rename(mine, mine + ".away")
                os.rename(other, mine)
                with self.assertRaisesRegex(libdcp.Error, "moved, removed or replaced"):
                    act()
                os.rename(mine, other)
                os.rename(mine + ".away", mine)
            self.assertEqual(store.load({"w": w})["step"], 1)

    def test_a_step_that_one_store_has_damaged(self):
        fast, slow = self.dir / "fast", self.dir / "slow"
        w = np.ones(1 << 12)
        with libdcp.Store([libdcp.Tier(fast), libdcp.Tier(slow)]) as store:
            store.save(1, {"w": w})
            store.save(2, {"w": w * 2})
            for damaged in (fast, slow):
                with open(damaged / "step-00000001/state.h5", "r+b") as file:
                    file.truncate(5000)
                if damaged == fast:
                    with self.assertLogs("libdcp", "WARNING"):
                        store.load({"w": w}, step=1)
                    self.assertEqual(set(w), {1.0})
            with self.assertLogs("libdcp", "WARNING"), self.assertRaises(libdcp.Error) as caught:
                store.load({"w": w}, step=1)
            self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)

    def test_a_newest_step_with_a_damaged_copy_and_one_that_can_not_be_read(self):
        fast, slow = self.dir / "fast", self.dir / "slow"
        state = {"w": np.ones(1 << 16)}
        with libdcp.Store([libdcp.Tier(fast), libdcp.Tier(slow)]) as store:
            store.save(1, state)
            store.save(2, state)
            store.load(state)  # imports what another user might not find
            with open(fast / "step-00000002/state.h5", "r+b") as file:
                file.seek(300_000)
                file.write(b"damage")
            os.chmod(slow / "step-00000002/state.h5", 0)
            self.dir.parent.chmod(0o755)
            with self.assertLogs("libdcp"), self.assertRaisesRegex(libdcp.Error, "older step") as caught, not_as_root():
                store.load(state)
            self.assertEqual(caught.exception.status, libdcp.Status.IO)

    def test_a_damaged_newest_step_and_no_falling_back(self):
        state = {"w": np.ones(1 << 16)}
        for number, cut in enumerate((0, 5000)):  # found by a load, and when the step is opened
            path = self.dir / str(number)
            with libdcp.Store(path) as store:
                store.save(1, state)
                store.save(2, state)
            with open(path / "step-00000002/state.h5", "r+b") as file:
                file.truncate(cut) if cut else (file.seek(300_000), file.write(b"damage"))
            for where in (path, [libdcp.Tier(path)]):
                with libdcp.Store(where) as store, self.assertRaises(libdcp.Error) as caught:
                    store.load(state, fall_back=False)
                self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)
                self.assertEqual(caught.exception.tensor, "" if cut else "/model/w")

    def test_cancelled_save_into_a_list(self):
        with libdcp.Store([libdcp.Tier(self.dir)]) as store:
            saving = store.save_async(1, {"x": np.zeros(1 << 24)})
            saving.cancel()
            try:
                saving.wait()  # it came too late
            except libdcp.Error as e:
                self.assertEqual((e.status, libdcp.steps(self.dir)), (libdcp.Status.CANCELLED, []))

    def test_progress_that_raises(self):
        def progress(done, total):
            raise RuntimeError("enough")
        with self.assertRaisesRegex(RuntimeError, "enough"):
            libdcp.save(self.dir, 1, {"x": np.ones(1 << 21)}, progress=progress)
        self.assertEqual(libdcp.steps(self.dir), [])

    def test_going_back(self):
        state = {"x": np.ones(2)}
        with libdcp.Store(self.dir) as store:
            for step in (1, 2, 3):
                store.save(step, state)
            self.assertEqual(store.load(state, step=1)["step"], 1)
            store.save(2, state)
            self.assertEqual(store.steps(), [1, 2])

    def test_partial_loads(self):
        libdcp.save(self.dir, 1, make_state())
        loaded = np.zeros((3, 4))
        libdcp.load(self.dir, {"backbone": {"a": loaded}}, only="/backbone/*", rename={"/backbone/*": "/model/*"},
                    cast=True)
        np.testing.assert_array_equal(loaded, make_state()["model"]["a"])
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(self.dir, {"model": {"a": np.zeros((3, 4), np.float32)}})
        self.assertEqual(caught.exception.status, libdcp.Status.MISMATCH)
        libdcp.load(self.dir, {"model": {"a": np.zeros((3, 4), np.float32), "new": loaded}}, strict=False)

    def test_strict_load_minds_a_missing_number(self):
        libdcp.save(self.dir, 1, {"w": np.ones(2), "epoch": 3, "loop": {"lr": 0.5}})
        array = np.zeros(2)
        state = {"w": array, "epoch": 0, "loop": {"lr": 0}, "batch": 7}
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(self.dir, state)
        self.assertEqual(caught.exception.status, libdcp.Status.NOT_FOUND)
        self.assertIn("state['batch'] is not in the checkpoint's JSON", str(caught.exception))
        self.assertEqual((array.tolist(), state["epoch"]), ([0, 0], 0))
        libdcp.load(self.dir, state, strict=False)
        self.assertEqual((array.tolist(), state["epoch"], state["batch"]), ([1, 1], 3, 7))
        del state["batch"]
        libdcp.load(self.dir, state)
        self.assertEqual(state["loop"], {"lr": 0.5})

    def test_message_about_another_name(self):
        libdcp.save(self.dir, 1, {"model": {"layer1": np.ones(2)}})
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(self.dir, {"model": {"layer2": np.ones(2)}})
        self.assertIn("if it has another name there, rename it", str(caught.exception))

    def test_counts_of_updates_of_dcp_train(self):
        """Its steps have moments without torch's counts of updates: these follow from the number of the step."""
        def state(value):
            return {"optimizer": {"param_groups": [], "state": {
                name: {"exp_avg": np.full(2, value), "step": np.array(value)} for name in ("a", "b")}}}
        saved, members = state(3.0), {"optimizer": {"type": "AdamW"}, "samples": 14, "schedule": {"type": "constant"}}
        for moments in saved["optimizer"]["state"].values():
            del moments["step"]
        libdcp.save(self.dir, 7, saved, json={**members, "moments_since": {"b": 5}})
        for rename in (None, {"/optim/*": "/optimizer/*"}):
            loaded = state(0.0)
            libdcp.load(self.dir, {"optim": loaded["optimizer"]} if rename else loaded, rename=rename)
            moments = loaded["optimizer"]["state"]
            self.assertEqual([moments[name]["step"] for name in "ab"], [7, 2])
            self.assertEqual([moments[name]["exp_avg"].tolist() for name in "ab"], [[3, 3], [3, 3]])
        for begun in ([], {"b": "x"}, {"b": None}):
            libdcp.save(self.dir, 9, saved, json={**members, "moments_since": begun}, replace=True)
            with self.assertRaisesRegex(libdcp.Error, '"moments_since"') as failed:
                libdcp.load(self.dir / "step-00000009", state(0.0))
            self.assertEqual(failed.exception.status, libdcp.Status.UNSUPPORTED)
        with libdcp.Store(self.dir) as store:
            store.remove(9)
        loaded = {"m": np.zeros(2), **state(0.0)}
        libdcp.load(self.dir, loaded, only="/optimizer/exp_avg/*")
        self.assertEqual(loaded["optimizer"]["state"]["a"]["step"], 0)

        libdcp.save(self.dir, 8, saved)  # not a step of dcp-train
        with self.assertRaisesRegex(libdcp.Error, "/optimizer/step/a is not in the checkpoint"):
            libdcp.load(self.dir, state(0.0))
        with libdcp.Store(self.dir) as store:
            loaded = state(0.0)
            store.load(store.declare(loaded), step=7)
            self.assertEqual(loaded["optimizer"]["state"]["b"]["step"], 2)

    def test_another_program_reads_it(self):
        libdcp.save(self.dir, 1, make_state())
        program = "import h5py, sys; print(h5py.File(sys.argv[1])['/model/columns'][()].tolist())"
        out = subprocess.run([sys.executable, "-c", program, self.dir / "step-00000001" / "state.h5"], check=True,
                             capture_output=True, text=True).stdout
        self.assertEqual(json.loads(out), make_state()["columns"].tolist())

    def test_objects_with_state_dicts(self):
        saved, loaded = Sampler(w=np.arange(6.0), epoch=3), Sampler(w=np.zeros(6), epoch=0)
        with libdcp.Store(self.dir) as store:
            self.assertIsNone(store.newest())
            store.fence()
            state = store.declare({"app": saved})
            store.save(1, state)
            saved.state["epoch"] = 4
            store.save_async(2, state)
            store.fence()
            for step, epoch in [(1, 3), (2, 4)]:
                store.load({"app": loaded}, step=step)
                self.assertEqual(loaded.state["epoch"], epoch)
                np.testing.assert_array_equal(loaded.state["w"], np.arange(6.0))
            self.assertEqual(store.newest(), 2)
            with libdcp.Checkpoint(store.path(1)) as checkpoint:
                self.assertEqual(list(checkpoint), ["/app/w"])

    def test_random_state(self):
        random.seed(5)
        np.random.seed(6)
        random.gauss(0, 1)  # leaves a second number behind
        libdcp.save(self.dir, 1, {"random": libdcp.random_state()})
        then = random.gauss(0, 1), random.random(), *np.random.standard_normal(3)
        state = libdcp.random_state()
        libdcp.load(self.dir, {"random": state})
        libdcp.set_random_state(state)
        self.assertEqual(then, (random.gauss(0, 1), random.random(), *np.random.standard_normal(3)))

    def test_further_ranks_keep_what_they_have(self):
        """Two ranks have saved; the third of three loads."""
        rows = np.arange(6, dtype=np.float32).reshape(2, 3)
        libdcp.save(self.dir, 1, {"random": {"a": rows}})
        for rank, expected in [(0, rows[0]), (1, rows[1]), (2, np.full(3, 9))]:
            own = libdcp.PerRank(np.full(3, 9, np.float32))
            libdcp.load(self.dir, State({"random": {"a": own}}, rank, 3), strict=False)
            np.testing.assert_array_equal(own.array, expected)
            self.assertEqual(own.loaded, rank < 2)

    def test_what_is_open_at_the_end_of_a_program(self):
        """Modules to which a reference remains, as torch keeps some, are emptied before the object is destroyed."""
        libdcp.save(self.dir, 1, {"w": np.ones(2)})
        program = ("import ctypes, sys, libdcp\n"
                   "store = libdcp.Store(sys.argv[1])\n"
                   "ctypes.kept = [libdcp.Checkpoint(sys.argv[1]), store.pin(1), store]\n"
                   "sys.kept = list(sys.modules.values())\n")
        done = subprocess.run([sys.executable, "-c", program, self.dir], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        with libdcp.Store(self.dir, keep=1) as store:  # the process has released all of them
            store.save(2, {"w": np.zeros(2)})
            self.assertEqual(store.steps(), [2])

    def test_a_row_of_another_length(self):
        """Ranks with different lengths load such rows."""
        libdcp.save(self.dir, 1, {"w": np.ones(2), "buffer": {"own": libdcp.PerRank(np.arange(3))}})
        for before in (np.zeros(0, np.int64), np.full(5, 7), np.full(5, 7, np.float32), None):
            own, kept = libdcp.PerRank(before), None if before is None else before.copy()
            libdcp.load(self.dir, {"w": np.zeros(2), "buffer": {"own": own}})
            self.assertTrue(own.loaded)
            self.assertEqual((own.value.dtype, own.value.tolist()), (np.int64, [0, 1, 2]))
            np.testing.assert_array_equal(before, kept)
        same = np.zeros(3, np.int64)
        own = libdcp.PerRank(same)
        libdcp.load(self.dir, {"w": np.zeros(2), "buffer": {"own": own}})
        self.assertIs(own.value, same)

    def test_a_row_that_can_not_be_had(self):
        libdcp.save(self.dir, 1, {"w": np.ones(2), "buffer": {"own": libdcp.PerRank(np.arange(3))}})
        for value, dtype in ((np.zeros((3, 1), np.int64), None), (np.zeros(3, np.float32), None), (5, None),
                             (np.zeros(0), np.float32), (None, np.float32)):
            own = libdcp.PerRank(value)
            with self.assertRaises(libdcp.Error):  # also if w has another type
                libdcp.load(self.dir, {"w": np.zeros(2, dtype), "buffer": {"own": own}})
            self.assertIs(own.value, value)
            self.assertFalse(own.loaded)
        own = libdcp.PerRank(None)
        libdcp.load(self.dir, {"w": np.zeros(2), "buffer": {"own": own}}, only="/model/*")
        self.assertIs(own.value, None)
        libdcp.save(self.dir, 2, {"own": own})  # nothing is left of the loads
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(list(checkpoint), [])

    def test_rows_of_another_length_on_further_ranks(self):
        rows = np.arange(6, dtype=np.float32).reshape(2, 3)
        libdcp.save(self.dir, 1, {"random": {"a": rows}})
        for before in (np.zeros(1), None):
            for rank in range(3):
                own = libdcp.PerRank(before)
                libdcp.load(self.dir, State({"random": {"a": own}}, rank, 3), strict=False)
                np.testing.assert_array_equal(own.value, rows[rank] if rank < 2 else before)
                self.assertEqual(own.loaded, rank < 2)

    def test_rows_of_another_length_wherever_they_are(self):
        for make in (lambda own: {"a": [1, own]}, lambda own: {"a": Sampler(n=1, own=own)}, lambda own: {"own": own},
                     lambda own: {"a": collections.defaultdict(list, {"own": own, "n": 1})}, lambda own: {"a": (own, {"b": 1})}):
            libdcp.save(self.dir, 1, make(libdcp.PerRank(np.arange(3))), replace=True)
            for before in (np.zeros(0), None):
                own = libdcp.PerRank(before)
                state = make(own)
                libdcp.load(self.dir, state)
                np.testing.assert_array_equal(own.value, np.arange(3))
                self.assertIn("PerRank", repr(getattr(state.get("a"), "state", state)))

    def test_a_declared_row_of_another_length(self):
        with libdcp.Store(self.dir) as store:
            store.save(1, {"own": libdcp.PerRank(np.arange(3))})
            own = libdcp.PerRank(np.zeros(4, np.int64))
            declared = store.declare({"own": own})
            store.load(declared)
            np.testing.assert_array_equal(own.value, np.arange(3))
            with self.assertRaisesRegex(ValueError, "declare it anew"):
                store.save(2, declared)

    def save_loaders(self, *states):
        rows = np.frombuffer("".join(json.dumps(state).ljust(100) for state in states).encode(), np.uint8)
        libdcp.save(self.dir, 1, {"data": {"loader": rows.reshape(len(states), 100)}}, replace=True)

    def test_loader(self):
        loader = Sampler(samples=7, epoch=2)
        with libdcp.Store(self.dir) as store:
            state = store.declare({"data": {"loader": libdcp.Loader(loader)}})
            store.save(1, state)
            loader.state["samples"] = 9
            store.save(2, state)
            for step, samples in [(1, 7), (2, 9)]:
                loader.state = {}
                libdcp.load(self.dir / f"step-{step:08}", {"data": {"loader": libdcp.Loader(loader)}})
                self.assertEqual(loader.state, {"samples": samples, "epoch": 2})

    def test_loader_in_several_states(self):
        loader = libdcp.Loader(Sampler(samples=7))
        mine = libdcp.PerRank(np.arange(3.0))
        with libdcp.Store(self.dir) as store:
            declared = store.declare({"data": {"loader": loader, "mine": mine}})
            store.save(1, declared)
            loader.loader.state = {"samples": 8}
            mine.array[:] = 0
            store.load(declared)  # this is equivalent for a load
            self.assertEqual(loader.loader.state, {"samples": 7})
            self.assertTrue(mine.loaded)
            np.testing.assert_array_equal(mine.array, np.arange(3.0))
            loader.loader.state = {"samples": 9}
            store.save(2, declared)  # not from the memory of the load
            libdcp.load(self.dir, {"data": {"loader": libdcp.Loader(other := Sampler())}}, strict=False)
            self.assertEqual(other.state, {"samples": 9})

    def test_loader_on_another_number_of_ranks(self):
        self.save_loaders(*({"samples": n, "epoch": 2} for n in (3, 3, 3)))
        loader = Sampler()
        libdcp.load(self.dir, {"data": {"loader": libdcp.Loader(loader)}})
        self.assertEqual(loader.state, {"samples": 9, "epoch": 2})
        rows = libdcp.Loader(loader)
        for rank, samples in [(0, 5), (1, 4)]:  # samples 0, 2, 4, 6, 8 and 1, 3, 5, 7
            libdcp.load(self.dir, State({"data": {"loader": rows}}, rank, 2))
            self.assertEqual(loader.state["samples"], samples)

    def test_loader_resharded_by_a_function(self):
        self.save_loaders({"batches": 3}, {"batches": 5})
        asked = []

        def reshard(states, rank, size):
            asked.append((states, rank, size))
            return {"batches": sum(state["batches"] for state in states) // size}
        loader = Sampler()
        rows = libdcp.Loader(loader, reshard=reshard)
        libdcp.load(self.dir, {"data": {"loader": rows}})
        self.assertEqual(loader.state, {"batches": 8})
        libdcp.load(self.dir, State({"data": {"loader": rows}}, 2, 4))
        self.assertEqual(loader.state, {"batches": 2})
        self.assertEqual(asked, [([{"batches": 3}, {"batches": 5}], 0, 1), ([{"batches": 3}, {"batches": 5}], 2, 4)])
        libdcp.load(self.dir, State({"data": {"loader": rows}}, 1, 2))  # as many ranks as have saved
        self.assertEqual((loader.state, len(asked)), ({"batches": 5}, 2))
        rows = libdcp.Loader(loader, reshard=lambda states, rank, size: states[7])
        with self.assertRaises(IndexError):
            libdcp.load(self.dir, {"data": {"loader": rows}})
        with self.assertRaisesRegex(libdcp.Error, r"reshard=function\) can convert"):
            libdcp.load(self.dir, {"data": {"loader": libdcp.Loader(loader)}})

    def test_loader_refused(self):
        for states, status, message in [
                (({"batches": 3}, {"batches": 3}), "MISMATCH", "does not say how many"),
                (({"samples": -1}, {"samples": 3}), "MISMATCH", "does not say how many"),
                (({"samples": 1, "epoch": 1}, {"samples": 1, "epoch": 2}), "MISMATCH", "differ in more than"),
                (([], {"samples": 3}), "UNSUPPORTED", "no JSON object")]:
            with self.subTest(states):
                self.save_loaders(*states)
                loader = Sampler(samples=0)
                with self.assertRaisesRegex(libdcp.Error, message) as failed:
                    libdcp.load(self.dir, {"data": {"loader": libdcp.Loader(loader)}})
                self.assertEqual(failed.exception.status.name, status)
                self.assertEqual(loader.state, {"samples": 0})
        for state, message in [({"a": object()}, "nothing is pickled"), ({"a": "b" * 5000}, "room=5009")]:
            with self.subTest(state), self.assertRaisesRegex((TypeError, ValueError), message):
                libdcp.save(self.dir, 2, {"data": {"loader": libdcp.Loader(Sampler(**state))}})


if __name__ == "__main__":
    unittest.main()
