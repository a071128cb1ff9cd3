"""A store on several ranks: damage, lost saves, and paths that are wrong on one of the ranks."""

import itertools
import os
import pathlib
import shutil
import tempfile
import unittest

import numpy as np

import libdcp
import store_ranks
from rank_pool import Pool
from torchrun import torchrun

OLDER = "older than step"

# Rank 0 saves, and rank 1 waits until rank 0 gives up: by the default group's timeout, and by a group's own.
LATE = """
import datetime, sys, numpy, torch.distributed as dist, libdcp
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=4))
short = dist.new_group(timeout=datetime.timedelta(seconds=3))
told = dist.distributed_c10d._get_default_store()
for group in (None, short):
    store = libdcp.Store(sys.argv[1], group=group, replace=True)
    store.save(1, {"x": numpy.ones(3)})
    if dist.get_rank() == 0:
        try:
            store.save(2, {"x": numpy.ones(3)})
        except libdcp.Error as e:
            print(e.status.name)
        told.set(f"ended {group is short}", "")
    else:
        told.wait([f"ended {group is short}"], datetime.timedelta(seconds=60))
    store.close()
"""

# The stores of the list are being filled when the ranks end.
UNCLOSED = """
import sys, numpy, torch.distributed as dist, libdcp
dist.init_process_group("gloo")
store = libdcp.Store([libdcp.Tier(f"{sys.argv[1]}/{i}") for i in range(4)])
store.save_async(1, {"x": numpy.ones(1000000)}).wait()
dist.destroy_process_group()
"""


def setUpModule():
    global pool
    pool = Pool(3)


def tearDownModule():
    pool.close()


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-store-ranks-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def make(self, ranks, *steps, damaged=()):
        run = self.dir / f"run{len(os.listdir(self.dir))}"
        pool.results(store_ranks.save, [(run, steps)] * ranks)
        for step in damaged:
            file = run / f"step-{step:08}" / "state.h5"
            raw = bytearray(file.read_bytes())
            raw[raw.index(np.full(100, step + 0.5).tobytes())] ^= 1
            file.write_bytes(raw)
        return run

    def test_threads_with_groups_of_their_own(self):
        for opens_in_threads, is_async, n in itertools.product((False, True), (False, True), (2, 4)):
            with self.subTest(opens_in_threads=opens_in_threads, is_async=is_async, n=n):
                directory = self.dir / f"{opens_in_threads}{is_async}{n}"
                directory.mkdir()
                found = pool.results(store_ranks.threads_with_groups, [(directory, opens_in_threads, is_async, n)] * 3)
                self.assertEqual(found, [[(3, 30 + k, [30.0 + k] * 3) for k in range(n)]] * 3)

    def test_a_node_has_another_runs_steps(self):
        """Its job had this directory before: the run's steps stay, and redundancy rebuilds the node's."""
        own, other = self.dir / "own", self.dir / "other"
        for value, directory in ((1.0, own), (2.0, other)):
            directory.mkdir()
            pool.results(store_ranks.private_store, [(directory, "partner", (5, 6), value)] * 3)
        shutil.rmtree(own / "node-1")
        shutil.copytree(other / "node-1", own / "node-1", symlinks=True)
        found = pool.results(store_ranks.private_store, [(own, "partner", (), 3.0)] * 3)
        self.assertEqual([rest for *rest, _ in found], [[6, 1.0, [libdcp.Status.STATE, None, None]]] * 3)
        self.assertRegex("".join(found[1][3]), "is of another run .*/node-1/step-00000006 is now .abandoned")
        self.assertTrue((own / "node-0" / "step-00000006").is_dir())

    def test_more_ranks_save_no_older_step(self):
        """A step that was loaded counts as the newest, even if new nodes lack it; it can be saved again."""
        self.dir.joinpath("run").mkdir()
        pool.results(store_ranks.private_store, [(self.dir / "run", "none", (9, 10), 1.0)] * 2)
        found = pool.results(store_ranks.private_store, [(self.dir / "run", "none", (), 3.0)] * 3)
        self.assertEqual([rest for *rest, _ in found], [[10, 1.0, [libdcp.Status.STATE, None, None]]] * 3)

    def test_a_list_passes_over_no_intact_step(self):
        for i, (more, fails, kinds) in enumerate((
                ([{}, {}, {"m": 5}], (), {libdcp.Status.NOT_FOUND}),
                ([{}, {}, {"more": {"x": np.zeros(2)}}], (), {libdcp.Status.NOT_FOUND}),
                ([{}, {}, {}], (0,), {libdcp.Status.CANCELLED, None}),
                ([{}, {}, {}], (2,), {libdcp.Status.CANCELLED, None}))):
            with self.subTest(more, fails=fails):
                found = pool.results(store_ranks.load_of_list,
                                     [(self.dir / str(i), more[rank], rank in fails) for rank in range(3)])
                self.assertEqual({raised[2] for raised, *_ in found}, kinds)
                self.assertEqual([rest for _, *rest in found], [[2, 2, [2, 2, 2]]] * 3)
                for rank in fails:
                    self.assertEqual(found[rank][0][:2], ("OSError", "not here"))

    def test_background_saves_into_a_list_end_alone(self):
        found = pool.results(store_ranks.futures_of_list, [(self.dir,)] * 3)
        folders = {(step, str(self.dir / place / f"step-{step:08}")) for step in (1, 2) for place in ("fast", "slow")}
        for has_bytes, due, published in found:
            self.assertEqual((has_bytes, due), (True, [True, True]))
            self.assertEqual(set(published), folders)

    def test_background_saves_of_a_group_without_threads(self):
        self.assertEqual(pool.results(store_ranks.without_threads, [(self.dir,)] * 2), [[1]] * 2)

    def test_paths_that_differ_are_reported(self):
        given = [(self.dir / name,) for name in ("a", "a", "b")]
        found = pool.results(store_ranks.warnings_of_paths, given)
        self.assertEqual(found[1:], [[], []])
        self.assertEqual(len(found[0]), 2)
        for line in found[0]:
            self.assertRegex(line, "/a is used on all ranks, but rank 2 passed .*/b: threads .* need a group each")

    def test_damage(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks):
                run = self.make(ranks, 1, 2, 3, damaged=(3,))
                found = pool.results(store_ranks.load, [(run, {"fall_back": False}, [])] * ranks)
                self.assertEqual({answer[0][2] for answer in found}, {libdcp.Status.CORRUPT})
                self.assertEqual(len({answer[0][1] for answer in found}), 1)
                found = pool.results(store_ranks.load, [(run, {}, [])] * ranks)
                self.assertEqual(found, [((2, 2.5), [1, 2, 3])] * ranks)
                self.assertIn(".abandoned-step-00000003", os.listdir(run))

    def test_a_load_that_falls_back_leaves_nothing_of_the_damaged_step(self):
        """One rank saved step 1; two ranks saved step 2, which is damaged in the bytes that are read last."""
        for how, is_new in itertools.product(("load", "store", "list"), (False, True)):
            with self.subTest(how, is_new=is_new):
                run = self.dir / f"{how}{is_new}"
                pool.results(store_ranks.save_rows, [(run, 1, False)])
                pool.results(store_ranks.save_rows, [(run, 2, is_new)] * 2)
                file = run / "step-00000002" / "state.h5"
                raw = bytearray(file.read_bytes())
                raw[raw.index(np.full(100, 2.5).tobytes()) + 792] ^= 1
                file.write_bytes(raw)
                found = pool.results(store_ranks.load_rows, [(run, how, {"strict": False} if is_new else {})] * 2)
                if not is_new:
                    self.assertEqual(found, [(1, 10.0, True, 1.5), (1, -7.0, False, 1.5)])
                for raised in found if is_new else ():  # elements that step 1 lacks would keep step 2's values
                    self.assertEqual(raised[2], libdcp.Status.STATE, raised)
                    self.assertIn("contains elements of step 2, which is damaged, and step 1 has no such tensor", raised[1])

    def test_a_tensor_on_one_rank_and_something_else_on_another(self):
        for kind in ("none", "number", "list", "longer", "leaf"):
            with self.subTest(kind):
                for raised in pool.results(store_ranks.save_either, [(self.dir / kind, kind)] * 2):
                    self.assertEqual(raised[2], libdcp.Status.MISMATCH, raised)
                    self.assertIn("is a tensor on some ranks and something else on others", raised[1])
        for kind, keys in (("alike", ["a", "b", "c"]), ("empty", ["a"])):
            for read in pool.results(store_ranks.save_either, [(self.dir / kind, kind)] * 2):
                self.assertEqual(sorted(read), keys)

    def test_a_rank_that_does_not_come_is_waited_for_as_the_group_says(self):
        program = self.dir / "late.py"
        program.write_text(LATE)
        done = torchrun(2, program, self.dir / "run", limit_s=100)
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["COMM", "COMM"]), done.stderr)

    def test_stores_of_a_list_are_being_filled_as_the_ranks_end(self):
        program = self.dir / "unclosed.py"
        program.write_text(UNCLOSED)
        done = torchrun(2, program, self.dir, limit_s=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([libdcp.steps(self.dir / str(i)) for i in range(4)], [[1]] * 4)

    def test_children_of_a_rank(self):
        found = pool.results(store_ranks.save_beside_children, [(self.dir / "run",)] * 2)
        self.assertEqual(found, [([0, 0], [1, 2]), ([], [1, 2])])

    def test_ranks_that_open_a_list_and_a_directory(self):
        for ranks in (2, 3):
            places = [(self.dir / "one",)] + [([libdcp.Tier(self.dir / "one")],)] * (ranks - 1)
            for given in (places, places[::-1]):
                found = pool.results(store_ranks.open_store, given)
                self.assertEqual({answer[2] for answer in found}, {libdcp.Status.MISMATCH})
                self.assertEqual(len(set(found)), 1)

    def test_ranks_that_mean_other_steps(self):
        for mine, other in (({}, {"step": 1}), ({"step": 1}, {}), ({"step": 1}, {"step": 2}), ({}, {"fall_back": False})):
            for directory in self.make(2, 1, 2), [libdcp.Tier(self.make(2, 1, 2))]:
                for is_store in (True,) if isinstance(directory, list) else (True, False):
                    with self.subTest(mine=mine, other=other, directory=directory, is_store=is_store):
                        found = pool.results(store_ranks.load_named, [(directory, is_store, how, ()) for how in (mine, other)])
                        self.assertEqual(found[0], found[1])
                        self.assertEqual(found[0][2], libdcp.Status.MISMATCH)
                        self.assertRegex(found[0][1], "^ranks differ in the step to load: rank 0 has step=.*, rank 1 step=")

    def test_a_name_of_one_rank(self):
        """The checkpoint lacks the name: both ranks learn which one, and whose."""
        run = self.make(2, 1)
        for names in (((), ("lacking",)), (("lacking",), ())):
            found = pool.results(store_ranks.load_named, [(run, False, {}, own) for own in names])
            self.assertEqual([raised[2] for raised in found], [libdcp.Status.NOT_FOUND] * 2)
            self.assertTrue(all("state['lacking'] is not in the checkpoint's JSON" in raised[1] for raised in found), found)

    def test_what_one_rank_raises(self):
        """It is not damage, although another rank reports some; all ranks get the same result, and none waits for
        another."""
        damage, other = libdcp.Error("mine", status=libdcp.Status.CORRUPT), OSError("can't be read")
        for failures in ([[other], []], [[], [other]], [[damage], [other]], [[other], [damage]]):
            with self.subTest(failures):
                run = self.make(2, 1, 2)
                found = pool.results(store_ranks.load, [(run, {}, mine) for mine in failures])
                for rank, (raised, steps) in enumerate(found):
                    self.assertEqual(steps, [1, 2])
                    mine, others = failures[rank], failures[1 - rank]
                    self.assertEqual(raised[1], str(mine[0]) if mine else f"rank {1 - rank}: OSError: {others[0]}")

    def test_what_the_programs_functions_raise(self):
        """Whatever its type and status, it leads to no other step or copy, and is raised unchanged."""
        failures = [libdcp.Error("mine", status=status) for status in (
            libdcp.Status.CORRUPT, libdcp.Status.NOT_FOUND, libdcp.Status.IO, libdcp.Status.COMM)]
        failures += [KeyError("mine"), OSError("mine"), MemoryError("mine")]
        cases = [("load_state_dict", failure, (0, 1)) for failure in failures]
        cases += [("load_state_dict", failure, (1, 2)) for failure in failures[:-2]]
        cases += [("state_dict", failures[0], (0, 2)), ("progress", failures[0], (1, 2)),
                  ("progress", failures[-1], (0, 2))]
        places = (self.dir / "one", [libdcp.Tier(self.dir / "list")], [libdcp.Tier(self.dir / name) for name in "ab"])
        for place in places:
            pool.results(store_ranks.save, [(place, (1, 2))])
        for place, (name, failure, (rank, ranks)) in itertools.product(places, cases):
            with self.subTest(place=place, name=name, failure=repr(failure), rank=rank, ranks=ranks):
                found = pool.results(store_ranks.load_failing, [
                    (place, name, failure if r == rank else None) for r in range(ranks)])
                for r, (raised, is_same, lines, step) in enumerate(found):
                    self.assertEqual((is_same, lines, step), (r == rank, [], 2))
                    self.assertIsInstance(raised, tuple, f"step {raised} was loaded")

    def test_lost_saves(self):
        """The next save is made whichever ranks know of the lost one, and then all others know; unless all ranks
        know already."""
        for hears in ([0, 0], [1, 0], [0, 1], [1, 1], [0, 1, 0]):
            for how, said in (("save", "was saved"), ("save_async", "is being saved")):
                with self.subTest((hears, how)):
                    run = self.make(len(hears), 3)
                    found = pool.results(store_ranks.lost, [(run, heard, how, 4) for heard in hears])
                    for (raised, again, steps), heard in zip(found, hears):
                        self.assertIsNone(again)
                        self.assertEqual(steps, [3, 4, 5])
                        if all(hears):
                            self.assertIsNone(raised)
                        else:
                            self.assertEqual(raised[0], "Error")
                            self.assertRegex(raised[1], f"^step 1 was not saved: .*{OLDER} 3, .*; step 4, which .*, {said}$")

    def test_lost_saves_of_a_state_that_needs_all_ranks(self):
        """A rank that has a failure to report takes part in the state's collectives."""
        for (how, said), is_declared in itertools.product((("save", "was saved"), ("save_async", "is being saved")),
                                                          (False, True)):
            with self.subTest(how, is_declared=is_declared):
                run = self.make(2, 3)
                found = pool.results(store_ranks.lost_with_collective_state,
                                     [(run, heard, how, is_declared) for heard in (1, 0)])
                for raised in found:
                    self.assertRegex(raised[1], f"^step 1 was not saved: .*{OLDER} 3, .*; step 4, which .*, {said}$")
                self.assertEqual(libdcp.read(run)["sampler"], {"ranks": 2})

    def test_a_step_that_is_none_on_one_rank(self):
        """All ranks name that rank and its reason, also if the stores of a list are due at different steps."""
        for is_list, how, wrong in itertools.product((False, True), ("save", "save_async"), (0, 1)):
            with self.subTest(is_list=is_list, how=how, wrong=wrong):
                run = self.dir / f"{is_list} {how} {wrong}"
                places = [libdcp.Tier(run / "a"), libdcp.Tier(run / "b", every=2)] if is_list else run
                steps = (-1, 3) if wrong == 0 else (3, -1)
                found = pool.results(store_ranks.save_numbers, [(places, how, steps)] * 2)
                self.assertEqual(found[wrong][0][0], "ValueError")
                said = f"rank {wrong}: ValueError: {found[wrong][0][1]}"
                self.assertEqual(found[1 - wrong][0], ("Error", said, libdcp.Status.ARG))
                self.assertEqual([after for _, after in found], [[5]] * 2)

    def test_an_option_of_a_proof_that_is_wrong_on_one_rank(self):
        first, second = pool.results(store_ranks.prove, [({},), ({"replicas": "chek"},)])
        self.assertEqual((second[0], first[:2]), ("ValueError", ("Error", f"rank 1: ValueError: {second[1]}")))

    def test_all_ranks_ask_all_objects(self):
        """In one order, whatever is wrong on one of the ranks: their functions may need all ranks."""
        both = ("save", "declared save", "save_async", "declared save_async", "prove", "load", "declared load", "hf.load")
        for how, wrong in (*itertools.product(both, ("value", "state_dict")), *itertools.product(
                ("load", "declared load"), ("load_state_dict", "lacks")), ("hf.load", "load_state_dict")):
            with self.subTest(how, wrong=wrong):
                (calls, first), (others, second) = pool.results(
                    store_ranks.asked, [(self.dir / f"{how} {wrong}", how, wrong)] * 2)
                self.assertEqual(calls, others)
                self.assertEqual({call[0] for call in calls}, set("abc"))
                self.assertEqual((first is None, second is None), (wrong == "lacks",) * 2, (first, second))

    def test_a_state_that_another_group_has_declared(self):
        """Each rank's rows are its own in the group of the call."""
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                directory = self.dir / str(is_async)
                directory.mkdir()
                found = pool.results(store_ranks.with_a_state_declared_alone, [(directory, is_async)] * 3)
                self.assertEqual(found, [([rank + 3.5] * 3, True, 10 + rank) for rank in range(3)])

    def test_proof_of_columns(self):
        """The tables contain no checksum of the whole tensor."""
        whole = np.arange(24, dtype=np.float32).reshape(4, 6)
        pool.results(store_ranks.save_columns, [(self.dir / "run", whole)] * 3)
        with libdcp.Checkpoint(self.dir / "run") as checkpoint:
            proof = libdcp.prove({"w": whole})
            self.assertEqual((checkpoint.layout, checkpoint.files), ("sharded", 3))
            self.assertEqual((checkpoint.proof(), checkpoint.proof().crc), (proof, proof.crc))
            self.assertEqual(checkpoint.diff(checkpoint), {})

    def test_paths_that_are_wrong_on_one_rank(self):
        for wrong in (0, 1):
            answers = pool.results(store_ranks.open_store, [("s3://bucket" if rank == wrong else self.dir / "run",)
                                                            for rank in range(2)])
            self.assertIn("s3:// is not supported", answers[wrong][1])
            self.assertEqual(answers[1 - wrong][1:3], (f"rank {wrong}: ValueError: {answers[wrong][1]}", libdcp.Status.ARG))
        self.assertEqual(os.listdir(self.dir), [])

    def test_steps_that_the_first_rank_can_not_list(self):
        """No rank waits for it."""
        for places in (self.dir / "one", [libdcp.Tier(self.dir / "list")]):
            with self.subTest(places):
                first, *others = pool.results(store_ranks.open_unreadable, [(places,)] * 3)
                self.assertEqual(first[:2], ("OSError", "can't be read"))
                self.assertEqual({answer[:2] for answer in others}, {("Error", "rank 0: OSError: can't be read")})
        for raised, newest in pool.results(store_ranks.newest_of_a_moved_store, [(self.dir / "moved",)] * 3):
            self.assertIn("was moved, removed or replaced", raised[1])
            self.assertEqual(newest, 1)

    def test_the_newest_step_has_a_large_number(self):
        found = pool.results(store_ranks.newest_of_a_large_number, [(self.dir / "run",)] * 2)
        self.assertEqual(found, [9999999999999999999] * 2)

    def test_another_programs_checkpoint(self):
        (self.dir / ".metadata").touch()
        first, second = pool.results(store_ranks.load_alone, [(self.dir,)] * 2)
        self.assertIn("python -m libdcp.convert", first[1])
        self.assertEqual(first, second)


if __name__ == "__main__":
    unittest.main()
