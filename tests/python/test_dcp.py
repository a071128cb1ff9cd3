"""Runs dcp_ranks.py under torchrun: the storage for torch.distributed.checkpoint, on several ranks with gloo."""

import dataclasses
import os
import pathlib
import pickle
import pprint
import tempfile
import unittest
import warnings

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import _EmptyStateDictLoadPlanner
from torch.distributed.checkpoint.format_utils import _load_state_dict

import libdcp
import libdcp.convert
from libdcp.dcp import Reader, Writer

from torchrun import torchrun

PROGRAM = pathlib.Path(__file__).with_name("dcp_ranks.py")


@libdcp.register
@dataclasses.dataclass
class Held:
    """An object that contains tensors."""

    number: int
    tensors: object


class Test(unittest.TestCase):
    def setUp(self):
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        scratch = tempfile.TemporaryDirectory(prefix="dcp-torch-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def run_ranks(self, ranks, what, name, **environment):
        done = torchrun(ranks, PROGRAM, what, self.dir / name, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_storage(self):
        self.run_ranks(1, "storage", "1")
        for ranks, source in ((4, 1), (2, 4)):
            self.run_ranks(ranks, "storage", str(ranks), SOURCE=str(self.dir / str(source)))

    def test_groups_of_some(self):
        self.run_ranks(3, "groups_of_some", "groups")

    def test_groups_at_once(self):
        self.run_ranks(2, "groups_at_once", "at_once")

    def test_asynchronous(self):
        self.run_ranks(2, "asynchronous", "asynchronous")

    def test_failures(self):
        self.run_ranks(2, "failures", "failures")

    def test_killed(self):
        """torch itself notifies the other ranks, since it cannot gather the results; this tests that they do not
        wait."""
        torchrun(3, PROGRAM, "killed", self.dir)
        for rank in (0, 1):
            self.assertLess(float((self.dir / f"said-{rank}").read_text()), 30)
        self.assertEqual(libdcp.steps(self.dir), [0])

    def test_places(self):
        """The meaning of paths and checkpoint_ids."""
        here = str(self.dir)
        for make, checkpoint_id, where in (
                (lambda: Writer(f"{here}/a/step-7"), None, "a/step-00000007"),
                (lambda: Writer(f"{here}/b", step=8), None, "b/step-00000008"),
                (lambda: Writer(f"{here}/c"), "step_9", "c/step-00000009"),
                (lambda: Writer(f"{here}/c"), 10, "c/step-00000010"),
                (lambda: Writer(f"{here}/c"), f"{here}/d/step=11", "d/step-00000011"),
                (lambda: Writer(f"{here}/c"), f"{here}/e12", "e12/step-00000000"),
                (lambda: Writer(f"{here}/e12"), None, "e12/step-00000001")):
            writer = make()
            dcp.save({"x": torch.ones(1)}, storage_writer=writer, checkpoint_id=checkpoint_id)
            self.assertTrue((self.dir / where / "state.h5").exists(), where)
        state = {"x": torch.zeros(1)}
        dcp.load(state, storage_reader=Reader(f"{here}/c"), checkpoint_id="step-10")
        self.assertEqual(state["x"].item(), 1)
        self.assertTrue(Reader.validate_checkpoint_id(f"{here}/c/step-10"))
        self.assertFalse(Reader.validate_checkpoint_id(f"{here}/c/step-99"))

    def test_places_with_a_text_before_the_step(self):
        """Such a path is a directory of its own, so no name means what was saved under another one."""
        here = str(self.dir)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(here)
        names = (f"{here}/model-step-100", f"{here}/ema-step-100", "ema.step=100", "global_step100")
        for i, name in enumerate(names):
            with self.subTest(name):
                dcp.save({"x": torch.full((1,), float(i))}, storage_writer=Writer(here, replace=True), checkpoint_id=name)
                self.assertFalse(Reader.validate_checkpoint_id(f"{here}/other-step-100"))
        for i, name in enumerate(names):
            with self.subTest(name):
                state = {"x": torch.zeros(1)}
                dcp.load(state, storage_reader=Reader(here), checkpoint_id=name)
                self.assertEqual(state["x"].item(), i)

    def test_options(self):
        """The options of a store; wrong ones are reported immediately."""
        for step in range(4):
            dcp.save({"x": torch.ones(1)}, storage_writer=Writer(self.dir, keep=2, json={"run": "a"}))
        self.assertEqual(libdcp.steps(self.dir), [2, 3])
        with libdcp.Checkpoint(self.dir) as checkpoint:
            self.assertEqual(checkpoint.json["run"], "a")
        dcp.save({"x": torch.ones(1)}, storage_writer=Writer(self.dir, step=3, continue_from=2))
        self.assertEqual(libdcp.steps(self.dir), [2, 3])
        dcp.save({"x": torch.ones(1, dtype=torch.float64)}, storage_writer=Writer(self.dir, step=3, replace=True))
        state = {"x": torch.zeros(1)}
        dcp.load(state, storage_reader=Reader(self.dir, step=3, cast=True))
        self.assertEqual(state["x"].item(), 1)
        with self.assertRaises(TypeError):
            Writer(self.dir, no_such_option=1)
        with self.assertRaises(ValueError):
            Writer(self.dir, layout="round")
        with self.assertRaises(dcp.CheckpointException) as caught:
            dcp.save({"a": 1}, storage_writer=Writer(self.dir, json={"state": {}}))
        self.assertIsInstance(caught.exception.failures[0][0], ValueError)

    def test_without_a_state(self):
        """torch's tools make the state dict from the metadata, with its original nesting."""
        saved = {"app": {"model": {"a.b": torch.ones(2)}, "list": [torch.ones(1), [torch.zeros(1)]]},
                 "top": torch.ones(3), "rate": 0.5, "rates": [1, 2], "groups": [{"params": ["a"], "lr": 1.0}]}
        dcp.save(saved, storage_writer=Writer(self.dir))
        found = {}
        _load_state_dict(found, storage_reader=Reader(self.dir), planner=_EmptyStateDictLoadPlanner(), no_dist=True)
        self.assertEqual(pprint.pformat(found), pprint.pformat(saved))

    def test_tensors_within_a_dataclass(self):
        """They load whichever library has saved them."""
        def state(value):
            one = torch.full((2,), float(value))
            return {"x": Held(value, one), "of": {"y": Held(value, [one, {"z": Held(value, one)}])}, "t": one}
        dcp.save(state(1), storage_writer=Writer(self.dir / "written", step=1))
        libdcp.save(self.dir / "saved", 1, state(1))
        for name in "written", "saved":
            with self.subTest(name):
                found = state(0)
                dcp.load(found, storage_reader=Reader(self.dir / name))
                self.assertEqual(pprint.pformat(found), pprint.pformat(state(1)))
                found = state(0)
                libdcp.load(self.dir / name, found)
                self.assertEqual(pprint.pformat(found), pprint.pformat(state(1)))

    def test_without_tensors(self):
        for saved in ({}, {"foo": {}}, {"foo": {"a": 1}}):
            dcp.save(saved, storage_writer=Writer(self.dir))
            found = {"foo": {"a": None}} if saved.get("foo") else {"foo": {}}
            dcp.load(found, storage_reader=Reader(self.dir))
            self.assertEqual(found["foo"], saved.get("foo", {}))

    def test_bytes_converted(self):
        """They are stored as bytes in torch's files; and invalid hints leave texts unchanged."""
        saved = {"loader": [b"\xff", "MQ=="], "x": torch.ones(1)}
        dcp.save(saved, storage_writer=Writer(self.dir / "steps"))
        libdcp.convert.main(["--flat", str(self.dir / "steps"), str(self.dir / "torch")])
        found = {"loader": None, "x": torch.zeros(1)}
        dcp.load(found, checkpoint_id=str(self.dir / "torch"))
        self.assertEqual(found, saved)
        hints = {"loader": "bytes", "name": "file", "odd": {}, "none.1": "bytes", 5: "bytes"}
        libdcp.save(self.dir / "steps", 1, {"x": torch.ones(1), "loader": "no base64", "name": "MQ=="},
                    json={"torch": {"bytes": hints}})
        found = {"loader": None, "name": None}
        dcp.load(found, storage_reader=Reader(self.dir / "steps"))
        self.assertEqual(found, {"loader": "no base64", "name": "MQ=="})

    def test_same_path(self):
        with self.assertRaises(dcp.CheckpointException) as caught:
            dcp.save({"a": torch.ones(1), "model": {"a": torch.ones(1)}}, storage_writer=Writer(self.dir))
        self.assertIn("/model/a", str(caught.exception.failures[0][0]))

    def test_pickles(self):
        """async_save sends writers to a process, and failures are sent back."""
        writer = pickle.loads(pickle.dumps(Writer(self.dir, step=4, keep=3)))
        dcp.save({"x": torch.ones(1)}, storage_writer=writer)
        self.assertEqual(libdcp.steps(self.dir), [4])
        error = pickle.loads(pickle.dumps(libdcp.Error("no", status=libdcp.Status.IO, rank=3, ranks=(3, 4), offset=5)))
        self.assertEqual((str(error), error.status, error.rank, error.ranks, error.offset),
                         ("no", libdcp.Status.IO, 3, (3, 4), 5))


if __name__ == "__main__":
    unittest.main()
