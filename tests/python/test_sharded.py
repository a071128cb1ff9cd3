"""Runs sharded_ranks.py under torchrun: torch tensors that describe their own shards, such as those of FSDP1."""

import filecmp
import pathlib
import tempfile
import unittest

from torchrun import torchrun

PROGRAM = pathlib.Path(__file__).with_name("sharded_ranks.py")


class Test(unittest.TestCase):
    def run_ranks(self, what, *numbers):
        """The files are equal on any number of ranks, except those in folders of their own."""
        with tempfile.TemporaryDirectory(prefix="dcp-sharded-") as scratch:
            for ranks in numbers:
                done = torchrun(ranks, PROGRAM, what, f"{scratch}/{ranks}")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            first, *others = (sorted(pathlib.Path(scratch, str(ranks)).glob("**/state.h5")) for ranks in numbers)
            self.assertTrue(first)
            for files in others if what == "tensors" else []:
                for one, other in zip(first, files, strict=True):
                    self.assertTrue(filecmp.cmp(one, other, shallow=False), other)

    def test_sharded_tensors(self):
        self.run_ranks("tensors", 1, 2, 3)

    def test_members_that_say_it(self):
        self.run_ranks("members", 2)

    def test_local_shards_wrapper(self):
        self.run_ranks("wrapper", 2)

    def test_fsdp1(self):
        self.run_ranks("fsdp", 2, 3)


if __name__ == "__main__":
    unittest.main()
