"""libdcp.convert: folders that accelerate's save_state has written become steps that libdcp.accelerate loads."""

import importlib.util
import os
import random
import signal
import unittest

import numpy
import torch
from torch import nn

import libdcp

from test_convert import Base

NEEDED = ("accelerate", "safetensors")


class Kept:
    """An object of register_for_checkpointing."""

    def __init__(self):
        self.values = torch.zeros(2)

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        self.values = state["values"]


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {' and '.join(NEEDED)}")
class Test(Base):
    def training(self, seed, by_name):
        """Returns an accelerator with a model, optimizer and schedule after an update."""
        import accelerate
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerate.utils.set_seed(seed)
        accelerator = accelerate.Accelerator(cpu=True)
        model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        optimizer = torch.optim.AdamW(model.named_parameters() if by_name else model.parameters(), lr=0.125)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2 + seed)
        made = accelerator.prepare(model, optimizer, schedule)
        kept = Kept()
        accelerator.register_for_checkpointing(kept)
        kept.values += seed
        accelerator.backward(made[0](torch.rand(4, 5)).square().sum())
        made[1].step()
        made[2].step()
        return accelerator, [*made, kept]

    def state(self, parts):
        return [part.state_dict() for part in parts]

    def test_loaded_by_libdcp(self):
        import libdcp.accelerate
        for is_safe in (True, False):
            folder = self.dir / f"{is_safe}" / "checkpoint_4"
            accelerator, parts = self.training(1, True)
            accelerator.save_state(str(folder), safe_serialization=is_safe)
            expected = self.state(parts)
            drawn = random.random(), numpy.random.rand(), torch.rand(1)
            self.assertEqual(self.convert(folder, self.dir / f"{is_safe}" / "steps"), "")
            accelerator, parts = self.training(2, True)
            libdcp.accelerate.register(accelerator, self.dir / f"{is_safe}" / "steps")
            accelerator.load_state()
            self.assertEqual((random.random(), numpy.random.rand(), torch.rand(1)), drawn)
            found = self.state(parts)
            found[1]["param_groups"][0].pop("param_names", None), expected[1]["param_groups"][0].pop("param_names", None)
            self.assertEqual(repr(found), repr(expected))

    def test_of_two_files_the_one_that_accelerate_reads(self):
        accelerator, parts = self.training(1, True)
        folder = self.dir / "checkpoint_4"
        accelerator.save_state(str(folder), safe_serialization=False)
        with torch.no_grad():
            next(parts[0].parameters()).add_(1)
        accelerator.save_state(str(folder))
        self.assertIn("left out: pytorch_model.bin: model is in another file", self.convert(folder, self.dir / "steps"))
        found = libdcp.read(self.dir / "steps")["model"]
        for name, value in parts[0].state_dict().items():
            self.assertTrue(torch.equal(torch.as_tensor(found[name]), value), name)

    def test_numbered_parameters(self):
        """Without names, moments have the numbers that the optimizer gives them; a damaged file is named."""
        accelerator, parts = self.training(1, False)
        folder = self.dir / "checkpoint_4"
        accelerator.save_state(str(folder))
        (folder / "scheduler.bin").write_bytes(b"PK\3\4")
        (folder / "notes.txt").write_text("notes")
        said = self.convert(folder, self.dir / "steps")
        self.assertRegex(said, "^left out: notes.txt: libdcp has no use for it; scheduler.bin: .*no zip")
        state = libdcp.read(self.dir / "steps")
        expected = parts[1].state_dict()["state"]
        self.assertTrue(all(torch.equal(torch.as_tensor(state["optimizer"]["state"][i][name]), moments[name])
                            for i, moments in expected.items() for name in moments))
        self.assertNotIn("scheduler", state)
        whole = (folder / "model.safetensors").read_bytes()
        for data in (b"", whole[:7], whole[:200], whole[:-1], whole.replace(b'"F32"', b'"F64"'),
                     whole.replace(b"[4,5]", b"[9,5]"), (2**60).to_bytes(8, "little") + whole[8:]):
            (folder / "model.safetensors").write_bytes(data)
            self.assertIn("model.safetensors: ", self.convert(folder, self.dir / "none", expect=1))
        self.assertFalse((self.dir / "none").exists())
        signal.alarm(60)  # ends a conversion that waits
        self.addCleanup(signal.alarm, 0)
        for name in ("model.safetensors", "optimizer.bin"):  # the reader of each opens no pipe
            (folder / "model.safetensors").write_bytes(whole)
            (folder / name).unlink()
            os.mkfifo(folder / name)
            self.assertRegex(self.convert(folder, self.dir / "none", expect=1), f"{name}: .*not a regular file")
            (folder / name).unlink()


if __name__ == "__main__":
    unittest.main()
