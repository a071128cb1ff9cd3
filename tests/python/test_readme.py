"""README.md's PyTorch program, extracted from its text, under torchrun: it runs twice, and the second run
continues the first one on another number of ranks."""

import importlib.util
import pathlib
import re
import tempfile
import unittest

from torchrun import torchrun

README = pathlib.Path(__file__).parents[2] / "README.md"


@unittest.skipUnless(importlib.util.find_spec("torch"), "needs torch")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-readme-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        programs = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        self.assertEqual(len(programs), 1)
        (self.dir / "train.py").write_text(programs[0], encoding="utf-8")

    def run_program(self, ranks):
        done = torchrun(ranks, "train.py", folder=self.dir)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout.splitlines()

    def test_it_runs_twice(self):
        import libdcp

        self.assertEqual(self.run_program(2), ["saved up to step 3"])
        with libdcp.Checkpoint(self.dir / "run") as first:
            weight = first["/model/weight"]
        self.assertEqual(self.run_program(3), ["saved up to step 6"])
        self.assertEqual(list(libdcp.steps(self.dir / "run")), [4, 5, 6])
        with libdcp.Checkpoint(self.dir / "run") as second:
            self.assertEqual(second["/optimizer/step/weight"], 6)  # updates of both runs
            # AdamW moves no element by more than the learning rate: the second run began with the first one's
            # end
            self.assertLess(abs(second["/model/weight"] - weight).max(), 3.5e-3)
            self.assertEqual(second.verify(), [])


if __name__ == "__main__":
    unittest.main()
