"""Runs megatron_ranks.py under torchrun: Megatron-Core's dist_checkpointing, saved and loaded with other tensor and
pipeline parallelism."""

import importlib.util
import pathlib
import tempfile
import unittest

import libdcp

from torchrun import torchrun

PROGRAM = pathlib.Path(__file__).with_name("megatron_ranks.py")
TRAINING = pathlib.Path(__file__).with_name("megatron_training.py")
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "pytorch" / "megatron_libdcp.py"


@unittest.skipUnless(importlib.util.find_spec("megatron"), "megatron-core is not installed")
class Test(unittest.TestCase):
    def run_ranks(self, what, folder, tp, pp):
        done = torchrun(tp * pp, PROGRAM, what, folder, str(tp), str(pp))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_other_parallelism(self):
        """The step is the same from every parallelism, and has Megatron's keys."""
        with tempfile.TemporaryDirectory(prefix="dcp-megatron-") as scratch:
            folders = [f"{scratch}/{name}/iter_0000100" for name in ("many", "one")]
            self.run_ranks("save", folders[0], 2, 2)
            self.run_ranks("load", folders[0], 4, 1)
            self.run_ranks("save,load,refuse", folders[1], 1, 1)
            one, other = (pathlib.Path(folder, "libdcp/step-00000100/state.h5").read_bytes() for folder in folders)
            self.assertEqual(one, other)
            with libdcp.Checkpoint(f"{folders[0]}/libdcp") as step:
                self.assertEqual(step.shape("/model/layers.column"), (4, 8, 12))
                self.assertEqual(step.dtype("/model/layers.norm"), "BF16")

    def test_killed(self):
        """A rank is killed in a save: the run continues from the save before it, and ends with the same bytes."""
        with tempfile.TemporaryDirectory(prefix="dcp-megatron-") as scratch:
            def train(*names, kill=0):
                done = torchrun(2, TRAINING, str(kill), *(f"{scratch}/{name}" for name in names))
                self.assertEqual(done.returncode != 0, bool(kill), done.stdout + done.stderr)
                return list(map(int, done.stdout.split()))

            def steps(name, iteration):
                return libdcp.steps(f"{scratch}/{name}/iter_{iteration:07}/libdcp")
            self.assertEqual(train("whole", "killed", kill=6), [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6])
            self.assertEqual((steps("killed", 4), steps("killed", 6)), ([4], []))
            self.assertEqual(train("killed"), [5, 6, 7, 8])
            for iteration in 6, 8:
                self.assertEqual(*(pathlib.Path(scratch, name, f"iter_{iteration:07}/libdcp/step-{iteration:08}/state.h5")
                                   .read_bytes() for name in ("whole", "killed")))

    def test_example(self):
        with tempfile.TemporaryDirectory(prefix="dcp-megatron-") as scratch:
            for what, ranks in ("save", 2), ("load", 1):
                done = torchrun(ranks, EXAMPLE, what, f"{scratch}/iter_0000100")
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn("rank 0: iteration 100, equal: True\n(16, 4) in the checkpoint", done.stdout)


if __name__ == "__main__":
    unittest.main()
