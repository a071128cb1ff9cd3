"""Keywords of saves and loads, a load's report of what it ignored or lacked, damage, and pins. With numpy alone."""

import pathlib
import tempfile
import unittest
from unittest import mock

import numpy as np

import libdcp


def damage(folder):
    """Flips a byte of each of its tensors."""
    with libdcp.Checkpoint(folder) as checkpoint:
        parts = [checkpoint[name].tobytes() for name in checkpoint]
    file = folder / "state.h5"
    raw = bytearray(file.read_bytes())
    for part in parts:
        raw[raw.index(part)] ^= 1
    file.write_bytes(raw)


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-options-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "steps"

    def save_steps(self, *steps):
        with libdcp.Store(self.dir) as store:
            for step in steps:
                store.save(step, {"w": np.arange(100) + 1000.0 * step, "epoch": step})

    def test_wrong_names(self):
        state = {"w": np.ones(2)}
        libdcp.save(self.dir, 1, state)
        with libdcp.Store(self.dir) as store:
            for call, said in [
                    (lambda: store.save(2, state, progres=print), "no argument 'progres'; did you mean 'progress'?"),
                    (lambda: store.save_async(2, state, lay_out="global"), "'lay_out'; did you mean 'layout'?"),
                    (lambda: store.save(2, state, jsn={}), "'jsn'; did you mean 'json'?"),
                    (lambda: store.save(2, state, keep=3), "'keep' is an argument of libdcp.Store"),
                    (lambda: store.save(2, state, xyz=1), "no argument 'xyz': they are layout, engine, "),
                    (lambda: store.load(state, stric=False), "'stric'; did you mean 'strict'?"),
                    (lambda: store.load(state, fallback=False), "'fallback'; did you mean 'fall_back'?"),
                    (lambda: libdcp.load(self.dir, state, onyl="/model/*"), "'onyl'; did you mean 'only'?"),
                    (lambda: libdcp.load(self.dir, state, steps=1), "'steps'; did you mean 'step'?")]:
                with self.subTest(said), self.assertRaises(TypeError) as caught:
                    call()
                self.assertIn(said, str(caught.exception))
            self.assertEqual(store.steps(), [1])
        with self.assertRaisesRegex(TypeError, "did you mean 'replace'"):
            libdcp.save(self.dir, 2, state, replce=True)
        with self.assertRaisesRegex(TypeError, "did you mean 'replicas'"):
            libdcp.prove(state, replica="check")

    def test_wrong_values(self):
        """Each is refused by name in the call to which it is passed, before anything is done."""
        state = {"w": np.ones(2)}
        libdcp.save(self.dir, 1, state)
        other = self.dir.parent / "other"
        saves = {"layout": (None, 5, "shraded"), "engine": ("x", 1), "shards": (-1, "2", 1.0, 100000), "about": (5, [], "\udc80"),
                 "staging_bytes": (-1, 1.5, 2**64), "replicas": ("chek", None), "make_room": ("x", None, 2),
                 "progress": (5, "x"), "json": (5, [1], "x")}
        stores = {"keep": (-1, "3", 2.0, True, 2**32), "replace": ("no", None, 2), "take_over": ("no", []),
                  "stripe_count": (-2, "1"), "stripe_bytes": (-1, "1"), "keep_every": (-1, 1.5), "keep_seconds": (-1, "1"),
                  "keep_best": (-1, 2**32), "keep_metric": (5, None), "keep_highest": ("no",)}
        loads = {"only": (5, [5], b"/m*", {"a": 1}, "a\0b"), "rename": (["a", "b"], {1: "x"}, {"x": 2}, "ab"),
                 "cast": ("yes", None), "strict": ("no", None), "engine": ("x",), "progress": (5,), "fall_back": ("x", None),
                 "step": ("1", True, -1, 2**64, 1.5)}
        tiers = {"every": (-1, "1"), "keep": (-1, 1.5), "private": ("no",), "keep_best": (-1,),
                 "redundancy": (5, None, "rs2", "rs(2) ", "partners", ""), "layout": ("x", None), "domain": (5,)}
        with libdcp.Store(self.dir) as store:
            for rows, call in ((saves, lambda **given: libdcp.save(other, 2, state, **given)),
                               (saves, lambda **given: store.save(2, state, **given)),
                               (saves, lambda **given: store.save_async(2, state, **given)),
                               ({"copy": (5, "x", None), "copy_bytes": (-1, "1", 2**64)},
                                lambda **given: store.save_async(2, state, **given)),
                               (stores, lambda **given: libdcp.Store(other, **given)),
                               (tiers, lambda **given: libdcp.Tier(other, **given)),
                               (loads, lambda **given: libdcp.load(self.dir, state, **given)),
                               (loads, lambda **given: store.load(state, **given)),
                               ({"only": loads["only"], "as_torch": ("x", 3), "lazy": ("x", 3)},
                                lambda **given: libdcp.read(self.dir, **given)),
                               ({"replicas": saves["replicas"]}, lambda **given: libdcp.prove(state, **given)),
                               ({"progress": (5,)}, lambda **given: libdcp.Checkpoint(self.dir).verify(**given)),
                               ({"step": (True, "1", -1, None)}, lambda step: libdcp.save(other, step, state))):
                for name, values in rows.items():
                    for value in values:
                        with self.subTest(name, value=value), self.assertRaisesRegex((TypeError, ValueError), f"^{name}: "):
                            call(**{name: value})
            self.assertEqual(store.steps(), [1])
        self.assertEqual(libdcp.steps(other), [])

    def test_values_that_json_lacks(self):
        good = {"a": [1, 2.5, None, True, "\u00fc"], "b": {"c": 2**64 - 1, "d": -2**63}, "e": (), "f": {5: 1, None: 2}}
        libdcp.save(self.dir, 1, {"w": np.ones(2)}, json=good)
        for member, kind, said in [
                (float("nan"), ValueError, "json['x'][0]: nan is no number of JSON"), (10**30, ValueError, "is outside -2^63 to 2^64 - 1"),
                ("\ud800", ValueError, "contains NUL or surrogates"), ("a\0", ValueError, "contains NUL or surrogates"),
                (np.ones(2), TypeError, "json['x'][0]: JSON has no ndarray"),
                ({1, 2}, TypeError, "JSON has no set"), ({(1,): 2}, TypeError, "json['x'][0]: the key (1,) is no text")]:
            with self.subTest(said), self.assertRaises(kind) as caught:
                libdcp.save(self.dir, 2, {"w": np.ones(2)}, json={"x": [member]})
            self.assertIn(said, str(caught.exception))
        self.assertEqual(libdcp.steps(self.dir), [1])

    def test_values_of_numpy(self):
        state = {"w": np.ones(2)}
        with libdcp.Store(self.dir, keep=np.int32(1), replace=np.True_) as store:
            store.save(np.int64(1), state, shards=np.uint8(0), make_room=np.False_)
            store.save(np.uint64(2), state)
            self.assertEqual(store.steps(), [2])
        self.assertEqual(libdcp.load(self.dir, state, strict=np.True_, cast=0)["step"], 2)

    def test_paths(self):
        state = {"w": np.ones(2)}
        for path in (self.dir, str(self.dir), bytes(self.dir)):
            libdcp.save(path, 1, state, replace=True)
            self.assertEqual((libdcp.steps(path), libdcp.load(path, state, step=1)["step"]), ([1], 1))
            self.assertEqual(libdcp.Checkpoint(libdcp.store.step_path(path, 1)).step, 1)
            with libdcp.Store([libdcp.Tier(path)]) as store:
                self.assertEqual(store.steps(), [1])
        for path in ("a\0b", b"a\0b", pathlib.Path("a\0b"), "", "a\ud800"):
            for what, call in (("directory", lambda: libdcp.save(path, 1, state)), ("directory", lambda: libdcp.Store(path)),
                               ("directory", lambda: libdcp.steps(path)), ("path", lambda: libdcp.load(path, state)),
                               ("path", lambda: libdcp.Checkpoint(path)), ("path", lambda: libdcp.read(path)),
                               ("path of a libdcp.Tier", lambda: libdcp.Tier(path))):
                with self.subTest(path=path), self.assertRaisesRegex(ValueError, f"^{what}: "):
                    call()

    def test_names_that_no_tensor_has(self):
        x = np.ones(2)
        for name in ("", ".", "..", "/", "a//b", "a/../b", "/a", "a/", "\udc80", "a\0b", "x" * 2000, "\u00e9" * 600):
            for state, keys in (({name: x}, [name]), ({"model": {name: x, "b": x}}, ["model", name]), ({name: {"w": x}}, [name, "w"]),
                                ({"model": {"a": {name: x}}}, ["model", "a", name])):
                if len(keys) == 3 and name in ("", ".", "..", "/a"):  # part of a name, such as "a..", or of a path
                    continue
                said = "state" + "".join(f"[{key!r}]" for key in keys)
                for call in (libdcp.save, libdcp.prove):
                    with self.subTest(name[:9], keys=len(keys)), self.assertRaises(ValueError) as caught:
                        call(*((self.dir, 1) if call is libdcp.save else ()), state)
                    self.assertTrue(str(caught.exception).startswith(said), str(caught.exception)[:200])
        self.assertEqual(libdcp.steps(self.dir), [])

    def test_what_a_load_did_without(self):
        libdcp.save(self.dir, 1, {"model": {"a": np.ones(2), "b": np.ones(2), "c": np.ones(2)}})
        state = {"model": {"a": np.zeros(2), "new": np.zeros(2)}}
        loaded = libdcp.load(self.dir, state, strict=False)
        self.assertEqual((loaded.missing, loaded.unexpected), (["/model/new"], ["/model/b", "/model/c"]))
        self.assertEqual((loaded["step"], state["model"]["a"].tolist()), (1, [1, 1]))
        for options, missing, unexpected in [
                (dict(only="/model/[an]*"), ["/model/new"], []),
                (dict(only=["/model/[ab]"]), [], ["/model/b"]),
                (dict(rename={"/model/new": "/model/b"}), [], ["/model/c"]),
                (dict(rename={"/model/n*w": "/model/b*"}, only="/model/n*"), ["/model/new"], ["/model/b"])]:
            with self.subTest(options):
                loaded = libdcp.load(self.dir, state, strict=False, **options)
                self.assertEqual((loaded.missing, loaded.unexpected), (missing, unexpected))
        libdcp.save(self.dir, 2, {"model": {"a": np.ones(2), "b": np.ones(2), "n": {"x": 1, "y": 2}}, "epoch": 3, "o": {"lr": 1}})
        for only, unexpected in [(None, ["/epoch", "/model/b", "/model/n.y", "/o/lr"]), ("/model/*", ["/model/b", "/model/n.y"]),
                                 (["/model/[an]*"], ["/model/n.y"]), ("/model/n.x", [])]:
            with self.subTest(only):
                loaded = libdcp.load(self.dir, {"model": {"a": np.zeros(2), "n": {"x": 0}}, "p": 5}, only=only, strict=False)
                self.assertEqual(sorted(loaded.unexpected), unexpected)
        whole = {"model": {name: np.zeros(2) for name in "abc"}}
        loaded = libdcp.load(self.dir, whole, step=1)
        self.assertEqual((loaded.missing, loaded.unexpected, type(loaded).mro()[1]), ([], [], dict))
        for place in (self.dir, [libdcp.Tier(self.dir)]):
            with libdcp.Store(place) as store:
                self.assertEqual(store.load(state, step=1, strict=False).missing, ["/model/new"])

    def test_a_step_by_its_number(self):
        self.save_steps(1, 2, 3)
        state = {"w": np.zeros(100), "epoch": 0}
        self.assertEqual((libdcp.load(self.dir, state, step=2)["step"], state["epoch"]), (2, 2))
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(self.dir, state, step=4)
        self.assertEqual(caught.exception.status, libdcp.Status.NOT_FOUND)

    def test_numbers_that_are_none(self):
        """None of them becomes another step, as "1" would become step-10000000, and 2**64 + 1 step 1."""
        state = {"w": np.zeros(100), "epoch": 0}
        with libdcp.Store(self.dir) as store:
            for step in (1, 10000000):
                store.save(step, {"w": np.ones(100), "epoch": step})
            for wrong, what in (("1", TypeError), (1.0, TypeError), (-1, ValueError), (2**64 + 1, ValueError)):
                for call in (lambda: store.load(state, step=wrong), lambda: store.remove(wrong), lambda: store.pin(wrong),
                             lambda: store.continue_from(wrong), lambda: store.is_due(wrong), lambda: store.path(wrong),
                             lambda: store.save(wrong, state), lambda: libdcp.load(self.dir, state, step=wrong)):
                    with self.subTest(wrong), self.assertRaisesRegex(what, "^step: "):
                        call()
            self.assertEqual((store.steps(), state["epoch"]), ([1, 10000000], 0))
            self.assertEqual(store.load(state, step=np.int64(1))["step"], 1)

    def test_damage_of_the_newest_steps(self):
        self.save_steps(1, 2, 3, 4)
        for step in (3, 4):
            damage(self.dir / f"step-{step:08}")
        state = {"w": np.zeros(100), "epoch": 0}
        with libdcp.Store(self.dir) as store:
            with self.assertRaises(libdcp.Error) as caught:
                store.load(state, fall_back=False)
            self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)
            with self.assertRaises(libdcp.Error) as caught:
                store.load(state, step=3)
            self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)
            with self.assertLogs("libdcp", "WARNING") as logged:
                self.assertEqual(store.load(state)["step"], 2)
            self.assertRegex(logged.output[0], "step 4 is damaged .*/model/w.*: falling back to step 3$")
            self.assertRegex(logged.output[1], "step 3 is damaged .*: falling back to step 2$")
            self.assertEqual((state["epoch"], state["w"][0]), (2, 2000))
            store.save(3, state)
            self.assertEqual(store.steps(), [1, 2, 3])
        self.assertTrue((self.dir / ".abandoned-step-00000004").is_dir())
        self.assertEqual(libdcp.load(self.dir, state)["step"], 3)

    def test_damage_of_a_ranks_own_arrays(self):
        """They keep their elements if the step that is loaded instead lacks them."""
        def own(value):
            return libdcp.PerRank({"a": np.full(100, value), "b": [np.full(3, value)], "k": value})
        libdcp.save(self.dir, 1, {"w": np.ones(100)})
        libdcp.save(self.dir, 2, {"w": np.full(100, 20.0), "own": own(2.0)})
        libdcp.save(self.dir, 3, {"w": np.full(100, 30.0), "own": own(3.0)})
        for step in (2, 1):
            damage(self.dir / f"step-{step + 1:08}")
            state = {"w": np.zeros(100), "own": own(-7.0)}
            old, a, b = state["own"].value, state["own"].value["a"], state["own"].value["b"][0]
            with self.assertLogs("libdcp", "WARNING"):
                self.assertEqual(libdcp.load(self.dir, state, strict=False)["step"], step)
            wanted, value = 2.0 if step == 2 else -7.0, state["own"].value
            self.assertEqual((set(a), set(b), value["k"], state["own"].loaded), ({wanted}, {wanted}, wanted, step == 2))
            self.assertTrue(value["a"] is a and value["b"][0] is b and (value is old) == (step == 1))

    def test_damage_without_a_store(self):
        """load() of a directory falls back to an older step, as a store does."""
        self.save_steps(1, 2, 3)
        damage(self.dir / "step-00000003")
        state = {"w": np.zeros(100), "epoch": 0}
        for options in ({"fall_back": False}, {"step": 3}):
            with self.assertRaises(libdcp.Error) as caught:
                libdcp.load(self.dir, state, **options)
            self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)
        with self.assertRaises(libdcp.Error):
            libdcp.load(self.dir / "step-00000003", state)
        with self.assertLogs("libdcp", "WARNING") as logged:
            self.assertEqual(libdcp.load(self.dir, state)["step"], 2)
        self.assertRegex(logged.output[0], "step 3 is damaged .*: falling back to step 2$")
        self.assertEqual((state["epoch"], libdcp.steps(self.dir)), (2, [1, 2, 3]))

    def test_a_step_that_goes_before_it_is_opened(self):
        """A writer's `keep` removes it once newer steps exist."""
        self.save_steps(1)
        listed, saved = libdcp._directory.steps, []

        def steps(directory):
            found = listed(directory)
            if not saved:
                saved.append(2)
                with libdcp.Store(self.dir, keep=1) as store:
                    store.save(2, {"w": np.arange(100) + 2000.0, "epoch": 2})
                self.assertEqual(libdcp.steps(self.dir), [2])
            return found
        state = {"w": np.zeros(100), "epoch": 0}
        with mock.patch.object(libdcp._directory, "steps", steps):
            self.assertEqual(libdcp.load(self.dir, state)["step"], 2)
        self.assertEqual((saved, state["epoch"]), ([2], 2))

    def test_all_steps_damaged(self):
        self.save_steps(1, 2)
        for step in (1, 2):
            damage(self.dir / f"step-{step:08}")
        with libdcp.Store(self.dir) as store, self.assertLogs("libdcp", "WARNING"):
            with self.assertRaises(libdcp.Error) as caught:
                store.load({"w": np.zeros(100), "epoch": 0})
            self.assertEqual(caught.exception.status, libdcp.Status.CORRUPT)

    def test_what_is_no_damage(self):
        """Neither another shape, nor data that could not be read, nor anything that the caller's own objects
        raise."""
        self.save_steps(1, 2)
        with libdcp.Store(self.dir) as store:
            with self.assertRaises(libdcp.Error) as caught:
                store.load({"w": np.zeros(99), "epoch": 0})
            self.assertEqual(caught.exception.status, libdcp.Status.MISMATCH)
            sick = libdcp.Error("can't be read", status=libdcp.Status.IO)
            with mock.patch.object(libdcp._calls.lib, "checkpoint_open", side_effect=sick):
                with self.assertRaisesRegex(libdcp.Error, "can't be read"):
                    store.load({"w": np.zeros(100), "epoch": 0})
            with self.assertRaisesRegex(RuntimeError, "enough"):
                store.load({"w": np.zeros(100), "epoch": 0}, progress=mock.Mock(side_effect=RuntimeError("enough")))

    def test_damage_of_the_newest_step_in_a_list(self):
        self.save_steps(1, 2)
        damage(self.dir / "step-00000002")
        state = {"w": np.zeros(100), "epoch": 0}
        with libdcp.Store([libdcp.Tier(self.dir)]) as store:
            with self.assertRaisesRegex(libdcp.Error, "step-00000002/state.h5: tensor /model/w"):
                store.load(state, fall_back=False)
            self.assertEqual(store.load(state)["step"], 1)

    def test_checkpoints_as_keys(self):
        self.save_steps(1)
        with libdcp.Checkpoint(self.dir) as one, libdcp.Checkpoint(self.dir) as other:
            self.assertTrue(one == one and one != other)
            self.assertEqual({one: 1, other: 2}[other], 2)
            with mock.patch.object(libdcp.Checkpoint, "read", side_effect=AssertionError):  # this reads nothing
                self.assertTrue("/model/w" in one and "w" not in one and 3 not in one)

    def test_names_without_their_section(self):
        libdcp.save(self.dir, 1, {"model": {"a.w": np.ones(2), "b": np.ones(3)}, "ema": {"b": np.ones(3)}})
        with libdcp.Checkpoint(self.dir) as checkpoint:
            for name, hint in [("b", "did you mean '/ema/b' or '/model/b'"), ("a.w", "'/model/a.w'"), ("w", "'/model/a.w'"),
                               ("/model/a.v", "'/model/a.w'"), ("zzzzzz", "is no tensor of ")]:
                for call in (checkpoint.__getitem__, checkpoint.read, checkpoint.dtype, checkpoint.shape):
                    with self.subTest(name), self.assertRaises(KeyError) as caught:
                        call(name)
                    self.assertIn(hint, caught.exception.args[0])

    def test_what_all_ranks_have_together(self):
        class Distributed:
            placements = ()

            def to_local(self):
                return np.ones(2)
        with self.assertRaisesRegex(TypeError, "^libdcp.PerRank: a Distributed .* to_local"):
            libdcp.PerRank(Distributed())
        libdcp.PerRank(Distributed().to_local())

    def test_reserved_sections(self):
        for section in ("files", "dcp"):
            for call in (libdcp.save, libdcp.save_async):
                with self.subTest(section), self.assertRaisesRegex(ValueError, rf"^state\['{section}'\]\['a'\]: the sections"):
                    call(self.dir, 1, {section: {"a": np.ones(2)}})
        self.assertEqual(libdcp.steps(self.dir), [])
        libdcp.save(self.dir, 1, {"files": np.ones(2), "model": {"dcp": np.ones(2)}, "dcp": 3})

    def test_pins(self):
        self.save_steps(1)
        with libdcp.Store(self.dir, keep=1) as store:
            pin = store.pin(1)
            self.assertEqual((pin.step, pin.path), (1, store.path(1)))
            for step in (2, 3):
                store.save(step, {"w": np.ones(2)})
            self.assertEqual(store.steps(), [1, 3])
            with self.assertRaises(libdcp.Error) as caught:
                store.remove(1)
            self.assertEqual(caught.exception.status, libdcp.Status.BUSY)
            pin.release()
            pin.release()
            store.remove(1)
            with store.pin(3):
                store.save(4, {"w": np.ones(2)})
            store.save(5, {"w": np.ones(2)})
            self.assertEqual(store.steps(), [5])
            with self.assertRaises(libdcp.Error) as caught:
                store.pin(1)
            self.assertEqual(caught.exception.status, libdcp.Status.NOT_FOUND)
        with libdcp.Store([libdcp.Tier(self.dir)]) as store, self.assertRaisesRegex(ValueError, "^pin: "):
            store.pin(5)


if __name__ == "__main__":
    unittest.main()
