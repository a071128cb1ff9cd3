"""libdcp and h5py in one process: each uses its own HDF5, whichever is imported first. Skipped without h5py."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import unittest

PROGRAM = """
import sys
import numpy as np
for name in sys.argv[2].split(","):
    __import__(name)
import h5py, libdcp
array = np.arange(24, dtype=np.float32).reshape(4, 6)
with h5py.File(sys.argv[1] + "/own.h5", "w") as file:
    file["a"] = array
    libdcp.save(sys.argv[1], 1, {"model": {"a": array}})  # while h5py has a file open
    with h5py.File(sys.argv[1] + "/step-00000001/state.h5", "r") as step:
        assert (step["model/a"][:] == array).all()
    with libdcp.Checkpoint(sys.argv[1]) as checkpoint:
        assert (checkpoint["/model/a"] == array).all()
    assert (file["a"][:] == array).all()
try:
    h5py.File(sys.argv[1] + "/none.h5", "r")
except OSError:
    print(h5py.version.hdf5_version)
"""


@unittest.skipUnless(importlib.util.find_spec("h5py"), "there is no h5py")
class OneProcess(unittest.TestCase):
    def test_each_order(self) -> None:
        for order in ("h5py,libdcp", "libdcp,h5py"):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([sys.executable, "-c", PROGRAM, folder, order], capture_output=True, text=True,
                                      timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("HDF5-DIAG", done.stderr, order)


if __name__ == "__main__":
    unittest.main()
