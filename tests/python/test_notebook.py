"""Runs examples/notebook.ipynb by nbconvert."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "notebook.ipynb"
NEEDED = ("nbconvert", "ipykernel", "matplotlib")


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    def test_notebook(self):
        """It has no outputs in the repository, and gives these."""
        given = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
        self.assertFalse([cell for cell in given["cells"] if cell.get("outputs")])
        with tempfile.TemporaryDirectory(prefix="dcp-notebook-") as scratch:
            done = subprocess.run([sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", NOTEBOOK, "--output-dir",
                                   scratch], timeout=300, capture_output=True, text=True,
                                  env={**os.environ, "DIRECTORY": f"{scratch}/steps"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            found = json.loads(pathlib.Path(scratch, NOTEBOOK.name).read_text(encoding="utf-8"))
        outputs = [output for cell in found["cells"] for output in cell.get("outputs", [])]
        text = "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")
        for line in ("steps 10 20 30 40 50\n", "/model/frozen            F32   (16,)\n", "/model/head              bytes\n",
                     "every byte is what was saved\n"):
            self.assertIn(line, text)
        self.assertNotIn("/model/frozen            bytes", text)
        self.assertEqual([list(output["data"])[-1] for output in outputs if "image/png" in output.get("data", {})],
                         ["text/plain"])


if __name__ == "__main__":
    unittest.main()
