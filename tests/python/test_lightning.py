"""Lightning's Trainer and Fabric with checkpoints of libdcp: killed and continued on several ranks (lightning_ranks.py), and
what they do in one process."""

import contextlib
import importlib.util
import os
import pathlib
import resource
import shutil
import tempfile
import unittest
import warnings

import libdcp
from training_losses import read_losses

NEEDED = ("torch", "lightning")
ROUNDING = 1e-5
HAS_ALL = all(map(importlib.util.find_spec, NEEDED))
if HAS_ALL:
    import torch
    from lightning import fabric, pytorch

    import lightning_ranks
    from lightning_ranks import EVERY, Batches, Model, make_trainer

    lightning_ranks.quiet()


def plain(value):
    """With tensors as what can be compared."""
    if isinstance(value, torch.Tensor):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return type(value)(map(plain, value)) if type(value) in (list, tuple) else value


@unittest.skipUnless(HAS_ALL, f"needs {' and '.join(NEEDED)}")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-lightning-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def ranks(self, ranks, name, *, program="train", fails=False, **options):
        codes, said = lightning_ranks.run(ranks, self.dir, name, options, program)
        self.assertEqual(any(codes), fails, said)
        return said if program != "train" else self.losses(name)

    def losses(self, name):
        return read_losses(self.dir / f"{name}.losses")

    def alone(self, name, **options):
        return lightning_ranks.train(self.dir, name, options)

    def trainer(self, name="run", **options):
        return make_trainer(self.dir / name, **options)

    def names(self, name="run"):
        return sorted(os.listdir(self.dir / name))

    def check_killed(self, strategy, other, ranks):
        """Killed on two ranks; continued on two, with equal losses, and with another strategy on another number."""
        name = strategy
        wanted = self.ranks(2, "whole", strategy=strategy, test=True)
        self.ranks(2, name, strategy=strategy, kill_at=11, fails=True, io={"save_async": True})
        self.assertEqual(self.names(name), ["epoch=0-step=4.ckpt", "epoch=1-step=8.ckpt", "last.ckpt"])
        shutil.copytree(self.dir / name, self.dir / "other", symlinks=True)
        found = self.ranks(2, name, strategy=strategy, resume=True, io={"save_async": True})
        self.assertEqual(sorted(found), list(range(1, 21)))
        for step, losses in found.items():
            self.assertEqual(set(losses), set(wanted[step]), step)
            self.assertEqual(len(losses), 2 if step in (9, 10) else 1, step)
        with libdcp.Checkpoint(self.dir / "whole" / "last.ckpt") as one, libdcp.Checkpoint(
                self.dir / name / "last.ckpt") as two:
            self.assertEqual(one.proof(), two.proof())
            self.assertIn("/optimizer/exp_avg/layers.0.weight", one)
            self.assertEqual(one.json["step"], 20)
        found = self.ranks(ranks, "other", resume=True, **({"strategy": other} if other else {}))
        self.assertEqual(sorted(found), list(range(9, 21)))
        for step, losses in found.items():
            self.assertAlmostEqual(losses[-1], wanted[step][0], delta=ROUNDING, msg=step)

    def test_killed_under_ddp(self):
        self.check_killed("ddp", "parallel", 4)

    def test_killed_under_model_parallel(self):
        self.check_killed("parallel", "fsdp", 4)

    def test_killed_under_fsdp(self):
        self.check_killed("fsdp", None, 1)

    def test_killed_in_a_save(self):
        """There is no checkpoint of that name, and "last" is the older one."""
        self.alone("whole")
        for save_async in True, False:
            name = f"run-{save_async}"
            self.ranks(1, name, kill_in_save=8, io={"save_async": save_async}, fails=True)
            self.assertEqual(self.names(name), [".epoch=1-step=8.ckpt.new", "epoch=0-step=4.ckpt", "last.ckpt"])
            self.ranks(1, name, resume=True, io={"save_async": save_async})
            self.assertEqual(self.names(name), self.names("whole"))
            for step, losses in self.losses(name).items():
                self.assertEqual(losses, self.losses("whole")[step] * (2 if 4 < step <= 8 else 1))

    def test_a_step(self):
        """All that it has; LightningModule.load_from_checkpoint, and what JSON cannot represent, in one warning."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer = self.alone("run")
        told = [str(found.message) for found in caught if "libdcp" in str(found.message)]
        self.assertEqual(len(told), 1, told)
        self.assertIn("hyper_parameters.activation.", told[0])
        path = self.dir / "run" / "last.ckpt"
        self.assertEqual(libdcp.steps(path), [20])
        state = libdcp.read(path)
        self.assertEqual(sorted(state), ["lightning", "model", "optimizer"])
        self.assertEqual(state["lightning"]["hyper_parameters"], {"width": 16, "options": {}})
        self.assertEqual(state["lightning"]["lr_schedulers"][0]["last_epoch"], 5)
        given = trainer._checkpoint_connector.dump_checkpoint()
        io = libdcp.lightning.CheckpointIO()
        with self.assertWarnsRegex(UserWarning, "cannot represent it: hyper_parameters.activation. "):
            io.save_checkpoint(given, self.dir / "again.ckpt")
        loaded = io.load_checkpoint(self.dir / "again.ckpt")
        del given["hyper_parameters"]["activation"]
        self.assertEqual(loaded.pop("optimizer_states")[0]["param_groups"][0]["lr"], 0.01 * 0.8 ** 5)
        self.assertEqual(len(given.pop("optimizer_states")), 1)
        self.assertEqual(plain(loaded), plain(given))
        model = Model.load_from_checkpoint(path, map_location="cpu", width=5)
        self.assertEqual((model.hparams.width, model.hparams.activation), (5, torch.nn.ReLU))
        for name, value in trainer.lightning_module.state_dict().items():
            self.assertTrue(torch.equal(model.state_dict()[name], value), name)
        for where in "meta", torch.device("meta"), {"cpu": "meta"}, lambda storage, place: torch.empty(0, device="meta"):
            self.assertTrue(io.load_checkpoint(path, where)["state_dict"]["layers.0.weight"].is_meta)
        trainer.save_checkpoint(self.dir / "weights.ckpt", weights_only=True)
        self.assertEqual(sorted(libdcp.read(self.dir / "weights.ckpt")), ["lightning", "model"])
        self.assertNotIn("optimizer_states", io.load_checkpoint(self.dir / "weights.ckpt"))
        kept = io.load_checkpoint(path, lambda storage, place: None)["state_dict"]
        self.assertEqual(kept["layers.0.weight"].device.type, "cpu")

    def test_retention(self):
        """save_top_k with a monitor, "best", links, removals beside a save, and a second run in the same folder."""
        trainer = self.alone("run")
        wanted = ["epoch=3-step=16.ckpt", "epoch=4-step=20.ckpt", "last.ckpt"]
        self.assertEqual(self.names(), wanted)
        self.alone("beside", io={"save_async": True})
        self.assertEqual(self.names("beside"), wanted)
        best = trainer.checkpoint_callback.best_model_path
        self.assertEqual(os.path.dirname(best), str(self.dir / "run"))
        trainer.test(trainer.lightning_module, torch.utils.data.DataLoader(lightning_ranks.INPUTS), "best", verbose=False)
        links = self.trainer("links", save_last="link", epochs=2)
        links.fit(Model(), Batches(1))
        self.assertEqual(os.readlink(self.dir / "links" / "last.ckpt"), "epoch=1-step=8.ckpt")
        links = self.trainer("links", epochs=3, io={"save_async": True}, save_top_k=1)
        links.fit(Model(), Batches(1), ckpt_path="last")
        self.assertFalse((self.dir / "links" / "last.ckpt").is_symlink())
        self.assertEqual(libdcp.steps(self.dir / "links" / "last.ckpt"), [12])
        again = self.trainer(epochs=1, enable_version_counter=False)
        again.fit(Model(), Batches(1))
        self.assertEqual(self.names(), ["epoch=0-step=4.ckpt", *wanted])
        self.assertEqual(libdcp.steps(self.dir / "run" / "last.ckpt"), [4])

    def test_from_lightnings_own(self):
        """A run of Lightning's own files continues with libdcp, in the same folder."""
        whole = self.alone("whole")
        trainer = self.trainer(epochs=2)
        trainer.strategy.checkpoint_io = fabric.plugins.io.TorchCheckpointIO()
        torch.manual_seed(3)
        del trainer.strategy.save_checkpoint
        trainer.fit(Model(), Batches(1))
        self.assertTrue((self.dir / "run" / "last.ckpt").is_file())
        trainer = self.trainer()
        trainer.fit(Model(), Batches(1), ckpt_path="last", weights_only=False)
        self.assertEqual(libdcp.steps(self.dir / "run" / "last.ckpt"), [20])
        self.assertEqual(trainer.callback_metrics["loss"], whole.callback_metrics["loss"])
        self.assertEqual(self.names(), ["epoch=3-step=16.ckpt", "epoch=4-step=20.ckpt", "last.ckpt"])

    def test_unfinished(self):
        """What a killed save has left is removed by the next one; what another program is writing is not."""
        io = libdcp.lightning.CheckpointIO()
        for name in ".a.ckpt.new", ".b.ckpt.new":
            libdcp.save(self.dir / name, 1, {"model": {"a": torch.ones(1)}})
        with libdcp.Store(self.dir / ".b.ckpt.new"):
            io.save_checkpoint({"model": {"a": torch.ones(2)}}, self.dir / "c7.ckpt")
        self.assertEqual(sorted(os.listdir(self.dir)), [".b.ckpt.new", "c7.ckpt"])
        self.assertEqual(libdcp.steps(self.dir / "c7.ckpt"), [7])
        io.remove_checkpoint(self.dir / "c7.ckpt")
        io.remove_checkpoint(self.dir / "c7.ckpt")
        self.assertEqual(os.listdir(self.dir), [".b.ckpt.new"])

    def test_killed_between_two_renames(self):
        """Where names cannot be exchanged, a checkpoint is replaced by two renames: the next program finishes that."""
        io = libdcp.lightning.CheckpointIO()
        io.save_checkpoint({"model": {"a": torch.ones(1)}, "global_step": 5}, self.dir / "last.ckpt")
        os.rename(self.dir / "last.ckpt", self.dir / ".last.ckpt.old")
        libdcp.save(self.dir / ".last.ckpt.new", 4, {"model": {"a": torch.ones(1)}})
        io.save_checkpoint({"model": {"a": torch.ones(2)}}, self.dir / "c7.ckpt")
        self.assertEqual(sorted(os.listdir(self.dir)), ["c7.ckpt", "last.ckpt"])
        self.assertEqual(libdcp.steps(self.dir / "last.ckpt"), [4])

    def test_failing_save(self):
        """A save that fails is raised: at once, or, if it was beside the training, by the next call. No folder is left, and
        no checkpoint is removed for it."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for save_async in True, False:
            io = libdcp.lightning.CheckpointIO(save_async=save_async)
            folder = self.dir / str(save_async)
            io.save_checkpoint({"model": {"a": torch.ones(5000)}}, folder / "1.ckpt")
            io.wait()
            expected = self.assertLogs("libdcp") if save_async else contextlib.nullcontext()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
            try:
                with self.assertRaises(libdcp.Error) as raised, expected:
                    io.save_checkpoint({"model": {"a": torch.ones(5000)}}, folder / "2.ckpt")
                    io.remove_checkpoint(folder / "1.ckpt")
                    io.teardown()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            self.assertEqual(raised.exception.status, libdcp.Status.IO)
            self.assertEqual(os.listdir(folder), ["1.ckpt"])

    def test_fabric(self):
        """Alone, saved by two ranks of DDP and loaded by two of FSDP2, and the other way round."""
        for before, after in ("ddp", "parallel"), ("parallel", "ddp"):
            self.ranks(2, f"{before}.ckpt", program="fabric_save", strategy=before)
            self.ranks(2, f"{before}.ckpt", program="fabric_load", strategy=after)
            self.ranks(1, f"{before}.ckpt", program="fabric_load")
            with libdcp.Checkpoint(self.dir / f"{before}.ckpt") as found:
                self.assertEqual(found.json["step"], 3)
                self.assertIn("/optimizer/exp_avg/0.weight", found)
                self.assertEqual(found.json["state"]["lightning"], {"step": 3, "names": ("a", "b")})

    def test_async_plugin(self):
        """Lightning's own plugin for saves in a thread, around this one."""
        trainer = self.trainer(epochs=2)
        trainer.strategy.checkpoint_io = pytorch.plugins.io.AsyncCheckpointIO(libdcp.lightning.CheckpointIO())
        trainer.fit(Model(), Batches(1))
        with libdcp.Checkpoint(self.dir / "run" / "last.ckpt") as found:
            self.assertIn("/optimizer/exp_avg/layers.0.weight", found)
        strategy = pytorch.strategies.ModelParallelStrategy()
        with self.assertRaisesRegex(ValueError, "AsyncCheckpointIO cannot save shards"):
            strategy.checkpoint_io = trainer.strategy.checkpoint_io

    def test_refused(self):
        io, path = libdcp.lightning.CheckpointIO(), self.dir / "1.ckpt"
        with self.assertRaisesRegex(TypeError, "storage_options"):
            io.save_checkpoint({}, path, {"a": 1})
        with self.assertRaisesRegex(ValueError, "reserved"):
            io.save_checkpoint({"lightning": {"a": torch.ones(2)}}, path)
        for step in 1, 2, 3:
            libdcp.save(self.dir / "run", step, {"model": {"a": torch.ones(2)}})
        with self.assertRaisesRegex(IsADirectoryError, "the steps of a run"):
            io.save_checkpoint({}, self.dir / "run")
        with self.assertRaisesRegex(IsADirectoryError, "is a directory with run: "):
            io.save_checkpoint({}, self.dir)
        self.assertEqual(libdcp.steps(self.dir / "run"), [1, 2, 3])
        with self.assertRaisesRegex(ValueError, "URL"):
            io.save_checkpoint({"model": {"a": torch.ones(2)}}, "s3://bucket/1.ckpt")
        with self.assertRaises(libdcp.Error) as raised:
            io.load_checkpoint(path)
        self.assertEqual(raised.exception.status, libdcp.Status.NOT_FOUND)
        kind = type("DeepSpeedStrategy", (pytorch.strategies.DDPStrategy,), {})
        with self.assertRaisesRegex(ValueError, "DeepSpeedStrategy does not save by a CheckpointIO"):
            pytorch.Trainer(strategy=kind(), plugins=[io], accelerator="cpu", logger=False)


if __name__ == "__main__":
    unittest.main()
