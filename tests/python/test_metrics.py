"""The examples that show dcp-train's metrics elsewhere; each is skipped if its package is not installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
METRICS = """{"step": 1, "loss": 2.5, "grad_norm": null, "proven": true, "kernels": "none"}
{"step": 2, "loss": 2.125, "eval_loss": 3}
"""


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-metrics-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def show(self, script, *arguments, **environment):
        done = subprocess.run([sys.executable, "-W", "ignore", EXAMPLES / script, *arguments], input=METRICS, text=True,
                              capture_output=True, timeout=300, env={**os.environ, **environment})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "needs tensorboard")
    def test_tensorboard(self):
        self.show("metrics_to_tensorboard.py", self.dir)
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        events = EventAccumulator(str(self.dir))
        events.Reload()
        found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
        self.assertEqual(found, {"loss": [(1, 2.5), (2, 2.125)], "eval_loss": [(2, 3.0)]})

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "needs wandb")
    def test_wandb(self):
        """Offline: what would be sent is in a file, whose format is wandb's own."""
        self.show("metrics_to_wandb.py", "project", "first", WANDB_MODE="offline", WANDB_DIR=str(self.dir), HOME=str(self.dir))
        [written] = self.dir.glob("wandb/offline-run-*/run-first.wandb")
        data = written.read_bytes()
        for text in (b"loss", b"2.125", b"eval_loss"):
            self.assertIn(text, data)
        self.assertNotIn(b"grad_norm", data)


if __name__ == "__main__":
    unittest.main()
