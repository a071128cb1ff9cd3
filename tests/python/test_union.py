"""Ranks that name different tensors, or have different other values: the state is the union."""

import collections
import filecmp
import importlib.util
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import torch

import libdcp
import union_ranks
from rank_pool import Pool
from union_ranks import numbers

HERE = pathlib.Path(__file__).parent


def setUpModule():
    global pool
    pool = Pool(4)


def tearDownModule():
    pool.close()


class Case(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-union-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def save(self, states, name="run", step=1, **options):
        """Saves each rank's state. Returns rank 0's log."""
        found = pool.results(union_ranks.save, [(f"{self.dir}/{name}", step, state) for state in states]
                             ) if not options else pool.results(
            _with_options, [(union_ranks.save.__name__, options, f"{self.dir}/{name}", step, state) for state in states])
        self.assertEqual([lines for lines in found[1:] if lines], [])
        return found[0]

    def load(self, states, name="run", **options):
        return pool.results(_with_options, [("load", options, f"{self.dir}/{name}", state) for state in states])

    def refused(self, what, states, name="run", **options):
        """Returns the exceptions of all ranks."""
        arguments = (f"{self.dir}/{name}",) if what == "load" else (f"{self.dir}/{name}", 1)
        found = pool.call(_with_options, [(what, options, *arguments, state) for state in states])
        for answer in found:
            self.assertIsInstance(answer, libdcp.Error)
            self.assertEqual(str(answer), str(found[0]))
        return found[0]

    def same_file(self, one, other):
        self.assertTrue(filecmp.cmp(f"{self.dir}/{one}/step-00000001/state.h5", f"{self.dir}/{other}/step-00000001/state.h5",
                                    shallow=False), f"{one} and {other} differ")

    def json(self, name="run"):
        with libdcp.Checkpoint(f"{self.dir}/{name}") as checkpoint:
            return checkpoint.json.get("state")


def _with_options(group, what, options, *arguments):
    return getattr(union_ranks, what)(group, *arguments, **options)


def equal(one, other):
    """Returns true if two states are equal; tensors are compared by elements and types."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(equal, one, other))
    return type(one) is type(other) and one == other


def blank(state):
    if isinstance(state, dict):
        return {key: blank(value) for key, value in state.items()}
    if isinstance(state, list):
        return list(map(blank, state))
    return torch.zeros_like(state) if isinstance(state, torch.Tensor) else type(state)()


class TestTensors(Case):
    def stages(self, ranks, layers=6):
        """Returns a model in pipeline stages, with an optimizer as torch's get_optimizer_state_dict gives one."""
        def stage(rank, of):
            mine = range(layers * rank // of, layers * (rank + 1) // of)
            names = [f"layers.{i}.w" for i in mine]
            return {"model": {name: numbers(3, 2, seed=i) for i, name in zip(mine, names)},
                    "optimizer": {"state": {name: {"exp_avg": numbers(3, 2, seed=50 + i), "step": torch.tensor(5.)}
                                            for i, name in zip(mine, names)},
                                  "param_groups": [{"params": names, "lr": 0.5, "betas": [0.5, 0.75]}]},
                    "epoch": 3}
        return [stage(rank, ranks) for rank in range(ranks)]

    def test_pipeline_stages_on_any_number_of_ranks(self):
        for ranks in (1, 2, 3, 4):
            self.save(self.stages(ranks), name=str(ranks))
            self.same_file("1", str(ranks))
        for ranks in (1, 2, 3):
            found = self.load(list(map(blank, self.stages(ranks))), name="4")
            for state, wanted in zip(found, self.stages(ranks)):
                self.assertTrue(equal(state["model"], wanted["model"]))
                self.assertTrue(equal(state["optimizer"]["state"], wanted["optimizer"]["state"]))
                group, = state["optimizer"]["param_groups"]
                self.assertEqual(group["lr"], 0.5)
                self.assertLessEqual(set(wanted["optimizer"]["param_groups"][0]["params"]), set(group["params"]))
                self.assertEqual(state["epoch"], 3)

    def test_empty_mappings_get_what_no_other_rank_names(self):
        states = [{"optimizer": {"a": None, "b": {"c": 1}, "all": 5}}, {"optimizer": {}}, {"optimizer": {"b": {"d": 2}}}]
        self.save(states)
        templates = [{"optimizer": {"a": 0, "b": {"c": 0}}}, {"optimizer": {}}, {"optimizer": {"b": {}}}]
        self.assertEqual(self.load(templates), [{"optimizer": {"a": None, "b": {"c": 1}}}, {"optimizer": {"all": 5}},
                                                {"optimizer": {"b": {"d": 2}}}])
        whole = {"optimizer": {"a": None, "b": {"c": 1, "d": 2}, "all": 5}}
        self.assertEqual(self.load([{"optimizer": {}}] * 3), [whole] * 3)

    def test_empty_mappings_of_any_kind_get_nothing_that_others_name(self):
        ordered = collections.OrderedDict
        for kind in (dict, ordered, union_ranks.Mirror, union_ranks.Table):
            def named(n, kind=kind):
                return {"a": {"sched": kind(last=n, w=torch.full((2,), n), deep=kind(more=n, other=ordered(n=n)))}}
            with self.subTest(kind=kind.__name__):
                self.save([{"q": {}}, {"q": {**named(1), "own": 5}}], replace=True)
                for empty in ({}, ordered()):
                    found = self.load([{"q": empty}, {"q": named(0)}])
                    self.assertEqual(found[0], {"q": {"own": 5}})
                    sched = found[1]["q"]["a"]["sched"]
                    self.assertEqual((sched["last"], sched["w"].tolist()), (1, [1, 1]))
                    self.assertEqual(sched["deep"]["other"], {"n": 1})
                part = {"a": {"sched": kind(last=0, deep=kind(more=0))}}
                sched = self.load([{"q": {}}, {"q": part}])[0]["q"]["a"]["sched"]
                self.assertIs(type(sched), kind)
                self.assertEqual((set(sched), dict(sched["deep"])), ({"w", "deep"}, {"other": {"n": 1}}))
                self.assertFalse(hasattr(sched, "last"))

    def test_objects_of_stages_get_their_own(self):
        """They get nothing that other ranks' objects name, and all of what no rank's object names yet."""
        def stage(rank):
            return {"model": {f"l{rank}.w": numbers(2, seed=rank), "deep": {f"l{rank}": numbers(3, seed=rank)}, "kind": 1},
                    "ema": {f"l{rank}": numbers(4, seed=rank), "n": 3}}
        pool.results(union_ranks.save_parts, [(f"{self.dir}/run", stage(rank)) for rank in range(3)])
        templates = [{name: blank(inner) for name, inner in stage(rank).items()} for rank in range(3)]
        for ranks in (3, 2):
            found = pool.results(union_ranks.load_parts, [(f"{self.dir}/run", state, {"strict": ranks == 3})
                                                          for state in templates[:ranks]])
            alone = stage(2) if ranks == 2 else {"model": {"deep": {}}, "ema": {}}
            for rank, state in enumerate(found):  # values of rank 2 that nobody names are loaded as well
                wanted = stage(rank)
                wanted["model"] = {**alone["model"], **wanted["model"], "deep": {**alone["model"]["deep"], **wanted["model"]["deep"]}}
                wanted["ema"] = {**alone["ema"], **wanted["ema"]}
                self.assertTrue(equal(state, wanted), state)
        everything = {f"l{rank}": numbers(4, seed=rank) for rank in range(3)}
        for averages in ([{}, {}, {}], [{}, {"n": 0}, {}]):
            states = [{"model": template["model"], "ema": average} for template, average in zip(templates, averages)]
            for state in pool.results(union_ranks.load_parts, [(f"{self.dir}/run", state, {}) for state in states]):
                self.assertTrue(equal(state["ema"], {**everything, "n": 3}), state["ema"])

    def test_new_items_of_lists_are_whole(self):
        history = [{"w": numbers(3), "deep": {"m": numbers(2)}, "n": 1}, {"w": numbers(4), "n": 2}]
        whole = {"run": {"history": history, "last": history[0]}}
        self.save([whole] * 3)
        states = [blank(whole), {"run": {"history": [], "last": None}}, {"run": {"history": None, "last": None}}]
        for state in self.load(states):
            self.assertTrue(equal(state, whole), state)
        pool.results(union_ranks.save_parts, [(f"{self.dir}/parts", {"run": {"history": history}})] * 3)
        states = [{"run": {"history": inner}} for inner in (blank(history[:1]), [], None)]
        for state in pool.results(union_ranks.load_parts, [(f"{self.dir}/parts", state, {}) for state in states]):
            self.assertTrue(equal(state["run"]["history"], history), state)

    def test_objects_get_whole_tensors_of_what_was_in_shards(self):
        pool.results(union_ranks.save_rows, [(f"{self.dir}/run", 7)] * 3)
        whole = torch.arange(7, dtype=torch.float32)
        for ranks in (1, 2, 4):
            for state in pool.results(union_ranks.load_parts, [(f"{self.dir}/run", {"part": {"n": 0}}, {})] * ranks):
                self.assertTrue(equal(state["part"], {"n": 1, "deep": {"moment": whole}, "top": whole}), state)

    def test_a_full_state_dict_on_one_rank(self):
        full = {"model": {"w": numbers(5, 3), "b": numbers(3, seed=1)}, "optimizer": {
            "state": {"w": {"exp_avg": numbers(5, 3, seed=2)}}, "param_groups": [{"params": ["w"], "lr": 0.1}]}, "epoch": 4}
        self.save([full], name="alone")
        for others in ({}, {"model": {}}, {"model": {}, "optimizer": {}},
                       {"model": {}, "optimizer": {"state": {}, "param_groups": []}, "epoch": 4}):
            for rank in range(3):
                states = [dict(others), dict(others), dict(others)]
                states[rank] = full
                lines = self.save(states, replace=True)
                self.assertEqual(lines, [], others)
                self.same_file("alone", "run")
        found = self.load([{}, blank(full), {"model": {}}])
        self.assertTrue(equal(found[1]["model"], full["model"]))
        self.assertEqual((found[1]["epoch"], found[0], found[2]), (4, {}, {"model": {}}))

    def test_experts_and_generators_by_name(self):
        def state(rank):
            return {"model": {"router": numbers(2, 2), **{f"experts.{e}.w": numbers(4, seed=e) for e in (rank, rank + 3)}},
                    f"rng_{rank}": numbers(3, seed=100 + rank), "rng": {f"rank{rank}": [rank, rank + 0.5]}}
        self.save([state(rank) for rank in range(3)])
        found = self.load([blank(state(rank)) for rank in range(3)])
        for rank, loaded in enumerate(found):
            self.assertTrue(equal(loaded, state(rank)), loaded)
        self.assertEqual(self.json()["rng"], {f"rank{rank}": [rank, rank + 0.5] for rank in range(3)})
        wanted = [state(rank)["model"] for rank in range(3)]
        found = self.load([{"model": blank({**wanted[0], **wanted[1]})}, {"model": blank(wanted[2])}], only=["/model/experts*"])
        self.assertTrue(equal({**found[0]["model"], "router": 0}, {**wanted[0], **wanted[1], "router": 0}))

    def test_strict_is_judged_on_the_union(self):
        whole = {f"a{i}": numbers(2, seed=i) for i in range(4)}
        self.save([{"model": whole}])
        part = {name: torch.zeros(2) for name in ("a0", "a1")}
        for states in ([part, {"a2": torch.zeros(2)}], [{}, {**part, "a2": torch.zeros(2)}]):
            error = self.refused("load", [{"model": state} for state in states])
            self.assertIn("/model/a3", str(error))
            found = self.load([{"model": dict(state)} for state in states], strict=False)
            self.assertTrue(equal({**found[0]["model"], **found[1]["model"]}, {n: whole[n] for n in ("a0", "a1", "a2")}))
        error = self.refused("load", [{"model": dict(whole)}, {"model": {"b": torch.zeros(2)}}])
        self.assertEqual(error.status, libdcp.Status.NOT_FOUND)
        self.assertIn("/model/b", str(error))

    def test_globs_for_what_some_ranks_have(self):
        self.save([{"model": {"w": torch.ones(2)}, "epoch": 3, "x": {"t": torch.ones(2), "n": 1}}])

        def blanks():
            return [{"model": {"w": torch.zeros(2)}, "epoch": 0, "x": {"n": 0}},
                    {"model": {"w": torch.zeros(2)}, "x": {"t": torch.zeros(2)}}]
        for only, w, epoch, n, t in [(["/model/*", "/epoch"], 1, 3, 0, 0), ("/epoch", 0, 3, 0, 0),
                                     (["/x/*", "/epoch"], 0, 3, 1, 1), ("/x/*", 0, 0, 1, 1), ("/x/n", 0, 0, 1, 0),
                                     (["/x/n", "/x/t"], 0, 0, 1, 1)]:
            for turn in (1, -1):
                with self.subTest(only, turn=turn):
                    first, second = self.load(blanks()[::turn], only=only)[::turn]
                    self.assertEqual((first["model"]["w"].tolist(), second["model"]["w"].tolist()), ([w, w], [w, w]))
                    self.assertEqual((first["epoch"], first["x"]["n"], second["x"]["t"].tolist()), (epoch, n, [t, t]))
        error = self.refused("load", blanks(), only=["/epoch", "/model/no"])
        self.assertIn("no tensor of the state matches the glob /model/no", str(error))

    def test_another_type_or_shape_on_some_ranks(self):
        for other, said in ((torch.zeros(3), "F32 (2,) on rank 0, F32 (3,) on ranks 1-2"),
                            (torch.zeros(2).double(), "F32 (2,) on rank 0, F64 (2,) on ranks 1-2")):
            error = self.refused("save", [{"a": torch.zeros(2), "b": torch.ones(1)}, {"a": other}, {"a": other}])
            self.assertEqual((error.status, error.tensor, error.ranks), (libdcp.Status.MISMATCH, "/model/a", (1, 2)))
            self.assertIn(f"/model/a is {said}", str(error))
        error = self.refused("save", [{"b": torch.ones(1)}, {"a": torch.zeros(2)}, {"a": torch.zeros(3)}])
        self.assertIn("F32 (2,) on rank 1, F32 (3,) on rank 2", str(error))

    def test_proofs(self):
        states = self.stages(3)
        proofs = pool.results(union_ranks.prove, [(state,) for state in states])
        self.assertEqual(proofs, pool.results(union_ranks.prove, [(self.stages(1)[0],)]) * 3)

    def test_declared_states_agree_once(self):
        for asynchronous in (False, True):
            folder = f"{self.dir}/{asynchronous}"
            states = [{"model": {f"a{rank}": torch.zeros(4)}, "epoch": 1} for rank in range(2)]
            found = pool.results(union_ranks.save_declared, [(folder, state, 4, asynchronous) for state in states])
            self.assertEqual(found, [1, 1])
            with libdcp.Checkpoint(folder) as checkpoint:
                self.assertEqual(list(checkpoint), ["/model/a0", "/model/a1"])
                self.assertTrue((checkpoint["/model/a1"] == 4).all() and checkpoint.step == 4)
            states = [{"model": {"a": torch.zeros(4)}, "epoch": 1} for rank in range(2)]
            found = pool.results(union_ranks.save_declared, [(folder + "-same", state, 4, asynchronous) for state in states])
            self.assertEqual(found, [0, 0])

    def test_lists_of_stores(self):
        states = self.stages(3)
        found = pool.results(union_ranks.tiers, [(self.dir, state, blank(state)) for state in states])
        for state, loaded in zip(states, found):
            self.assertTrue(equal(loaded["model"], state["model"]))


class TestValues(Case):
    def test_what_differs_is_said_by_the_rule(self):
        states = [{"w": torch.ones(2), "loader": {"samples": 100 + (rank > 0), "rank0": 1} if rank < 3 else {"seen": [rank]}}
                  for rank in range(4)]
        said = "state['loader']['samples'] is 100 on rank 0, 101 on ranks 1-2"
        lines = self.save(states)
        self.assertEqual(len(lines), 1)
        self.assertIn(said, lines[0])
        self.assertIn("PerRank", lines[0])
        self.assertEqual(self.json(), {"loader": {"samples": 100, "rank0": 1, "seen": [3]}})
        self.assertEqual(self.save(states, name="trusted", replicas="trust"), [])
        self.same_file("run", "trusted")
        error = self.refused("save", states, name="checked", replicas="check")
        self.assertEqual((error.status, error.ranks), (libdcp.Status.MISMATCH, (1, 2)))
        self.assertIn(said, str(error))
        self.assertEqual(libdcp.steps(f"{self.dir}/checked"), [])

    def test_kinds_of_differences(self):
        cases = [(1, True), (1, 1.0), (0.0, -0.0), (1, {"a": 1}), ([1], [1, 2]), ("a", None), ([1, {"b": 2}], [1, {"b": 3}]),
                 (float("-inf"), float("inf")), ([], {}), ({}, 5), ({"a": {"b": []}}, {"a": {"b": [0]}})]
        for one, other in cases:
            for a, b in ((one, other), (other, one)):
                error = self.refused("save", [{"w": torch.ones(1), "x": a}, {"w": torch.ones(1), "x": b}], replicas="check")
                self.assertIn("state['x']", str(error))
                self.save([{"w": torch.ones(1), "x": a}, {"w": torch.ones(1), "x": b}], replicas="trust", replace=True)
                self.save([{"w": torch.ones(1), "x": a}], name="alone", replace=True)
                self.assertEqual(self.json(), self.json("alone"))

    def test_lists_are_compared_item_by_item(self):
        lines = self.save([{"w": torch.ones(1), "x": [1, {"b": rank, "c": 1}]} for rank in range(2)])
        self.assertIn("state['x'][1]['b'] is 0 on rank 0, 1 on rank 1", lines[0])

    def test_json_of_the_caller(self):
        found = pool.results(_save_json, [(f"{self.dir}/run", {"a": 1, "b": rank} if rank < 2 else None) for rank in range(3)])
        self.assertIn("json['b'] is 0 on rank 0, 1 on rank 1", found[0][0])
        with libdcp.Checkpoint(f"{self.dir}/run") as checkpoint:
            self.assertEqual((checkpoint.json["a"], checkpoint.json["b"]), (1, 0))

    def test_json_is_what_it_was_at_the_call(self):
        """The saving thread unites it while the program changes it."""
        for copy in (True, False):
            folder = f"{self.dir}/{copy}"
            pool.results(_save_json_and_change_it, [(folder, copy)] * 2)
            found = [libdcp.Checkpoint(f"{folder}/step-{step:08}").json for step in (1, 2, 3)]
            self.assertEqual([(one["step"], one["seen"], "later" in one) for one in found],
                             [(step, [step], False) for step in (1, 2, 3)])

    def test_options_that_differ(self):
        found = pool.call(_with_options, [("save", {"replicas": rule}, f"{self.dir}/run", 1, {"w": torch.ones(1)})
                                          for rule in ("check", "trust", "warn")])
        self.assertEqual({(type(answer), getattr(answer, "status", None)) for answer in found},
                         {(libdcp.Error, libdcp.Status.MISMATCH)})

    def test_parameters_in_groups_of_other_options(self):
        def state(groups):
            return {"w": torch.ones(1), "optimizer": {"state": {}, "param_groups": groups}}
        states = [state([{"params": ["a"], "lr": 1}, {"params": ["b"], "lr": 2}]),
                  state([{"params": ["c", "d"], "lr": 2}]), state([{"params": ["e"], "lr": 3}])]
        self.assertEqual(self.save(states), [])
        self.assertEqual(self.json()["optimizer"]["param_groups"], [
            {"params": ["a"], "lr": 1}, {"params": ["b", "c", "d"], "lr": 2}, {"params": ["e"], "lr": 3}])
        lines = self.save([states[0], state([{"params": ["b", "f"], "lr": 5}])], replace=True)
        self.assertIn("['param_groups'][1]['lr'] is 2 on rank 0, 5 on rank 1", lines[0])


class TestPerRank(Case):
    def check(self, saved, loading, wanted):
        """Values of ranks, and what is in their place at the load; None: it stays."""
        self.save([{"w": torch.ones(2), "a": {"own": libdcp.PerRank(value)}} for value in saved], replace=True)
        before = [blank(value) for value in loading]
        found = self.load([{"w": torch.zeros(2), "a": {"own": libdcp.PerRank(value)}} for value in loading])
        for rank, state in enumerate(found):
            own = state["a"]["own"]
            self.assertIs(own.loaded, rank < len(saved))
            value = wanted[rank] if rank < len(saved) else loading[rank]
            self.assertTrue(equal(own.value, value), f"{own.value}, not {value}")

    def test_values(self):
        for values in ([0, 1, 2], [1.5, "b", None], [{"a": 1, "b": [2, {"c": (3,)}]}, {"d": 4}, []], [{1, 2}, b"\0", 2**70]):
            for n in (1, 2, 3, 4):
                self.check(values, [None] * n, values)

    def test_arrays_of_other_shapes_and_types(self):
        for values in ([torch.arange(rank + 1.) for rank in range(3)], [torch.zeros(2), torch.zeros(2), torch.zeros(2).long()],
                       [torch.ones(2), 5, {"x": torch.ones(1), "y": [torch.zeros(()), "n"]}]):
            for n in (1, 2, 3, 4):
                self.check(values, [None] * n, values)
                if n <= 3:
                    self.check(values, list(map(blank, values[:n])), values)

    def test_one_shape_is_a_tensor_of_rows(self):
        values = [torch.arange(3.) + rank for rank in range(3)]
        for n in (1, 2, 3, 4):
            self.check(values, [torch.zeros(3) for _ in range(n)], values)
        with libdcp.Checkpoint(f"{self.dir}/run") as checkpoint:
            self.assertEqual(checkpoint.shape("/a/own"), (3, 3))
            self.assertEqual(list(checkpoint), ["/a/own", "/model/w"])

    def test_one_shape_into_others(self):
        values = [torch.arange(3.) + rank for rank in range(3)]
        for n in (1, 2, 3, 4):
            for loading in ([torch.zeros(rank + 2) for rank in range(n)], [None] * n, [torch.zeros(0).long()] * n,
                            [None, torch.zeros(3), torch.zeros(4), None][:n]):
                self.check(values, loading, values)

    def test_of_numpy(self):
        for length in (1, 2):
            saved = [np.arange(1 + rank % length) for rank in range(2)]
            self.save([{"w": np.ones(2), "own": libdcp.PerRank(value)} for value in saved], replace=True)
            for w, kind in ((np.zeros(2), np.ndarray), (torch.zeros(2).double(), torch.Tensor)):
                for rank, state in enumerate(self.load([{"w": w, "own": libdcp.PerRank(None)} for _ in range(2)])):
                    self.assertIs(type(state["own"].value), kind)
                    self.assertEqual(state["own"].value.tolist(), saved[rank].tolist())

    def test_on_some_ranks(self):
        for value in (torch.ones(3), 7):
            states = [{"w": torch.ones(2), **({"rng": {"cuda": libdcp.PerRank(value)}} if rank else {})} for rank in range(3)]
            self.save(states, replace=True)
            found = self.load([{"w": torch.ones(2), **({"rng": {"cuda": libdcp.PerRank(None)}} if rank else {})}
                               for rank in range(3)])
            for state in found[1:]:
                self.assertTrue(equal(state["rng"]["cuda"].value, value))

    def test_at_the_top_and_in_lists(self):
        states = [{"w": torch.ones(2), "own": libdcp.PerRank(torch.ones(rank + 1)),
                   "list": [1, libdcp.PerRank(rank), libdcp.PerRank({"x": torch.ones(rank)})]} for rank in range(3)]
        self.save(states)
        found = self.load([{"w": torch.ones(2), "own": libdcp.PerRank(None),
                            "list": [0, libdcp.PerRank(None), libdcp.PerRank(None)]} for rank in range(2)])
        for rank, state in enumerate(found):
            self.assertTrue(equal(state["own"].value, torch.ones(rank + 1)))
            self.assertEqual((state["list"][0], state["list"][1].value), (1, rank))
            self.assertTrue(equal(state["list"][2].value, {"x": torch.ones(rank)}))

    def test_within_other_containers(self):
        for make in (lambda inner: (1, inner), lambda inner: collections.deque([inner]), lambda inner: {"a": [{"b": (inner,)}]},
                     lambda inner: collections.defaultdict(list, {"k": inner})):
            states = [{"w": torch.ones(2), "x": make(libdcp.PerRank([rank, torch.ones(rank + 1)]))} for rank in range(2)]
            self.save(states, replace=True)
            templates = [libdcp.PerRank(None) for rank in range(2)]
            found = pool.results(union_ranks.load_own, [(f"{self.dir}/run", {"w": torch.ones(2), "x": make(own)})
                                                        for own in templates])
            for rank, owns in enumerate(found):
                self.assertTrue(equal(owns, [[rank, torch.ones(rank + 1)]]), owns)

    def test_declared(self):
        states = [{"w": torch.ones(2), "own": libdcp.PerRank(torch.ones(rank + 1)), "n": libdcp.PerRank(rank)}
                  for rank in range(3)]
        found = pool.results(union_ranks.save_own, [(f"{self.dir}/run", state) for state in states])
        self.assertEqual([state["n"].value for state in found], [10, 11, 12])
        self.assertTrue(equal(found[2]["own"].value, torch.full((3,), 2.)))

    def test_renamed(self):
        states = [{"w": torch.ones(2), "a": {"own": libdcp.PerRank(torch.ones(rank + 1))}} for rank in range(2)]
        self.save(states)
        found = self.load([{"w": torch.ones(2), "b": {"own": libdcp.PerRank(None)}} for rank in range(2)],
                          rename={"/b/*": "/a/*"})
        self.assertTrue(equal(found[1]["b"]["own"].value, torch.ones(2)))

    def test_refused(self):
        self.save([{"w": torch.ones(2), "n": libdcp.PerRank(rank)} for rank in range(2)])
        error = self.refused_anyhow("load", [{"w": torch.ones(2), "n": 0} for rank in range(2)])
        self.assertIn("state['n']: each rank has saved its own value of this", str(error))
        self.save([{"w": torch.ones(2), "n": 1} for rank in range(2)], replace=True)
        error = self.refused_anyhow("load", [{"w": torch.ones(2), "n": libdcp.PerRank(0)} for rank in range(2)])
        self.assertIn("state['n']: what was saved is one value", str(error))

    def refused_anyhow(self, what, states):
        found = pool.call(_with_options, [(what, {}, f"{self.dir}/run", state) for state in states])
        for answer in found:
            self.assertIsInstance(answer, libdcp.Error)
        return found[0]


class TestMpi(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("mpi4py") and shutil.which("mpirun"), "needs mpi4py")
    def test_groups_of_mpi4py(self):
        with tempfile.TemporaryDirectory(prefix="dcp-union-") as scratch:
            done = subprocess.run(["mpirun", "--oversubscribe", "-n", "3", sys.executable, HERE / "mpi_ranks.py", scratch],
                                  capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stdout.count("state['differs'] is 0 on rank 0, 1 on rank 1, 2 on rank 2"), 1, done.stdout)


def _save_json(group, directory, members):
    return union_ranks.save(group, directory, 1, {"w": torch.ones(1)}, json=members)


def _save_json_and_change_it(group, directory, copy):
    """Changes the JSON after each call of a save whose union waits for the second rank."""
    with libdcp.Store(directory, group=group) as store:
        declared = store.declare({"w": np.ones(10), "own": libdcp.PerRank({"rank": group.rank()})})
        members = {"seen": []}
        for step in (1, 2, 3):
            members.update(step=step, seen=[step])
            members.pop("later", None)
            if group.rank() == 1:
                time.sleep(0.3)
            saving = store.save_async(step, declared, json=members, copy=copy)
            members.update(step=1000, later=True)
            members["seen"].append(1000)
            saving.wait()


if __name__ == "__main__":
    unittest.main()
