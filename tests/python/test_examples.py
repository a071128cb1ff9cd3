"""examples/pytorch under torchrun: a worker is killed, and the training continues, also with another number of
workers."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import libdcp

from torchrun import torchrun

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "pytorch"
PROGRAMS = pathlib.Path(os.environ.get("LIBDCP_PROGRAMS") or pathlib.Path(__file__).parents[2] / "build" / "bin")
NEEDED = ("torch", "sklearn")


def train(workers, script, *arguments):
    """Returns all of the output."""
    done = torchrun(workers, EXAMPLES / script, *arguments, options=("--max-restarts", "1"),
                    TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(text):
    """Returns for each step all losses that were printed, one per line."""
    found = {}
    for step, loss in re.findall(r"^step +(\d+)  loss ([\d.]+) ", text, re.MULTILINE):
        found.setdefault(int(step), []).append(float(loss))
    return found


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {' and '.join(NEEDED)}")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-examples-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def alone(self, script, *arguments):
        done = subprocess.run([sys.executable, "-W", "ignore", EXAMPLES / script, *arguments], timeout=300,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_killed_worker_and_another_number(self):
        printed = train(2, "train.py", self.dir / "killed", "--steps", "12", "--every", "4", "--kill-at", "10")
        first = int(re.search("^2 workers go on from step ([48]),", printed, re.MULTILINE)[1])
        two = losses(printed)
        self.assertEqual(sorted(two), list(range(1, 13)))
        for step, found in two.items():
            if step != 10:  # the worker may die before the other one has printed it
                self.assertEqual(len(found), 2 if first < step < 10 else 1, printed)
            self.assertEqual(len(set(found)), 1, printed)

        shutil.copytree(self.dir / "killed" / "step-00000008", self.dir / "more" / "step-00000008")
        printed = train(3, "train.py", self.dir / "more", "--steps", "12")
        self.assertIn("3 workers go on from step 8,", printed)
        three = losses(printed)
        self.assertEqual(sorted(three), [9, 10, 11, 12])
        for step, found in three.items():
            self.assertAlmostEqual(found[0], two[step][0], delta=1e-3)

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "needs transformers and accelerate")
    def test_transformers(self):
        self.alone("train_transformers.py", self.dir / "run", "--steps", "20")
        self.assertEqual(libdcp.steps(self.dir / "run"), [10, 20])
        printed = train(2, "train_transformers.py", self.dir / "run", "--steps", "40", "--limit", "2")
        found = [float(loss) for loss in re.findall(r"'loss': '([\d.]+)'", printed)]
        self.assertEqual(len(found), 4, printed)
        self.assertLess(found[-1], 2)
        self.assertIn("best: step 40", printed)
        self.assertEqual(libdcp.steps(self.dir / "run"), [30, 40])

    @unittest.skipUnless(importlib.util.find_spec("accelerate"), "needs accelerate")
    def test_accelerate(self):
        def epochs(text):
            return {int(epoch): float(loss) for epoch, loss in re.findall(r"^epoch (\d)  loss ([\d.]+)$", text, re.MULTILINE)}
        whole = epochs(self.alone("train_accelerate.py", self.dir / "whole"))
        self.alone("train_accelerate.py", self.dir / "run", "--epochs", "1")
        again = epochs(train(2, "train_accelerate.py", self.dir / "run"))
        self.assertEqual((sorted(whole), sorted(again)), ([0, 1, 2], [1, 2]))
        for epoch, loss in again.items():
            self.assertAlmostEqual(loss, whole[epoch], delta=1e-3)
        self.assertEqual(libdcp.steps(self.dir / "run"), [1, 2])

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "needs lightning")
    def test_lightning(self):
        self.alone("train_lightning.py", self.dir / "run", "--epochs", "1")
        again = train(2, "train_lightning.py", self.dir / "run")
        found = {int(epoch): float(loss) for epoch, loss in re.findall(r"^epoch (\d)  loss ([\d.]+)$", again, re.MULTILINE)}
        self.assertEqual(sorted(found), [1, 2], again)
        self.assertLess(found[2], 0.5)
        self.assertEqual(sorted(path.name for path in (self.dir / "run").iterdir()),
                         ["epoch=1-step=74.ckpt", "epoch=2-step=111.ckpt", "last.ckpt"])
        self.assertEqual(libdcp.steps(self.dir / "run" / "last.ckpt"), [111])

    @unittest.skipUnless((PROGRAMS / "dcp-run").exists(), "needs dcp-run")
    def test_a_lost_rank_under_dcp_run(self):
        done = subprocess.run(
            [PROGRAMS / "dcp-run", "-n", "4", "--on-failure", "shrink", "--", sys.executable, "-W", "ignore",
             EXAMPLES / "train.py", self.dir / "run", "--steps", "6", "--every", "2", "--kill-at", "5"],
            timeout=300, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("3 workers go on from step 4,", done.stdout)
        self.assertIn("restart 1 of 3, on 3 ranks", done.stderr)
        found = losses(done.stdout)
        self.assertEqual(sorted(found), list(range(1, 7)))
        for step, of_step in found.items():  # the same samples on fewer ranks, except for rounding
            self.assertAlmostEqual(min(of_step), max(of_step), delta=1e-3, msg=f"step {step}")


if __name__ == "__main__":
    unittest.main()
