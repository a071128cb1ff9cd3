"""Parts of a state that are not tensors are stored with their types, and are loaded into the caller's own mappings
and objects; with numpy alone, one process."""

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import types
import unittest

import numpy as np

import libdcp
import trees
from libdcp import _decoding, _restore, _words


class Part:
    """An object with a state dict, which it makes for each call."""

    def __init__(self, **state):
        self.state = state
        self.loads = 0

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = state
        self.loads += 1


class Whole(int):
    pass


class Name(str):
    pass


class Rate(float):
    pass


class Table(collections.UserDict):
    pass


def made_anew(array):
    """Returns the array as the library makes it for a state without a tensor: a torch tensor if another test has
    imported torch."""
    return sys.modules["torch"].from_numpy(array) if "torch" in sys.modules else array


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-tree-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "steps"
        self.addCleanup(_words.registered.clear)

    def assert_same(self, a, b):
        self.assertEqual(trees.difference(a, b), "")

    def refused(self, state, status="NOT_FOUND", **options):
        """Returns the message of a load that changes nothing."""
        before = copy.deepcopy(state)
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(self.dir, state, **options)
        self.assertEqual(caught.exception.status.name, status)
        self.assert_same(state, before)
        return str(caught.exception)

    # Types.

    def test_types_are_kept(self):
        """Whatever the state contains before the load: the same types, or others."""
        for name, value in trees.words().items():
            with self.subTest(name):
                libdcp.save(self.dir, 1, {"inner": {"x": value}, "top": value, "w": np.ones(1)}, replace=True)
                for old in (copy.deepcopy(value), 0, None):
                    state = {"inner": {"x": old}, "top": copy.deepcopy(old), "w": np.zeros(1)}
                    for cls in trees.CLASSES:
                        libdcp.register(cls)
                    libdcp.load(self.dir, state)
                    self.assert_same(state, {"inner": {"x": value}, "top": value, "w": np.ones(1)})

    def test_all_at_once(self):
        libdcp.save(self.dir, 1, {"state": trees.words(), **trees.words()})
        state = {"state": trees.words(), **trees.words()}
        for inner in (state["state"], state):
            for name in inner:
                inner[name] = inner[name] if name == "state" else None
        for cls in trees.CLASSES:
            libdcp.register(cls)
        libdcp.load(self.dir, state)
        self.assert_same(state, {"state": trees.words(), **trees.words()})

    def test_random_states(self):
        """Loaded into a state with the same names and tensors, and read without a state; the loaded state makes
        the same file."""
        for cls in trees.CLASSES:
            libdcp.register(cls)
        for seed in range(80):
            with self.subTest(seed):
                saved = trees.Maker(random.Random(seed)).state()
                libdcp.save(self.dir, 1, saved, replace=True)
                state = trees.blank(saved)
                libdcp.load(self.dir, state)
                self.assert_same(state, saved)
                self.assert_same(libdcp.read(self.dir, as_torch=False), saved)
                before = self.stored()
                libdcp.save(self.dir, 1, state, replace=True)
                self.assertEqual(self.stored(), before)

    def test_equal_states_are_equal_files(self):
        """Sets and mappings have an order, in which they were filled; the file does not depend on it."""
        files = []
        for step, order in enumerate((1, -1)):
            items = [(2, "b"), ("a", 1), (None, 3)][::order]
            libdcp.save(self.dir, step, {"m": {"d": dict(items), "s": set(dict(items)), "c": collections.Counter("abc"[::order])}})
            files.append(json.dumps(self.stored(step), sort_keys=True).replace('"step": 1', '"step": 0'))
        self.assertEqual(*files)

    def stored(self, step=1):
        """Returns the JSON as it is in the file."""
        text = (self.dir / f"step-{step:08}/state.h5").read_bytes()
        at = text.index(b'{"format"')
        return json.JSONDecoder().raw_decode(text[at:].decode("utf-8", "ignore"))[0]

    def test_plain_states_have_plain_json(self):
        libdcp.save(self.dir, 1, {"m": {"a": np.ones(2), "b": {"lr": 0.5}}, "l": [1, "a", None, {"b": float("inf")}]})
        self.assertEqual({key: value for key, value in self.stored().items() if key not in ("format", "step")},
                         {"state": {"m": {"b": {"lr": 0.5}}, "l": [1, "a", None, {"b": {"float": "inf"}}]}, "tree": {"tags": 1}})
        libdcp.save(self.dir, 2, {"m": {"a": np.ones(2)}})
        self.assertEqual(set(self.stored(2)), {"format", "step"})

    def test_what_needs_no_tags_is_of_its_own_type_too(self):
        """Whatever the state has in its place; files of older versions follow the state's types."""
        libdcp.save(self.dir, 1, {"m": {"l": [1, [2]], "k": {"1": "a"}, "c": {"3": 4}, "d": [5]}, "w": np.ones(1)})
        state = {"m": {"l": (0, (0,)), "k": {}, "c": collections.Counter({1: 1}), "d": collections.deque([0], 1)}, "w": np.zeros(1)}
        libdcp.load(self.dir, state)
        self.assert_same(state["m"], {"l": [1, [2]], "k": {"1": "a"}, "c": {"3": 4}, "d": [5]})
        self.assertIn("state['m']['k'][1] is not in", self.refused({"m": {"l": 0, "k": {1: ""}, "c": 0, "d": 0}, "w": np.zeros(1)}))

    def test_classes_of_the_state_and_registered_ones(self):
        libdcp.save(self.dir, 1, {"a": {"p": trees.Point(1, 2), "m": trees.Mode.FAST}, "l": [trees.Point(3, 4)]})
        state = {"a": {"p": trees.Point(0, 0), "m": trees.Mode.SAFE}, "l": []}
        libdcp.load(self.dir, state)
        self.assert_same(state, {"a": {"p": trees.Point(1, 2), "m": trees.Mode.FAST}, "l": [trees.Point(3, 4)]})
        state = {"a": {"p": 0, "m": 0}, "l": 0}
        with self.assertLogs("libdcp", "WARNING") as logs:
            libdcp.load(self.dir, state)
        self.assertIn("libdcp.register", logs.output[0])
        self.assertIn("trees.Point", logs.output[0])
        self.assert_same(state, {"a": {"p": (1, 2), "m": 1}, "l": [(3, 4)]})
        self.assertIs(libdcp.register(trees.Point), trees.Point)
        libdcp.register(trees.Mode)
        libdcp.load(self.dir, state)
        self.assert_same(state["a"], {"p": trees.Point(1, 2), "m": trees.Mode.FAST})
        for wrong in (int, object, 5, Part):
            with self.assertRaisesRegex(TypeError, "no Enum, dataclass, named tuple"):
                libdcp.register(wrong)

    def test_a_file_names_no_code(self):
        """Tags with names of objects that could be imported and called have no effect."""
        calls = ["os.system", "builtins.eval", "subprocess.Popen", "collections.OrderedDict", "trees.nothing"]
        program = ("import sys, json, libdcp; before = set(sys.modules); d, tags = sys.argv[1], json.loads(sys.argv[2]);"
                   "[libdcp.save(d, i, {}, json={'state': {'x': t}, 'tree': {'tags': 1}}) for i, t in enumerate(tags)]\n"
                   "for i, t in enumerate(tags):\n"
                   " state = {'x': None}\n"
                   " try: libdcp.load(f'{d}/step-{i:08}', state)\n"
                   " except libdcp.Error as e: assert e.status.name in ('UNSUPPORTED', 'VERSION'), e\n"
                   " assert type(state['x']) in (type(None), tuple, dict, list, str, int), state\n"
                   "assert not {'subprocess', 'antigravity'} & (set(sys.modules) - before)")
        tags = [content for name in calls + ["antigravity.x"] for content in (
            {"$enum": [name, "x", "ls"]}, {"$namedtuple": [name, ["a"], ["ls"]]}, {"$dataclass": [name, {"a": "ls"}]},
            {"$subclass": [name, ["ls"]]}, {"$mapping": [name, [["a", "ls"]]]}, {"$defaultdict": [name, []]},
            {"$numpy": [name, "ls"]}, {"$torch.dtype": name}, {"$call": [name, ["ls"]]}, {"$numpy": ["object", 1]})]
        subprocess.run([sys.executable, "-c", program, self.dir, json.dumps(tags)], check=True)

    def test_damaged_tags(self):
        for tag in ({"$tuple": 5}, {"$set": [[1]]}, {"$int": "5"}, {"$bytes": "*"}, {"$deque": [1]}, {"$enum": 3},
                    {"$dict": [[[1], 2]]}, {"$complex": ["a", 1]}, {"$numpy": ["int8", 1000]}, {"$date": "x"}):
            libdcp.save(self.dir, 1, {"model": {"w": np.ones(1)}}, json={"state": {"x": {"y": tag}}, "tree": {"tags": 1}}, replace=True)
            with self.subTest(tag):
                self.assertRegex(self.refused({"model": {"w": np.zeros(1)}, "x": {"y": 1}}, "UNSUPPORTED"),
                                 r"^state\['x'\]\['y'\]: ")
        libdcp.save(self.dir, 1, {"model": {"w": np.ones(1)}}, json={"state": {"x": {"$new": 1}}, "tree": {"tags": 1}}, replace=True)
        self.assertIn("'$new'", self.refused({"model": {"w": np.zeros(1)}, "x": 1}, "VERSION"))
        libdcp.save(self.dir, 1, {"model": {"w": np.ones(1)}}, json={"state": {"x": 1}, "tree": {"tags": 2}}, replace=True)
        self.assertIn("version 2", self.refused({"model": {"w": np.zeros(1)}, "x": 1}, "VERSION"))

    def test_numbers_of_numpy_name_no_sizes(self):
        """numpy's types make so many bytes, or copies of items, from other values than those that are saved."""
        for content in (["bytes", 10**7], ["bytes", [0] * 5], ["str", 5], ["str", {"$bytes": "YQ=="}], ["bytes", "a"],
                        ["int8", [1, 2]], ["float64", "1" * 9], ["int64", {"$range": [0, 10**12, 1]}],
                        ["int8", {"$bytes": "YQ=="}], ["float64", None], ["datetime64[s]", [1, 2]],
                        ["datetime64[s]", "5"], ["timedelta64[s]", 1.5]):
            with self.subTest(content), self.assertRaisesRegex(libdcp.Error, r"^state: .*'\$numpy' is invalid"):
                _decoding.Decoder(True).value({"$numpy": content})
            self.assertEqual(_decoding.Decoder(True, plain=True).value({"$numpy": content}), {"$numpy": content})
        with self.assertRaisesRegex(libdcp.Error, r"^state: .*'\$date' is invalid") as caught:
            _decoding.Decoder(True).value({"$date": "1" * 10**6})
        self.assertLess(len(str(caught.exception)), 1000)

    def refused_by_all(self, state, status):
        """Returns the message of loads of the newest of two steps, which must not fall back to the other one."""
        for where in (None, self.dir, [libdcp.Tier(self.dir)]):
            with contextlib.ExitStack() as closing:
                store = closing.enter_context(libdcp.Store(where)) if where else None
                with self.assertNoLogs("libdcp", "WARNING"), self.assertRaises(libdcp.Error) as caught:
                    store.load(state) if store else libdcp.load(self.dir, state)
                self.assertEqual(caught.exception.status.name, status)
        return str(caught.exception)

    def test_no_falling_back_from_what_can_not_be_decoded(self):
        """Its checksums are right, so a load that used an older step would lose the newest one."""
        def save(value):
            for step, x in enumerate((type(value)(), value)):
                libdcp.save(self.dir, step, {"w": np.ones(1), "x": x}, replace=True)
        class Parts(enum.Flag):
            A, B, C = 1, 2, 4
        libdcp.save(self.dir, 0, {"w": np.ones(1), "x": Parts.A})
        libdcp.save(self.dir, 1, {"w": np.ones(1), "x": Parts.A | Parts.C})

        class Parts(enum.Flag):  # noqa: F811
            A, B = 1, 2
        fewer = Parts

        class Parts(enum.Flag):  # noqa: F811
            A, B = 1, 2

            @classmethod
            def _missing_(cls, value):
                return cls.A
        for kind in (fewer, Parts):
            with self.subTest(kind):
                self.assertRegex(self.refused_by_all({"w": np.zeros(1), "x": kind.A}, "MISMATCH"), r"state\['x'\]: the "
                                 r"program's class .*Parts does not accept what was saved of an instance \(")
        for value in ({trees.Frozen("a")}, frozenset([trees.Frozen("a")]), {trees.Frozen("a"): 1},
                      {(1, trees.Frozen("a")): 1}, collections.OrderedDict({trees.Frozen("a"): 1}),
                      collections.defaultdict(int, {trees.Frozen("a"): 1}), collections.Counter([trees.Frozen("a")])):
            with self.subTest(value):
                save(value)
                named = r"state\['x'\]: .*instance of the class trees.Frozen.*call libdcp.register"
                self.assertRegex(self.refused_by_all({"w": np.zeros(1), "x": type(value)()}, "MISMATCH"), named)
                for options in ({}, {"lazy": True}, {"only": "/x"}):
                    with self.assertRaisesRegex(libdcp.Error, named) as caught:
                        libdcp.read(self.dir, **options)
                    self.assertEqual(caught.exception.status, libdcp.Status.MISMATCH)
                state = {"w": np.zeros(1), "x": type(value)()}
                libdcp.register(trees.Frozen)
                libdcp.load(self.dir, state)
                self.assert_same(state["x"], value)
                _words.registered.clear()
        for word in ({"$set": [[1]]}, {"$tensor": "/none"}, {"$int": "5"}):
            with self.subTest(word):
                libdcp.save(self.dir, 0, {"model": {"w": np.ones(1)}, "x": [0]}, replace=True)
                members = {"state": {"x": [word]}, "tree": {"tags": 1}}
                libdcp.save(self.dir, 1, {"model": {"w": np.ones(1)}}, json=members, replace=True)
                state = {"model": {"w": np.zeros(1)}, "x": [0]}
                self.assertIn("state['x'][0]: ", self.refused_by_all(state, "UNSUPPORTED"))

    def test_a_class_of_mappings_without_attributes(self):
        class Own(dict):
            __slots__ = ()
        libdcp.save(self.dir, 1, {"w": np.ones(1), "q": [Own(a=1)]})
        state = {"w": np.zeros(1), "q": [Own()]}
        libdcp.load(self.dir, state)
        self.assertEqual([type(state["q"][0]), dict(state["q"][0])], [Own, {"a": 1}])

    def test_classes_of_mappings(self):
        """For each kind of mapping, within a container whose contents are replaced by the stored ones."""
        for kind in (collections.OrderedDict, dict):
            with self.subTest(kind):
                Own = type("Own", (kind,), {})
                saved = [Own(z=1, a=2), (Own(b=np.arange(2)),)]
                libdcp.save(self.dir, 1, {"w": np.ones(1), "q": saved, "top": Own(z=1)}, replace=True)
                state = {"w": np.zeros(1), "q": [Own(z=0), (Own(b=np.zeros(2, int)),)], "top": Own()}
                libdcp.load(self.dir, state)
                first, (second,) = state["q"]
                self.assertEqual([type(first), list(first.items())], [Own, [("z", 1), ("a", 2)]])
                self.assertEqual([type(second), list(second), second["b"].tolist()], [Own, ["b"], [0, 1]])
                self.assertEqual([type(state["top"]), list(state["top"].items())], [Own, [("z", 1)]])

    def test_classes_of_texts_and_numbers(self):
        """Their classes stay, also of keys; without their class they become plain, which is reported."""
        saved = {"i": Whole(-2**70), "s": Name("a\0"), "f": Rate("nan"), "l": [Whole(1), 1, True, (Rate(0.5),)], "k": {Name("k"): 1},
                 "u": Table(a=Whole(1), b=[Table()]), "plain": collections.UserDict(x=1)}
        libdcp.save(self.dir, 1, {"m": saved, "w": np.ones(1)})
        state = {"m": None, "w": np.zeros(1)}
        with self.assertLogs("libdcp", "WARNING") as logs:
            libdcp.load(self.dir, state)
        self.assertIn(".Whole, and was loaded as a plain value", "".join(logs.output))
        self.assert_same(state["m"], {"i": -2**70, "s": "a\0", "f": float("nan"), "l": [1, 1, True, (0.5,)], "k": {"k": 1},
                                      "u": {"a": 1, "b": [{}]}, "plain": {"x": 1}})
        table = Table(a=0, b=[])
        state = {"m": {"i": Whole(0), "s": Name(), "f": Rate(), "l": [], "k": {Name("k"): 0}, "u": table,
                       "plain": collections.UserDict(x=0)}, "w": np.zeros(1)}
        libdcp.load(self.dir, state)
        self.assertIs(state["m"]["u"], table)
        for cls in (Whole, Name, Rate, Table, collections.UserDict):
            libdcp.register(cls)
        for found in (state["m"], libdcp.read(self.dir)["m"]):
            self.assert_same({**found, "u": 0, "plain": 0}, {**saved, "u": 0, "plain": 0})
            for key in ("u", "plain"):
                self.assertIs(type(found[key]), type(saved[key]))
                self.assert_same(found[key].data["a" if key == "u" else "x"], saved[key].data["a" if key == "u" else "x"])
            self.assertIs(type(found["u"]["b"][0]), Table)
            self.assertIs(type(next(iter(found["k"]))), Name)
        own = Whole(3)
        own.unit = "m"
        with self.assertRaisesRegex(TypeError, r"^state\['a'\]\['x'\]: the Whole has the attribute 'unit'"):
            libdcp.save(self.dir, 2, {"a": {"x": own}})

    def test_mappings_of_which_no_new_one_can_be_made(self):
        """They are refused, but can still be loaded into."""
        class Counting(collections.defaultdict):
            pass

        class Labelled(collections.UserDict):
            label = None
        labelled = Labelled(a=1)
        labelled.label = "x"
        for value in (collections.ChainMap({"a": 1}, {"b": 2}), types.MappingProxyType({"a": 1}), Counting(int, a=1), labelled):
            for state in ({"m": {"x": value}}, {"x": value}, {"m": [value]}):
                with self.subTest(type(value)), self.assertRaisesRegex(
                        TypeError, r"^state\['(m'\]\[('x'|0)|x')\]: .*save what it consists of"):
                    libdcp.save(self.dir, 1, {**state, "w": np.ones(1)})
        libdcp.save(self.dir, 1, {"m": {"a": 5}, "w": np.ones(1)})
        libdcp.load(self.dir, {"m": labelled, "w": np.zeros(1)})
        self.assertEqual((labelled["a"], labelled.label), (5, "x"))

    def test_mappings_whose_items_are_attributes(self):
        class Own(collections.OrderedDict):
            def __setitem__(self, key, value):
                super().__setitem__(key, value)
                self.__dict__[key] = value
        saved = Own(loss=0.5, logits=np.arange(2))
        libdcp.save(self.dir, 1, {"q": [saved]})
        state = {"q": [Own(loss=0.0, logits=np.zeros(2, int))]}
        libdcp.load(self.dir, state)
        made = state["q"][0]
        self.assertEqual([made.loss, made["loss"], made.logits.tolist()], [0.5, 0.5, [0, 1]])
        self.assertIs(made.logits, made["logits"])
        saved.other = 1
        with self.assertRaisesRegex(TypeError, r"state\['q'\]\[0\]: the Own has the attribute 'other'"):
            libdcp.save(self.dir, 2, {"q": [saved]})

    def test_attributes_that_would_be_lost(self):
        """Of classes of any kind, in __dict__ or in __slots__."""
        class Pair(collections.namedtuple("Pair", "a b")):
            unit = "m"

            @functools.cached_property
            def total(self):
                return self.a + self.b

        class Row(list):
            __slots__ = ("x", "__y")

            def hide(self, y):
                self.__y = y

        class Inner(Row):
            __slots__ = "z"

        class Table(dict):
            __slots__ = ("x",)

        class Base:
            __slots__ = ("x",)

        @dataclasses.dataclass
        class Sizes(Base):
            a: int = 1
        for made, name in ((Pair(1, 2), "z"), (Row([1]), "x"), (Inner([1]), "x"), (Inner([1]), "z"), (Table(a=1), "x"),
                           (Sizes(), "x")):
            with self.subTest(type(made)):
                libdcp.save(self.dir, 1, {"m": [made], "w": np.ones(1)}, replace=True)
                setattr(made, name, 7)
                with self.assertRaisesRegex(
                        TypeError, rf"^state\['m'\]\[0\]: the {type(made).__name__} has the attribute '{name}'"):
                    libdcp.save(self.dir, 2, {"m": [made], "w": np.ones(1)})
        row = Row()
        row.hide(1)
        with self.assertRaisesRegex(TypeError, "the Row has the attribute '_Row__y'"):
            libdcp.save(self.dir, 2, {"m": [row]})
        pair = Pair(1, 2)
        pair.unit = Pair.unit
        self.assertEqual(pair.total, 3)  # can be computed again, so it is not refused
        state = {"m": [Pair(0, 0)], "t": [Table(x=0)], "w": np.zeros(1)}
        table = Table(x=[1])
        table.x = table["x"]
        libdcp.save(self.dir, 2, {"m": [pair], "t": [table], "w": np.ones(1)})
        libdcp.load(self.dir, state)
        self.assertEqual((state["m"], state["t"][0]), ([Pair(1, 2)], {"x": [1]}))
        self.assertIs(state["t"][0].x, state["t"][0]["x"])

    def test_attributes_of_an_object_that_gets_what_was_saved(self):
        """They remain the items, in __dict__ as well as in __slots__, and those of items that go away go away, too."""
        class Attributes(dict):
            def __init__(self, **items):
                super().__init__(items)
                self.__dict__ = self

        class Both(dict):
            __slots__ = ("x", "gone", "__y", "__dict__")

            def __init__(self, **items):
                super().__init__(items)
                for name, value in items.items():
                    setattr(self, name, value)

            @functools.cached_property
            def double(self):
                return 2 * self["n"]
        for kind in (Attributes, Both):
            with self.subTest(kind.__name__):
                def made(n, **more):
                    return kind(w=np.full(2, n), n=n, x=[n], _Both__y=[n], **more)
                def part_of(mapping):
                    part = Part()
                    part.state, part.state_dict = mapping, lambda: part.state
                    return part
                libdcp.save(self.dir, 1, {"top": np.ones(1), "p": part_of(made(5))}, replace=True)
                part = part_of(made(0, gone=7, more=8))
                if kind is Both:
                    self.assertEqual(part.state.double, 0)
                libdcp.load(self.dir, {"top": np.zeros(1), "p": part})
                found = part.state
                self.assertEqual((type(found), found.keys()), (kind, made(5).keys()))
                self.assertEqual((found["n"], found["x"], found["w"].tolist()), (5, [5], [5, 5]))
                for name in found:
                    self.assertIs(getattr(found, name), found[name], name)
                self.assertFalse(hasattr(found, "gone") or hasattr(found, "more"))
                if kind is Both:
                    self.assertEqual(found.double, 10)
                libdcp.save(self.dir, 1, {"p": part}, replace=True)

    def test_items_that_other_ranks_name_are_no_attributes(self):
        class Row(dict):
            __slots__ = ("x", "__y", "__dict__")

        row = Row(x=[1], _Row__y=[2], z=[3], kept=[4])
        row.x, row._Row__y, row.z, row.kept = row.values()
        for name in ("x", "_Row__y", "z"):
            _restore._delete(row, name, row[name])
        self.assertEqual((row, _words.mirrored_by(row)), ({"kept": [4]}, ["kept"]))
        for name in ("x", "_Row__y", "z"):
            self.assertFalse(hasattr(row, name), name)

    def test_what_a_rank_has_replaces_all_of_the_old_value(self):
        """Nothing of the old value remains in it, in mappings of any kind at any depth."""
        for saved in ({}, {"n": 1}, {2: [{}]}, [{"n": 1}], collections.OrderedDict(n=1), {"deep": {"n": 1}}):
            libdcp.save(self.dir, 1, {"w": np.ones(1), "own": libdcp.PerRank(saved)}, replace=True)
            for old in ({"x": np.ones(2)}, collections.OrderedDict(n=0, x=np.ones(2)), {2: [{"x": np.ones(2)}]},
                        [{"x": np.ones(2)}], {"deep": {"x": np.ones(2)}}, 5, None):
                with self.subTest(saved=saved, old=old):
                    own = libdcp.PerRank(old)
                    libdcp.load(self.dir, {"w": np.zeros(1), "own": own})
                    self.assert_same(own.value, saved)
                    self.assertTrue(own.loaded)

    def test_what_can_not_be_kept(self):
        loop = []
        loop.append(loop)
        deep = []
        for _ in range(500):
            deep = [deep]
        for value in (object(), print, Part, lambda: 0, collections.defaultdict(lambda: 0), memoryview(b"a"), loop, deep,
                      {object(): 1}, {(1, object()): 1}, np.longdouble(1), np.void(b"ab"), [Part()], {1, trees.Point}):
            with self.subTest(type(value)), self.assertRaisesRegex(TypeError, r"^state\['a'\]\['x'\]\[0\]"):
                libdcp.save(self.dir, 1, {"a": {"x": [value]}})
        settings = trees.Settings()
        settings.other = 1
        with self.assertRaisesRegex(TypeError, r"^state\['a'\]: the Settings has the attribute 'other'"):
            libdcp.save(self.dir, 1, {"a": settings})
        with self.assertRaisesRegex(TypeError, r"^state\['a'\]\['b'\]\[2\]\['c'\]: "):
            libdcp.save(self.dir, 1, {"a": {"b": (0, 1, {"c": object()})}})

    def test_keys_that_can_not_be_shown(self):
        """Too deep, or too large for a decimal number: they are still reported by their names, and stored if
        possible."""
        class Odd:
            def __repr__(self):
                raise ValueError("no")
        deep = 1
        for _ in range(3000):
            deep = (deep,)
        for key, name in ((deep, "tuple"), (Odd(), "Odd")):
            with self.assertRaisesRegex(TypeError, rf"^state\['a'\]\[<{name}>\]: a key that is a {name}"):
                libdcp.save(self.dir, 1, {"a": {key: 1}, "w": np.ones(1)})
        libdcp.save(self.dir, 1, {"a": {10**5000: [1]}, "w": np.ones(1)})
        state = {"a": {10**5000: [0]}, "w": np.zeros(1)}
        libdcp.load(self.dir, state)
        self.assertEqual(state["a"][10**5000], [1])
        with self.assertRaisesRegex(TypeError, r"^state\['a'\]\[<int>\]: a Odd is neither"):
            libdcp.save(self.dir, 1, {"a": {10**5000: Odd()}, "w": np.ones(1)})

    def test_too_many_values(self):
        with self.assertRaisesRegex(ValueError, r"^state\['a'\]\['history'\]: .* at most 1048576: keep them as an array"):
            libdcp.save(self.dir, 1, {"a": {"history": [0] * (1 << 20), "other": [1] * 1000}, "w": np.ones(1)})

    # Destinations.

    def test_top_level_beside_an_object(self):
        """The caller's own mapping gets the values, not a copy of it."""
        libdcp.save(self.dir, 1, {"part": Part(a=1), "epoch": 3, "note": "b", "rng": [1, 2], "inner": {"a": 5}})
        inner, part = {"a": 0}, Part(a=0)
        state = {"part": part, "epoch": 0, "note": "", "rng": [0], "inner": inner}
        libdcp.load(self.dir, state)
        self.assertEqual(state, {"part": part, "epoch": 3, "note": "b", "rng": [1, 2], "inner": {"a": 5}})
        self.assertIs(state["inner"], inner)
        self.assertEqual((part.state, part.loads), ({"a": 1}, 1))

    def test_objects_get_the_stored_mapping_whole(self):
        saved = Part(milestones=collections.Counter({2: 1, 4: 2}), gone={"a": 1}, w=np.arange(3.0), steps={1: (2,)})
        libdcp.save(self.dir, 1, {"part": saved, "inner": {"part": saved}})
        for parts in ({"part": Part(milestones=collections.Counter({9: 9}), new=5, w=np.zeros(3)),
                       "inner": {"part": Part(w=np.zeros(3), steps={})}},):
            libdcp.load(self.dir, parts)
            for part in (parts["part"], parts["inner"]["part"]):
                self.assert_same(part.state, saved.state)
                self.assertEqual(part.loads, 1)

    def test_objects_with_odd_keys_keep_their_tensors(self):
        """Keys that need tags change nothing about the tensors beside them, whose paths alone say where they are."""
        for odd in ({0: 1}, {"$x": 1}, {"float": "inf"}, {(1, 2): 1, "n": 2}, {"\ud800": 1}):
            for kind in (dict, collections.OrderedDict):
                with self.subTest(odd=odd, kind=kind.__name__):
                    saved = {"part": Part(), "optimizer": Part()}
                    saved["part"].state = kind({"w": np.ones(2), **odd})
                    moments = kind({"p": {"exp_avg": np.ones(2), **odd}, **odd})
                    saved["optimizer"].state = {"state": moments, "param_groups": []}
                    state = copy.deepcopy(saved)
                    array = state["part"].state["w"] = np.zeros(2)
                    state["optimizer"].state["state"]["p"]["exp_avg"] = np.zeros(2)
                    for part in (*saved.values(), *state.values()):
                        part.state_dict = functools.partial(copy.copy, part.state)
                    libdcp.save(self.dir, 1, saved, replace=True)
                    libdcp.load(self.dir, state)
                    for name, part in saved.items():
                        self.assert_same(state[name].state, part.state)
                    self.assertIs(state["part"].state["w"], array)

    def test_objects_get_tensors_that_they_lack(self):
        """For example an average that begins at the first step: the object gets what is stored, with and without
        `strict`, whatever it has before."""
        made = {"n": 3, "w": np.arange(3.0), "shadow": {"a": np.ones(2), "b": (np.zeros(1, np.int8), 5)}, "steps": [np.ones(1)],
                "default": collections.defaultdict(list, {1: [np.ones(4)]}), "kind": trees.Settings(1, np.ones(5))}
        libdcp.save(self.dir, 1, {"part": Part(**made), "inner": {"part": Part(**made)}, "model": {"v": np.ones(1)}})
        templates = [{}, {"n": 0}, {"w": None, "shadow": None, "steps": None}, {"shadow": {}, "steps": [], "w": np.zeros(3)},
                     {"w": np.zeros(1), "steps": [np.zeros(2), 1][:1], "shadow": {"a": np.zeros(7)}}]
        libdcp.register(trees.Settings)
        for i, template in enumerate(templates):
            for options in ({}, {"strict": False}, {"only": ["/part/*", "/inner/*"]}):
                with self.subTest(template=i, **options):
                    part, inner = Part(**copy.deepcopy(template)), Part(**copy.deepcopy(template))
                    loaded = libdcp.load(self.dir, {"part": part, "inner": {"part": inner}, "model": {"v": np.zeros(1)}}, **options)
                    self.assert_same([part.state, inner.state], [made, made])
                    self.assertEqual((loaded.missing, loaded.unexpected), ([], []))

    def test_objects_without_words_get_tensors_that_they_lack(self):
        """If an object has only tensors, the checkpoint's JSON does not describe it."""
        libdcp.save(self.dir, 1, {"ema": Part(a=np.ones(2), b=np.ones(1)), "model": {"v": np.ones(1)}})
        for template in ({}, {"a": np.zeros(2)}, {"b": np.zeros(3)}):
            part = Part(**template)
            array = template.get("a")
            with libdcp.Store(self.dir) as store:
                declared = store.declare({"ema": part, "model": {"v": np.zeros(1)}})
                for _ in range(2):
                    store.load(declared)
                    self.assert_same(part.state, {"a": np.ones(2), "b": np.ones(1)})
            self.assertTrue(array is None or part.state["a"] is array)
        part = Part()
        libdcp.load(self.dir, {"average": part, "model": {"v": np.zeros(1)}}, rename={"/average/*": "/ema/*"})
        self.assert_same(part.state, {"a": np.ones(2), "b": np.ones(1)})

    def test_tensors_at_the_top_beside_an_object_called_model(self):
        """They have the paths of a model's tensors; but if the object had none, they are not its own."""
        def load(state, **options):
            libdcp.load(self.dir, state, **options)
            return {key: value.state if isinstance(value, Part) else value for key, value in state.items()}
        for more in ({}, {0: 1}):
            libdcp.save(self.dir, 1, {"model": Part(n=1), "ema": np.ones(2), **more}, replace=True)
            for strict in (True, False):
                zeros = dict.fromkeys(more, 0)
                self.assert_same(load({"model": Part(n=0), "ema": np.zeros(2), **zeros}, strict=strict),
                                 {"model": {"n": 1}, "ema": np.ones(2), **more})
            self.assert_same(load({"model": Part(n=0), **zeros}, strict=False), {"model": {"n": 1}, **more})
            self.assert_same(load({"net": Part(n=0), **zeros}, strict=False, rename={"/net/*": "/model/*"}),
                             {"net": {"n": 1}, **more})
            with self.assertRaisesRegex(libdcp.Error, "tensor /model/ema is in the checkpoint, and nothing of"):
                load({"model": Part(n=0), **zeros})
        # Without an object called "model" in the step, they are a model's; but not those that the state has at the top.
        for more in ({}, {"model": "large"}):
            libdcp.save(self.dir, 1, {"ema": np.ones(2), "w": np.ones(1), **more}, replace=True)
            self.assert_same(load({"net": Part(), **dict.fromkeys(more, "")}, rename={"/net/*": "/model/*"}),
                             {"net": {"ema": made_anew(np.ones(2)), "w": made_anew(np.ones(1))}, **more})
        libdcp.save(self.dir, 1, {"ema": np.ones(2), "w": np.ones(1)}, replace=True)
        self.assert_same(load({"model": Part(), "ema": np.zeros(2)}),
                         {"model": {"w": made_anew(np.ones(1))}, "ema": np.ones(2)})

    def test_objects_whose_numbers_were_tensors(self):
        """What was stored counts, even if that was only tensors, or a single tensor outside a mapping."""
        libdcp.save(self.dir, 1, {"part": Part(a=np.ones(2)), "inner": {"part": Part(a=np.ones(2))}, "epoch": 1})
        for strict in (True, False):
            part, inner = Part(a=0, n=3), Part(a=0, n=3)
            libdcp.load(self.dir, {"part": part, "inner": {"part": inner}, "epoch": 0}, strict=strict)
            self.assert_same([part.state, inner.state], [{"a": made_anew(np.ones(2))}] * 2)

        class Bare(Part):
            def state_dict(self):
                return self.state
        one, other = Bare(), Bare()
        one.state, other.state = np.ones(2), np.zeros(2)
        libdcp.save(self.dir, 2, {"part": one, "inner": {"part": one}})
        second = copy.deepcopy(other)
        libdcp.load(self.dir, {"part": other, "inner": {"part": second}}, step=2)
        self.assert_same([other.state, second.state], [np.ones(2)] * 2)

    def test_tensors_of_an_object_that_are_not_selected(self):
        libdcp.save(self.dir, 1, {"part": Part(n=3, m={"a": np.ones(2), "k": 1}, l=[np.ones(1), 4]), "model": {"v": np.ones(1)}})
        part = Part(n=0)
        libdcp.load(self.dir, {"part": part, "model": {"v": np.zeros(1)}}, only="/part/[nm]*")
        self.assert_same(part.state, {"n": 3, "m": {"a": np.ones(2), "k": 1}})
        libdcp.load(self.dir, {"part": part, "model": {"v": np.zeros(1)}}, only="/part/m.k")
        self.assertEqual(part.state["m"]["k"], 1)
        with self.assertRaisesRegex(libdcp.Error, r"^state\['part'\]\['l'\]\[0\]: .* the tensor /part/l.0, which is not among"):
            libdcp.load(self.dir, {"part": part, "model": {"v": np.zeros(1)}}, only="/part/l")

    def test_a_large_mapping_within_a_list(self):
        """If all of its members were copied for each of them, this would run into the limit of the test."""
        n = 60_000
        libdcp.save(self.dir, 1, {"l": [{str(i): i for i in range(n)}], "w": np.ones(1)})
        state = {"l": [dict.fromkeys(map(str, range(n, -1, -1)))], "w": np.zeros(1)}
        libdcp.load(self.dir, state)
        self.assertEqual(list(state["l"][0].items()), [(str(i), i) for i in range(n - 1, -1, -1)])

    def test_lists_of_other_lengths(self):
        """They are restored as a whole, with new arrays if the state has none; a strict load refuses to lose
        values."""
        libdcp.save(self.dir, 1, {"m": {"l": [np.ones(1), 5, np.ones(2)], "t": (np.ones(3),)}})
        for strict in (True, False):
            first = np.zeros(1)
            state = {"m": {"l": [first], "t": None}}
            libdcp.load(self.dir, state, strict=strict)
            self.assert_same(state, {"m": {"l": [np.ones(1), 5, np.ones(2)], "t": (np.ones(3),)}})
            self.assertIs(state["m"]["l"][0], first)
        longer = {"m": {"l": [np.zeros(1), 0, np.zeros(2), np.zeros(3)], "t": (np.zeros(3),)}}
        self.assertIn("tensor /m/l.3 is not in the checkpoint", self.refused(longer))
        self.assertEqual(libdcp.load(self.dir, longer, strict=False).missing, ["/m/l.3"])
        self.assert_same(longer, {"m": {"l": [np.ones(1), 5, np.ones(2)], "t": (np.ones(3),)}})

    def test_a_tensor_that_the_words_name_and_that_is_not_there(self):
        libdcp.save(self.dir, 1, {"model": {"v": np.ones(1)}}, json={"state": {"m": {"l": [{"$tensor": "/m/l.0"}]}}, "tree": {"tags": 1}})
        self.assertIn("state['m']['l'][0]: ",
                      self.refused({"m": {"l": []}, "model": {"v": np.zeros(1)}}, "UNSUPPORTED"))
        with self.assertRaisesRegex(libdcp.Error, r"^state\['m'\]\['l'\]\[0\]: ") as caught:
            libdcp.read(self.dir)
        self.assertEqual(caught.exception.status, libdcp.Status.UNSUPPORTED)

    def test_sets_and_mappings_of_equal_hashes(self):
        """They would take quadratic time: very many are refused before any two are compared."""
        compared = 0

        class Counted(int):
            def __eq__(self, other):
                nonlocal compared
                compared += 1
                return int(self) == int(other)
            __hash__ = int.__hash__
        words = [{"$subclass": ["Counted", {"$int": hex(i * (2**61 - 1))}]} for i in range(3000)]
        for of in (lambda some: {"$set": some}, lambda some: {"$frozenset": some},
                   lambda some: {"$dict": [[key, 1] for key in some]}):
            decoder = _decoding.Decoder(True, {"Counted": Counted})
            compared = 0
            self.assertEqual(len(decoder.value(of(words[:256]))), 256)
            self.assertLessEqual(compared, 256 * 256)
            compared = 0
            with self.assertRaisesRegex(libdcp.Error, r"the content of .* is invalid \(3000 elements have the same hash"):
                decoder.value(of(words))
            self.assertEqual(compared, 0)
        powers = {sign * 2.0**i for i in range(-1074, 1024) for sign in (1, -1)}
        self.assertEqual(decoder.value({"$set": sorted(powers)}), powers)
        for made in (set, frozenset, dict.fromkeys):
            with self.assertRaisesRegex(TypeError, r"^state\['some'\]: 300 elements have the same hash"):
                libdcp.save(self.dir, 1, {"some": made(i * (2**61 - 1) for i in range(300)), "w": np.ones(1)})

    def test_strict_means_nested_members_too(self):
        libdcp.save(self.dir, 1, {"w": np.ones(2), "seen": {"wiki": 10, "code": 5, "deep": {"a": {"b": 1, "c": 2}}}})
        state = {"w": np.zeros(2), "seen": {"wiki": 0, "new": 7, "deep": {"a": {"b": 0, "d": 3}}}}
        said = self.refused(state)
        for what in ("state['seen']['new'] is not in the checkpoint", "state['seen']['deep']['a']['d'] is not in",
                     "state['seen']['code'] is in the checkpoint's JSON and not in the state",
                     "state['seen']['deep']['a']['c'] is in"):
            self.assertIn(what, said)
        self.assertIn("state['seen']['code'] is in the", self.refused({"w": np.zeros(2), "seen": {
            "wiki": 0, "deep": {"a": {"b": 0, "c": 0}}}}, "MISMATCH"))
        libdcp.load(self.dir, state, strict=False)
        self.assertEqual(state["seen"], {"wiki": 10, "new": 7, "deep": {"a": {"b": 1, "d": 3}}})
        state = {"w": np.zeros(2), "seen": {}}
        libdcp.load(self.dir, state)
        self.assertEqual(state["seen"], {"wiki": 10, "code": 5, "deep": {"a": {"b": 1, "c": 2}}})
        libdcp.load(self.dir, {"w": np.zeros(2)})  # values that the state does not name at all stay in the checkpoint

    def test_counters_and_default_dicts_are_values(self):
        """Their keys are not names that the state must have."""
        libdcp.save(self.dir, 1, {"a": {"c": collections.Counter("aab"), "d": collections.defaultdict(int, {"x": 1})}})
        state = {"a": {"c": collections.Counter("zz"), "d": collections.defaultdict(int, {"y": 1})}}
        libdcp.load(self.dir, state)
        self.assert_same(state, {"a": {"c": collections.Counter("aab"), "d": collections.defaultdict(int, {"x": 1})}})

    def test_numbers_missing_where_there_are_no_others(self):
        libdcp.save(self.dir, 1, {"w": np.ones(2)})
        self.assertIn("state['epoch'] is not in", self.refused({"w": np.zeros(2), "epoch": 0}))
        part = Part(a=1)
        with self.assertRaisesRegex(libdcp.Error, r"state\['part'\] is not in"):
            libdcp.load(self.dir, {"w": np.zeros(2), "part": part})
        self.assertEqual(part.loads, 0)

    def test_nothing_is_written_through(self):
        """A list or a mapping that occurs in two places gets two values."""
        libdcp.save(self.dir, 1, {"a": [1], "b": [2], "c": {"x": 1}, "d": {"x": 2}, "e": {"l": [3], "m": [4]},
                                  "f": [np.ones(1), [5]], "g": ([6], [7])})
        both, mapping, array = [0], {"x": 0}, np.zeros(1)
        state = {"a": both, "b": both, "c": mapping, "d": mapping, "e": {"l": both, "m": both}, "f": [array, both],
                 "g": (both, both)}
        libdcp.load(self.dir, state)
        self.assertEqual((both, array.tolist()), ([0], [1]))
        self.assertIs(state["f"][0], array)
        self.assertEqual(state, {"a": [1], "b": [2], "c": {"x": 1}, "d": {"x": 2}, "e": {"l": [3], "m": [4]},
                                 "f": [np.ones(1), [5]], "g": ([6], [7])})

    def test_tensors_within_containers(self):
        def made(value):
            one = np.full(2, float(value))
            return {"m": {"l": [one, value, {"a": one + 1, "b": value}], "t": (one + 2, value), "p": trees.Point(one + 3, value),
                          "q": collections.deque([one + 4, value]), "c": trees.Settings(value, one + 5),
                          "i": {1: one + 6, 2: value}, "o": collections.OrderedDict(z=one + 7, a=value),
                          "d": collections.defaultdict(list, {1: [one + 8, value]})}}
        libdcp.save(self.dir, 1, made(1))
        state = made(0)
        arrays = [state["m"]["l"][0], state["m"]["t"][0], state["m"]["p"].x, state["m"]["c"].inner, state["m"]["o"]["z"]]
        libdcp.load(self.dir, state)
        self.assert_same(state, made(1))
        for old, new in zip(arrays, [state["m"]["l"][0], state["m"]["t"][0], state["m"]["p"].x, state["m"]["c"].inner,
                                     state["m"]["o"]["z"]]):
            self.assertIs(old, new)

    def test_a_mapping_that_can_not_change(self):
        class Fixed(collections.abc.Mapping):
            def __init__(self, inner):
                self.inner = inner

            def __getitem__(self, key):
                return self.inner[key]

            def __iter__(self):
                return iter(self.inner)

            def __len__(self):
                return len(self.inner)
        libdcp.save(self.dir, 1, {"w": np.ones(1), "a": {"b": 1}})
        with self.assertRaisesRegex(TypeError, "a Fixed, which can't be changed"):
            libdcp.load(self.dir, Fixed({"w": np.zeros(1), "a": 0}))
        state = {"w": np.zeros(1), "a": Fixed({"b": 0})}
        libdcp.load(self.dir, state)
        self.assertEqual(state["a"], {"b": 1})

    # Parts of a checkpoint.

    def test_only_means_numbers_too(self):
        libdcp.save(self.dir, 1, {"model": {"w": np.ones(1)}, "part": Part(a=1, b=2), "epoch": 3, "o": {"lr": 0.5, "l": {"x": 1}}})

        def state():
            return {"model": {"w": np.zeros(1)}, "part": Part(a=0, b=0), "epoch": 0, "o": {"lr": 0, "l": {"x": 0}}, "no": 1}
        for only, epoch, inner, part, loads in [
                ("/model/*", 0, {"lr": 0, "l": {"x": 0}}, {"a": 0, "b": 0}, 0),
                ("/epoch", 3, {"lr": 0, "l": {"x": 0}}, {"a": 0, "b": 0}, 0),
                ("/part/*", 0, {"lr": 0, "l": {"x": 0}}, {"a": 1, "b": 2}, 1),
                ("/part/b", 0, {"lr": 0, "l": {"x": 0}}, {"a": 0, "b": 2}, 1),
                (["/o/l.*", "/epoch"], 3, {"lr": 0, "l": {"x": 1}}, {"a": 0, "b": 0}, 0)]:
            with self.subTest(only):
                loaded = state()
                libdcp.load(self.dir, loaded, only=only)
                self.assertEqual((loaded["epoch"], loaded["o"], loaded["part"].state, loaded["part"].loads),
                                 (epoch, inner, part, loads))
                self.assertEqual(loaded["model"]["w"].tolist(), [only == "/model/*"])
        with self.assertRaisesRegex(libdcp.Error, r"state\['no'\] is not in"):
            libdcp.load(self.dir, state(), only=["/no"])

    def test_only_by_the_name_of_what_is_a_tensor(self):
        """A value of a single rank is a tensor, with a tensor's path; its key at the top level is not a path."""
        libdcp.save(self.dir, 1, {"model": {"w": np.ones(2)}, "own": libdcp.PerRank(np.ones(2)), "epoch": 3})
        for only in ["/own"], ["/own*"]:
            with self.assertRaisesRegex(libdcp.Error, "no tensor of the state matches the glob /own"):
                libdcp.load(self.dir, {"own": libdcp.PerRank(np.zeros(2)), "epoch": 0}, only=only)
        own = libdcp.PerRank(np.zeros(2))
        libdcp.load(self.dir, {"own": own}, only="/model/own")
        self.assertEqual(own.value.tolist(), [1, 1])

    def test_globs_mean_what_they_mean_to_the_library(self):
        """Also where Python's fnmatch differs: [^x] negates, a backslash quotes, and there are classes."""
        names = ["py", "xs", "a*b", "acb", "^", "[", "7"]
        libdcp.save(self.dir, 1, {"rng": {name: libdcp.PerRank(np.ones(4)) for name in names},
                                  "part": Part(**{name: np.ones(4) for name in names}), "n": dict.fromkeys(names, 1)})
        others = [name for name in names if name != "xs"]
        for glob, chosen in [("[^x]*", others), ("[!x]*", others),
                             (r"a\*b", ["a*b"]), (r"\[", ["["]), ("[[]", ["["]), ("[[:digit:]]", ["7"]),
                             ("[x^]*", ["xs", "^"])]:
            with self.subTest(glob):
                rng, part = {name: libdcp.PerRank(None) for name in names}, Part(py=np.zeros(4))
                numbers = dict.fromkeys(names, 0)
                libdcp.load(self.dir, {"rng": rng, "part": part, "n": numbers},
                            only=[f"/rng/{glob}", f"/part/{glob}", f"/n/{glob}"])
                self.assertEqual([name for name in names if rng[name].loaded], chosen)
                for name in chosen:
                    self.assertEqual((rng[name].value.tolist(), part.state[name].tolist()), ([1] * 4, [1] * 4))
                self.assertEqual([name for name in names if numbers[name]], chosen)
                read = libdcp.read(self.dir, only=[f"/n/{glob}", f"/part/{glob}"], as_torch=False)
                self.assertEqual((sorted(read["n"]), sorted(read["part"])), (sorted(chosen), sorted(chosen)))

    def test_own_arrays_that_are_not_selected(self):
        """A glob that matches only the name of a rank's value does not select the arrays in the value."""
        libdcp.save(self.dir, 1, {"model": {"w": np.ones(2)}, "own": libdcp.PerRank({"a": np.ones(3), "k": 5})})
        for old in (None, {"a": np.zeros(3), "k": 0}):
            own = libdcp.PerRank(old)
            with self.subTest(old=old):
                with self.assertRaisesRegex(libdcp.Error, r"^state\['own'\]\['a'\]: .* /own/0.a, which is not") as caught:
                    libdcp.load(self.dir, {"model": {"w": np.zeros(2)}, "own": own}, only=["/model/*", "/own"])
                self.assertEqual((caught.exception.status, own.loaded), (libdcp.Status.MISMATCH, False))
                self.assertIs(own.value, old)
                libdcp.load(self.dir, {"own": own}, only="/own*")
                self.assertEqual((own.value["a"].tolist(), own.value["k"], own.loaded), ([1, 1, 1], 5, True))

    def test_own_values_of_keys_of_equal_texts(self):
        """Both values are at /a/b.c, so each one is found by its keys."""
        for first, second in ((1, 2), (np.arange(2), 2), ({"a": 1}, {"b": np.ones(2)})):
            def state(one, two):
                return {"w": np.ones(1), "a": {"b.c": libdcp.PerRank(one), "b": {"c": libdcp.PerRank(two)}}}
            with self.subTest(first=first):
                libdcp.save(self.dir, 1, state(first, second), replace=True)
                loaded = state(None, None)
                libdcp.load(self.dir, loaded)
                self.assert_same([loaded["a"]["b.c"].value, loaded["a"]["b"]["c"].value], [first, second])

    def test_rename_means_numbers_too(self):
        libdcp.save(self.dir, 1, {"net": {"w": np.ones(1), "n": {"x": 1}}, "sched": {"last": 7, "c": collections.Counter([2])},
                                  "step": 3})
        part = Part(last=0)
        state = {"model": {"w": np.zeros(1), "n": {"x": 0}}, "lr": part, "epoch": 0}
        libdcp.load(self.dir, state, rename={"/model/*": "/net/*", "/lr/*": "/sched/*", "/epoch": "/step"})
        self.assertEqual((state["model"], state["epoch"]), ({"w": np.ones(1), "n": {"x": 1}}, 3))
        self.assertEqual(part.state, {"last": 7, "c": collections.Counter([2])})
        state = {"net": {"w": np.zeros(1), "m": {"x": 0}}, "sched": {}, "step": 0}
        libdcp.load(self.dir, state, rename={"/net/m.x": "/net/n.x"})
        self.assertEqual((state["net"]["m"], state["sched"]["last"]), ({"x": 1}, 7))

    def test_rename_tells_keys_of_equal_texts_apart(self):
        def blank(value):
            return {key: blank(inner) for key, inner in value.items()} if isinstance(value, dict) else 0
        rename = {"/r/*": "/q/*"}
        for saved in ({"a.b": 10, "a": {"b": 20}}, {"a": {"b": 20}, "a.b": 10}, {"1": 10, 1: 20},
                      {1: 20, "1": {"x": 3}}, {"None": 10, None: 20, "True": 3, True: 5},
                      {"n": {"1": 1, 1: {"2": 3, 2: 4}}}):
            libdcp.save(self.dir, 1, {"q": saved}, replace=True)
            state = {"r": blank(saved)}
            libdcp.load(self.dir, state, rename=rename)
            self.assert_same(state, {"r": saved})
            for key in saved:
                state = {"r": {key: blank(saved[key])}}
                libdcp.load(self.dir, state, rename=rename, strict=False)
                self.assert_same(state, {"r": {key: saved[key]}})
        libdcp.save(self.dir, 1, {"q": {"a.b": 10, "a": {"b": 20}}}, replace=True)
        self.assertIn("state['q']['a']['b'] and state['q']['a.b'] would both be /q/a.b",
                      self.refused({"r": {"x": 0}}, "MISMATCH", rename={"/r/x": "/q/a.b"}))
        libdcp.save(self.dir, 1, {"q": {1: 20}}, replace=True)
        self.assertIn("state['r']['1'] and state['r'][1] would both be /q/1",
                      self.refused({"r": {"1": 0, 1: 0}}, "MISMATCH", rename=rename))
        state = {"r": {"1": 0}, "s": {"1": 0}}
        libdcp.load(self.dir, state, rename={**rename, "/s/*": "/q/*"})
        self.assertEqual(state, {"r": {"1": 20}, "s": {"1": 20}})

    # Loaders.

    def test_loaders_keep_types_and_arrays(self):
        generator = np.random.Generator(np.random.MT19937(3))
        generator.random(5)
        saved = {"at": (1, 2), 3: {"x": {4}}, "rng": generator.bit_generator.state, "seen": collections.Counter("aab")}
        libdcp.save(self.dir, 1, {"data": {"loader": libdcp.Loader(Part(**{"state": saved}))}})
        part = Part()
        libdcp.load(self.dir, {"data": {"loader": libdcp.Loader(part)}})
        self.assert_same(part.state, {"state": saved})
        with self.assertRaisesRegex(TypeError, r"^state\['data'\]\['loader'\]: the loader's state\['a'\]\[0\]: a object"):
            libdcp.save(self.dir, 2, {"data": {"loader": libdcp.Loader(Part(a=[object()]))}})

    # Without a state.

    def test_read(self):
        def made():
            return {"words": trees.words(), "top": np.arange(3.0), "model": {"a.b": np.ones(2), "n": {"x": np.zeros(1), "y": 5}},
                    "l": [np.ones(1), {"a": np.zeros(2), "b": 1}], "i": {1: np.ones(1), "k": 2}, "d": trees.Settings(1, np.ones(1)),
                    "t": (np.ones(1), 1), "c": collections.defaultdict(list, {(1, 2): [np.ones(3)]}),
                    "optimizer": {"state": {"a.b": {"exp_avg": np.ones(2), "step": 3}}, "param_groups": [{"betas": (0.5, 0.9)}]},
                    "a/b": {"c": np.ones(1)}, "optim": {"state": {0: {"exp_avg": np.ones(2)}}, "param_groups": []}}
        libdcp.save(self.dir, 1, made())
        for cls in trees.CLASSES:
            libdcp.register(cls)
        self.assert_same(libdcp.read(self.dir, as_torch=False), made())
        _words.registered.clear()
        found = libdcp.read(self.dir, as_torch=False)
        self.assert_same(found["d"], {"rate": 1, "inner": np.ones(1)})
        self.assert_same([found["words"][key] for key in ("point", "mode", "level", "parts", "attributes", "items")],
                         [(1, [2]), "safe", 2, 3, {"a": 1, "b": {}}, [1, 2]])
        for only, keys in (("/model/*", {"top", "model"}), (["/t", "/i/k"], {"t", "i"}), ("/l/0", {"l"}), ([], set()),
                           ("/words/counter", {"words"})):
            self.assertEqual(set(libdcp.read(self.dir, only=only, as_torch=False)), keys, only)
        for only in ("/none", ["/model/*", "/none"]):
            with self.assertRaisesRegex(libdcp.Error, "matches the glob /none$") as caught:
                libdcp.read(self.dir, only=only)
            self.assertEqual(caught.exception.status, libdcp.Status.NOT_FOUND)
        found = libdcp.read(self.dir, only=["/i/k", "/words/counter", "/model/n.y"], as_torch=False)
        self.assert_same(found, {"i": {"k": 2}, "words": {"counter": trees.words()["counter"]}, "model": {"n": {"y": 5}}})

    def test_read_a_flat_state(self):
        libdcp.save(self.dir, 1, {"a": np.ones(1), "b.c": np.zeros(1), "epoch": 3})
        self.assert_same(libdcp.read(self.dir, as_torch=False), {"a": np.ones(1), "b.c": np.zeros(1), "epoch": 3})
        self.assertEqual(self.stored()["tree"], {"top": True, "tags": 1})
        libdcp.save(self.dir, 2, {"a": np.ones(1)})
        self.assertEqual(self.stored(2)["tree"], {"top": True})
        with self.assertRaises(libdcp.Error):
            libdcp.read(self.dir / "none")

    def test_read_a_part(self):
        """A value that is not a mapping is read as a whole, and nothing replaces a tensor that was not read."""
        libdcp.save(self.dir, 1, {"m": {"l": [np.ones(1), 5, np.ones(2)], "w": np.ones(3), "t": (np.ones(1), {"a": np.zeros(2)})},
                                  "z": [np.ones(2)]})
        for only, wanted in (("/m/l", {"m": {"l": [np.ones(1), 5, np.ones(2)]}}), ("/m/l.2", {"m": {"l": [np.ones(1), 5, np.ones(2)]}}),
                             ("/m/t.1*", {"m": {"t": (np.ones(1), {"a": np.zeros(2)})}}), ("/m/w", {"m": {"w": np.ones(3)}}),
                             (["/z", "/m/w"], {"z": [np.ones(2)], "m": {"w": np.ones(3)}})):
            with self.subTest(only):
                self.assert_same(libdcp.read(self.dir, only=only, as_torch=False), wanted)

    # Declared states.

    def test_tensors_of_objects_are_asked_for_anew(self):
        part, array = Part(w=np.zeros(2), n=0), np.zeros(1)
        with libdcp.Store(self.dir) as store:
            declared = store.declare({"part": part, "a": array})
            for step in range(1, 6):
                array[:] = step
                part.state = {"w": np.full(step, float(step)), "n": step, **({"v": np.ones(1)} if step > 3 else {})}
                (store.save_async(step, declared).wait if step % 2 else lambda: store.save(step, declared))()
        for step in range(1, 6):
            with libdcp.Checkpoint(self.dir / f"step-{step:08}") as checkpoint:
                self.assertEqual(checkpoint["/part/w"].tolist(), [step] * step)
                self.assertEqual(checkpoint["/model/a"].tolist(), [step])
                self.assertEqual(checkpoint.json["state"]["part"], {"n": step})
                self.assertEqual("/part/v" in checkpoint, step > 3)

    def test_a_declared_state_that_stays_is_laid_out_once(self):
        part = Part(w=np.zeros(2))
        with libdcp.Store(self.dir) as store:
            declared = store.declare({"part": part, "model": {"v": np.ones(1)}})
            before = declared.layout
            for step in (1, 2):
                part.state["w"][:] = step
                store.save(step, declared)
            self.assertIs(declared.layout, before)
            part.state["w"] = np.full(2, 3.0)
            store.save(3, declared)
            self.assertIsNot(declared.layout, before)
            part.state["w"][:] = 0
            store.load(declared, step=2)
            self.assertEqual(part.state["w"].tolist(), [2, 2])

    def test_an_array_put_in_the_place_of_a_declared_one(self):
        state = {"model": {"a": np.ones(2), "b": np.ones(2)}}
        with libdcp.Store(self.dir) as store:
            declared = store.declare(state)
            store.save(1, declared)
            state["model"]["a"] = np.zeros(2)
            with self.assertRaisesRegex(ValueError, r"^state\['model'\]\['a'\] is another tensor"):
                store.save(2, declared)

    def test_declared_arrays_under_other_names(self):
        for at_top in (False, True):
            section = {"a": np.ones(2), "b": np.zeros(3)}
            with self.subTest(at_top=at_top), libdcp.Store(self.dir, replace=True) as store:
                declared = store.declare(section if at_top else {"model": section})
                store.save(1, declared)
                a, b = section.values()
                section.clear()
                section.update({"new": a, "b": b})
                with self.assertRaisesRegex(ValueError, "'new'. is another tensor"):
                    store.save(2, declared)
                section.clear()
                section.update(a=a, b=b)
                store.save(2, declared)
                with libdcp.Checkpoint(self.dir) as checkpoint:
                    self.assertEqual(sorted(checkpoint), ["/model/a", "/model/b"])

    def test_states_left_at_the_end_of_a_program(self):
        program = ("import sys, numpy, libdcp; state = libdcp.State({'a': numpy.ones(3)}); sys.state = state;"
                   "libdcp.save(sys.argv[1], 1, {'a': numpy.ones(3)}); import builtins; builtins.kept = [state]")
        done = subprocess.run([sys.executable, "-c", program, self.dir], check=True, capture_output=True, text=True)
        self.assertEqual(done.stderr, "")

    # Files of older versions.

    def test_older_files(self):
        """They have texts for keys, lists for tuples, null for tensors in lists, and nothing for tensors alone."""
        older = {"m": {"t": [1, [2, 3]], "c": {"2": 1, "4": 2}, "i": {"1": "a"}, "l": [None, 5, {"b": 6}],
                       "f": {"float": "inf"}}, "part": {"c": {"2": 1, "7": 1}, "n": 1, "i": {"5": 1, "6": 2}},
                 "$tuple": {"$tuple": [1]}}
        tensors = {"m": {"l.0": np.ones(1), "l.2.a": np.ones(1), "o.0": np.ones(1)}, "w": np.ones(1)}
        libdcp.save(self.dir, 1, {"model": {"w": tensors["w"]}, "m": tensors["m"]}, json={"state": older})
        first, second, third = np.zeros(1), np.zeros(1), np.zeros(1)
        state = {"w": np.zeros(1), "part": Part(c=collections.Counter({3: 1}), n=0, i={1: 0}), "$tuple": {"$tuple": 0}, "m": {
            "t": (0, (0, 0)), "c": collections.Counter({9: 1}), "i": {1: ""}, "f": 0.0, "l": [first, 0, {"a": second, "b": 0}],
            "o": [third]}}
        libdcp.load(self.dir, state)
        self.assertIs(state["m"]["l"][0], first)
        self.assertIs(state["m"]["l"][2]["a"], second)
        self.assertEqual([first, second, third, state["m"].pop("l")[1:], state["m"].pop("o")],
                         [1, 1, 1, [5, {"a": 1, "b": 6}], [1]])
        self.assert_same(state["m"], {"t": (1, (2, 3)), "c": collections.Counter({2: 1, 4: 2}), "i": {1: "a"}, "f": float("inf")})
        self.assert_same(state["part"].state, {"c": collections.Counter({2: 1, 7: 1}), "n": 1, "i": {5: 1, 6: 2}})
        self.assertEqual(state["$tuple"], {"$tuple": [1]})

    def test_tensors_in_lists_of_older_files(self):
        libdcp.save(self.dir, 1, {"m": {"l.0": np.ones(1)}, "ema": {"shadow.a": np.ones(2)}}, json={"state": {
            "m": {"l": [None, 5, None]}, "ema": {"n": 1}}})
        for template in (None, [], [np.zeros(1), 0, 0]):
            part = Part(shadow={}, n=0)
            state = {"m": {"l": template}, "ema": part}
            libdcp.load(self.dir, state)
            like = np.asarray if template else made_anew
            self.assert_same(state["m"], {"l": [like(np.ones(1)), 5, None]})
            self.assert_same(part.state, {"shadow": {"a": like(np.ones(2))}, "n": 1})
        self.assert_same(libdcp.read(self.dir, as_torch=False)["m"], {"l": [np.ones(1), 5, None]})


if __name__ == "__main__":
    unittest.main()
