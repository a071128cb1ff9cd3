"""States on devices that a checkpoint cannot be saved from or loaded into; with torch, in one process."""

import tempfile
import unittest

import torch

import libdcp


class Test(unittest.TestCase):
    def test_meta_tensors(self):
        """Models have such tensors before they are loaded; the message fits a save as well as a load."""
        with tempfile.TemporaryDirectory(prefix="dcp-devices-") as scratch:
            libdcp.save(scratch, 1, {"model": torch.nn.Linear(2, 2)})
            with torch.device("meta"):
                model = torch.nn.Linear(2, 2)
            for call in (lambda: libdcp.load(scratch, {"model": model}), lambda: libdcp.save(scratch, 2, {"model": model})):
                with self.assertRaisesRegex(TypeError, r"^state\['model'\]\['weight'\]: a tensor on the meta device, which has "
                                            r"no memory to save from or to load into; .*to_empty"):
                    call()
            model.to_empty(device="cpu")
            libdcp.load(scratch, {"model": model})


if __name__ == "__main__":
    unittest.main()
