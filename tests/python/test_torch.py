"""The Python package with torch, on several ranks with gloo: runs torch_ranks.py under torchrun."""

import filecmp
import pathlib
import tempfile
import unittest

import libdcp

from torchrun import torchrun

PROGRAM = pathlib.Path(__file__).with_name("torch_ranks.py")


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-torch-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def run_ranks(self, ranks, what, name, **environment):
        done = torchrun(ranks, PROGRAM, what, self.dir / name, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_meshes(self):
        self.run_ranks(1, "meshes", "1")
        for ranks in (2, 3, 4):
            self.run_ranks(ranks, "meshes", str(ranks), SOURCE=str(self.dir / str(ranks - 1)))
            one, many = (self.dir / name / "step-00000001" / "state.h5" for name in ("1", str(ranks)))
            self.assertTrue(filecmp.cmp(one, many, shallow=False), f"{ranks} ranks have written other bytes")

    def test_fsdp(self):
        for ranks in (1, 2, 3, 4):
            self.run_ranks(ranks, "fsdp", str(ranks))
            for name in ("8-12", "5-6", "8-22"):
                one, many = (self.dir / r / name / "step-00000001" / "state.h5" for r in ("1", str(ranks)))
                self.assertTrue(filecmp.cmp(one, many, shallow=False), f"{name}: {ranks} ranks have written other bytes")

    def test_copies(self):
        self.run_ranks(3, "copies", "copies")

    def test_tied(self):
        self.run_ranks(4, "tied", "tied")

    def test_failures(self):
        self.run_ranks(2, "failures", "failures")

    def test_one_rank_alone(self):
        self.run_ranks(2, "apart", "apart")

    def test_list_of_stores(self):
        self.run_ranks(4, "tiers", "tiers")

    def test_group_destroyed_with_a_save_in_flight(self):
        self.run_ranks(2, "destroyed", "destroyed")
        with libdcp.Checkpoint(self.dir / "destroyed") as checkpoint:
            self.assertEqual((checkpoint.step, checkpoint.verify()), (1, []))

    def test_one_rank_makes_no_groups(self):
        self.run_ranks(1, "alone", "alone")

    def test_moved_memory(self):
        self.run_ranks(1, "moved", "moved")

    def test_killed(self):
        torchrun(3, PROGRAM, "killed", self.dir / "killed")
        for rank in (0, 1):
            status, seconds = (self.dir / "killed" / f"said-{rank}").read_text().split()
            self.assertEqual(status, "COMM")
            self.assertLess(float(seconds), 30)


if __name__ == "__main__":
    unittest.main()
