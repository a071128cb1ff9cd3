"""PyTorch's states and dcp-train's are the same files: FSDP of a transformers model on any number of ranks, with tensor
parallel and without; dcp-train from such a step, and back; the tools on it. trainer_ranks.py under torchrun. The programs
are those beside the library, or of LIBDCP_PROGRAMS."""

import filecmp
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import libdcp

HERE = pathlib.Path(__file__).parent
LIMIT_S = 300
NEEDED = ("torch", "transformers", "h5py")
STEP = "step-00000002"
KINDS = ("f32", "bf16")


def run(*words, **environment):
    """What a program prints."""
    done = subprocess.run(list(map(str, words)), env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                          timeout=LIMIT_S, capture_output=True, text=True)
    assert done.returncode == 0, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def run_ranks(ranks, what, directory, **environment):
    run(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks, HERE / "trainer_ranks.py", what,
        directory, **environment)


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-trainer-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        run_ranks(1, "start", cls.dir / "1x1")

    def check_equal(self, step, other):
        """Two steps' folders: about.json alone tells who saved it."""
        self.assertEqual(sorted(os.listdir(step)), ["about.json", "state.h5"])
        self.assertEqual(sorted(os.listdir(other)), ["about.json", "state.h5"])
        self.assertTrue(filecmp.cmp(step / "state.h5", other / "state.h5", shallow=False), f"{other}: other bytes")
        with libdcp.Checkpoint(step) as one, libdcp.Checkpoint(other) as two:
            self.assertEqual(one.proof(), two.proof())

    def test_any_ranks(self):
        """Each number of ranks loads what the one before has saved."""
        source = "1x1"
        for ranks, meshes in ((2, ["2x1"]), (3, ["3x1"]), (4, ["4x1", "2x2"]), (8, ["8x1", "4x2", "2x4"])):
            run_ranks(ranks, "again", self.dir, SOURCE=str(self.dir / source))
            for mesh in meshes:
                for kind in KINDS:
                    self.check_equal(self.dir / "1x1" / kind / STEP, self.dir / mesh / kind / STEP)
            source = meshes[-1]


if __name__ == "__main__":
    unittest.main()
