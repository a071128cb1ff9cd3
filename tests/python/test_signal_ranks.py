"""Ctrl-C on one of several ranks: KeyboardInterrupt there, libdcp.Error that names that rank on the others, and
the store remains usable. An exception within the group is raised on the rank on which it occurs."""

import os
import pathlib
import tempfile
import unittest

from rank_pool import Pool

import signal_ranks

SEED = int(os.environ.get("DCP_SEED", "1"))
ROUNDS = 25
RANKS = 3


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pool = Pool(RANKS)
        cls.addClassCleanup(cls.pool.close)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-signals-")
        self.addCleanup(scratch.cleanup)
        self.dir = scratch.name

    def test_a_call_is_given_up(self):
        for ranks in (2, RANKS):
            who = ranks - 1
            answers = self.pool.results(signal_ranks.given_up, [(f"{self.dir}/{ranks}", who)] * ranks)
            for rank, (ends, steps) in enumerate(answers):
                self.assertEqual(steps, [1, 2])
                for end, found in ends:
                    self.assertEqual(end, "KeyboardInterrupt" if rank == who else ("Error", who, "CANCELLED"))
                    self.assertEqual(found, [1])

    def test_a_list_that_saves(self):
        """No rank waits for the one that never waits for its save."""
        answers = self.pool.results(signal_ranks.begun_in_list, [(pathlib.Path(self.dir), 1)] * RANKS)
        end, steps = answers[0]
        self.assertIn((end, steps), ((("Error", 1, "CANCELLED"), [1, 3]), ("ended", [1, 2, 3])))
        self.assertEqual(answers[1:], [("KeyboardInterrupt", steps), (end, steps)])

    def test_before_the_ranks_meet(self):
        answers = self.pool.results(signal_ranks.prepared_late, [(self.dir, 1)] * RANKS)
        self.assertEqual(answers, [("KeyboardInterrupt" if rank == 1 else ("Error", 1, "CANCELLED"), [2]) for rank in range(RANKS)])

    def test_objects_that_need_all_ranks(self):
        """No rank waits in an object's collective for the one that was interrupted."""
        answers = self.pool.results(signal_ranks.collective_objects, [(pathlib.Path(self.dir), 1)] * RANKS)
        for rank, (ends, steps) in enumerate(answers):
            self.assertEqual(ends, ["KeyboardInterrupt" if rank == 1 else ("Error", 1, "CANCELLED")] * 16)
            self.assertEqual(steps, [1])

    def test_an_exception_of_the_group(self):
        answers = self.pool.results(signal_ranks.failing_group, [(self.dir, 1)] * 2)
        self.assertEqual(answers[1], ("Mine", "broadcast"))
        self.assertEqual(answers[0][::2], ("Error", "COMM"))

    def test_random_moments(self):
        answers = self.pool.results(signal_ranks.at_random, [(self.dir, SEED, ROUNDS)] * RANKS)
        for number in range(ROUNDS):
            for rank, ends in enumerate(answers):
                who, end = ends[number]
                allowed = end in ("", "ended") or end[0] == "KeyboardInterrupt" if rank == who else (
                    end in ("ended", ("Error", who, "CANCELLED")))
                self.assertTrue(allowed, f"DCP_SEED={SEED}: round {number}, {who} was interrupted, rank {rank}: {end}")


if __name__ == "__main__":
    unittest.main()
