"""accelerate's save_state and load_state by libdcp: killed and continued under torchrun (accelerate_ranks.py), and what they
do in one process."""

import contextlib
import importlib.util
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import libdcp

from torchrun import torchrun
from training_losses import read_losses

RANKS = pathlib.Path(__file__).parent / "accelerate_ranks.py"
NEEDED = ("torch", "accelerate")
ROUNDING = 1e-4


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {' and '.join(NEEDED)}")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-accelerate-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def ranks(self, ranks, name, *, fails=False, **options):
        done = torchrun(ranks, RANKS, self.dir, name, json.dumps(options))
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return self.losses(name)

    def losses(self, name):
        return read_losses(self.dir / f"{name}.losses")

    def training(self, name, **options):
        import accelerate
        import accelerate_ranks
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        return accelerate_ranks.Training(self.dir, name, options)

    def alone(self, name, resume=False, **options):
        training = self.training(name, **options)
        if resume:
            training.resume()
        training.run()
        training.accelerator.end_training()
        return training

    def test_killed_under_fsdp(self):
        """With dropout, so also the generators of each rank continue: the losses are equal to the last bit."""
        wanted = self.ranks(2, "whole", fsdp=True)
        self.ranks(2, "killed", fsdp=True, kill_at=11, fails=True, register={"save_async": True})
        first = libdcp.steps(self.dir / "killed")[-1]
        self.assertIn(first, (4, 8))
        found = self.ranks(2, "killed", fsdp=True, resume=True, seed=7, register={"save_async": True})
        self.assertEqual(sorted(found), list(range(1, 21)))
        for step, losses in found.items():
            self.assertEqual(set(losses), set(wanted[step]), step)
            self.assertEqual(len(losses), 2 if first < step <= 10 else 1, step)
        with libdcp.Checkpoint(self.dir / "whole") as one, libdcp.Checkpoint(self.dir / "killed") as other:
            self.assertEqual(one.proof(), other.proof())
            self.assertEqual(one.json, other.json)

    def test_another_number_of_ranks(self):
        """From FSDP on two ranks to DDP on four, and to one process: the same samples, so the losses are equal up to
        rounding."""
        self.alone("whole", dropout=0)
        wanted = self.losses("whole")
        self.ranks(2, "killed", fsdp=True, dropout=0, kill_at=11, fails=True)
        self.assertEqual(libdcp.steps(self.dir / "killed"), [4, 8])
        shutil.copytree(self.dir / "killed", self.dir / "one", symlinks=True)
        self.ranks(4, "killed", dropout=0, resume=True, seed=7)
        self.alone("one", resume=True, dropout=0, seed=8)
        for name in "killed", "one":
            for step, losses in self.losses(name).items():
                for loss in losses:
                    self.assertAlmostEqual(loss, wanted[step][0], delta=ROUNDING, msg=f"{name}, step {step}")
        self.assertEqual(sorted(self.losses("one")), list(range(9, 21)))

    def test_alone(self):
        """All parts of a step; equal losses after going back into an epoch, and to its end."""
        training = self.alone("run")
        self.assertEqual(libdcp.steps(self.dir / "run"), [4, 8, 12, 16, 20])
        state = libdcp.read(self.dir / "run")
        self.assertEqual(state["scheduler"]["last_epoch"], 20)
        self.assertEqual(state["dataloader"], {"epoch": {"epoch": 1, "seed": 3, "generator": None}})
        self.assertEqual(state["accelerator"], {"step": 0, "custom_checkpoints": 1})
        self.assertEqual(state["custom_checkpoint_0"]["sum"], training.kept.sum)
        self.assertEqual(state["custom_checkpoint_0"]["largest"].tolist(), training.kept.largest.tolist())
        wanted = self.losses("run")
        for step in 12, 4:
            again = self.training("run", seed=step)
            again.resume(self.dir / "run" / f"step-{step:08}")
            again.run()
            self.assertEqual(again.kept.sum, training.kept.sum)
            again.accelerator.end_training()
        for step, losses in self.losses("run").items():
            self.assertEqual(losses, wanted[step] * (1 + (step > 4) + (step > 12)))

    def test_list_of_stores(self):
        """As a list and as a store of one; a training continues from the slower store if the faster one is lost."""
        for name in "list", "store":
            fast, slow = self.dir / name / "fast", self.dir / name / "slow"
            tiers = [libdcp.Tier(fast, keep=1), libdcp.Tier(slow, every=8)]
            for is_resumed in False, True:
                training = self.training(name, seed=3 + 4 * is_resumed)
                with contextlib.ExitStack() as closing:
                    given = tiers if name == "list" else closing.enter_context(libdcp.Store(tiers))
                    libdcp.accelerate.register(training.accelerator, given, save_async=True)
                    if is_resumed:
                        training.resume()
                        self.assertEqual(training.done, 16)
                    training.run()
                    while 16 not in libdcp.steps(slow):  # until then, step 16 stays in the faster store, too
                        time.sleep(0.01)
                    self.assertEqual(training.accelerator.save_state(), "step-00000021")
                    training.accelerator.load_state("step-00000021")
                    training.accelerator.end_training()
                self.assertEqual((libdcp.steps(fast), libdcp.steps(slow)), ([21], [8, 16]))
                shutil.rmtree(fast)
            for step, losses in self.losses(name).items():
                self.assertEqual(losses, losses[:1] * (1 + (step > 16)), step)

    def test_plain_sampler(self):
        """A sampler with its own generator continues after an epoch."""
        for name, steps in ("whole", 24), ("run", 12):
            training = self.training(name, seedable=False, seed=3)
            training.run(steps=steps)
            training.accelerator.end_training()
        training = self.training("run", seedable=False, seed=7)
        training.resume()
        training.run(steps=24)
        training.accelerator.end_training()
        self.assertEqual(self.losses("run"), self.losses("whole"))

    def test_stateful_loader(self):
        """Its state continues within an epoch, and after one; without dropout, since torchdata's loader may draw another
        number from the generator then."""
        self.alone("whole", stateful=True, dropout=0)
        for steps in 12, 16:
            training = self.training(f"run-{steps}", stateful=True, dropout=0)
            training.run(steps=steps)
            training.accelerator.end_training()
            self.alone(f"run-{steps}", resume=True, stateful=True, dropout=0, seed=7)
            self.assertEqual(self.losses(f"run-{steps}"), self.losses("whole"))

    def test_stateful_loader_on_other_ranks(self):
        """Within an epoch, from two ranks to four, and to one process: the same samples."""
        self.alone("whole", stateful=True, dropout=0)
        wanted = self.losses("whole")
        self.ranks(2, "run", stateful=True, dropout=0, kill_at=7, fails=True)
        self.ranks(4, "run", stateful=True, dropout=0, resume=True, seed=7, kill_at=11, fails=True)
        self.alone("run", resume=True, stateful=True, dropout=0, seed=8)
        for step, losses in self.losses("run").items():
            for loss in losses:
                self.assertAlmostEqual(loss, wanted[step][0], delta=ROUNDING, msg=f"step {step}")
        self.assertEqual(sorted(self.losses("run")), list(range(1, 21)))

    def test_project(self):
        """Automatic names and the limit; the scaler; names that are no steps; an accelerator's own folders."""
        import torch
        project = {"automatic_checkpoint_naming": True, "total_limit": 2, "project_dir": str(self.dir / "project")}
        training = self.training("run", project=project)
        accelerator = training.accelerator
        accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        self.assertEqual(accelerator.save_state(), str(self.dir / "run" / "step-00000000"))
        training.run(steps=8)
        self.assertEqual(libdcp.steps(self.dir / "run"), [1, 2])
        accelerator.register_for_checkpointing(training.schedule)
        accelerator.step, kept = 5, training.kept.sum
        accelerator.save_state()
        accelerator.end_training()
        self.assertFalse((self.dir / "project").exists())
        training = self.training("run", project=project, seed=7)
        accelerator = training.accelerator
        accelerator.scaler = torch.amp.GradScaler("cpu")
        with self.assertRaisesRegex(libdcp.Error, "2 objects of register_for_checkpointing, and 1 are"):
            accelerator.load_state()
        accelerator.register_for_checkpointing(training.schedule)
        accelerator.load_state()
        self.assertEqual((accelerator.scaler.get_scale(), accelerator.step, training.kept.sum), (8, 5, kept))
        self.assertEqual(accelerator.save_iteration, 4)
        with self.assertRaisesRegex(libdcp.Error, "custom_checkpoint_1"):
            accelerator.load_state("anywhere/checkpoint_2")
        with self.assertRaisesRegex(ValueError, "have numbers"):
            accelerator.load_state("best")
        accelerator.register_for_checkpointing(training.kept)
        with self.assertRaisesRegex(libdcp.Error, "custom_checkpoint_2"):
            accelerator.load_state()
        accelerator.end_training()

    def test_from_accelerates_own(self):
        """A run of accelerate's own folders continues with libdcp."""
        training = self.training("run")
        type(training.accelerator).save_state(training.accelerator, self.dir / "own")
        kept = {name: value.clone() for name, value in training.model.state_dict().items()}
        training.accelerator.end_training()
        training = self.training("run", seed=7)
        training.accelerator.load_state(self.dir / "own")
        for name, value in training.model.state_dict().items():
            self.assertTrue(bool((value == kept[name]).all()), name)
        training.accelerator.save_state()
        training.accelerator.end_training()
        self.assertEqual(libdcp.steps(self.dir / "run"), [0])

    def test_failing_save(self):
        """A save that fails is raised: at once, or, if it was beside the training, by the next call."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        for save_async in True, False:
            name = f"full-{save_async}"
            training = self.training(name, register={"save_async": save_async})
            training.run(steps=4)
            training.accelerator.load_state()
            expected = self.assertLogs("libdcp") if save_async else contextlib.nullcontext()
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 12, hard))
            try:
                with self.assertRaises(libdcp.Error) as raised, expected:
                    training.accelerator.save_state("update_8")
                    training.accelerator.end_training()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            self.assertEqual(raised.exception.status, libdcp.Status.IO)
            self.assertEqual(libdcp.steps(self.dir / name), [4])
            training.accelerator.end_training()

    def test_after_a_failed_save(self):
        """A save that fails leaves a gap in the numbers. A number is used once, for the state of its own call, even if
        this call raises an earlier save's failure, which is raised once."""
        project = {"automatic_checkpoint_naming": True, "total_limit": 3, "project_dir": str(self.dir / "project")}
        failing = []

        def progress(done, total):
            if failing:
                raise OSError(failing.pop())
        for save_async in True, False:
            folder = self.dir / f"gap-{save_async}"
            options = {"save_async": save_async, "progress": progress}
            training = self.training(folder.name, project=project, register=options)
            accelerator = training.accelerator

            def save(number):
                training.kept.sum = number
                self.assertEqual(accelerator.save_state(), str(folder / f"step-{number:08}"))
            with self.assertLogs("libdcp") if save_async else contextlib.nullcontext():
                save(0)
                accelerator.load_state()  # waits for the save
                failing.append("disk full")
                for number in 1, 2:
                    with self.assertRaisesRegex(OSError, "disk full") if number == 1 + save_async else (
                            contextlib.nullcontext()):
                        save(number)
                save(3)
                accelerator.end_training()
            self.assertEqual(libdcp.steps(folder), [0, 2, 3])
            for step in libdcp.steps(folder):
                self.assertEqual(libdcp.read(folder / f"step-{step:08}")["custom_checkpoint_0"]["sum"], step)
            accelerator.load_state()
            self.assertEqual(training.kept.sum, 3)
            save(4)
            accelerator.load_state()
            failing.append("disk full")
            with self.assertLogs("libdcp") if save_async else contextlib.nullcontext():
                with self.assertRaisesRegex(OSError, "disk full"):
                    save(5)
                    save(6)
            accelerator.end_training()
            self.assertEqual(libdcp.steps(folder), [3, 4, 6] if save_async else [2, 3, 4])

    def test_refused(self):
        """Hooks that would write files, and options of files."""
        accelerator = self.training("run").accelerator
        with self.assertRaisesRegex(TypeError, "exclude_frozen_parameters"):
            accelerator.save_state(exclude_frozen_parameters=True)
        accelerator.register_save_state_pre_hook(lambda models, weights, folder: None)
        with self.assertRaisesRegex(ValueError, "hooks"):
            accelerator.save_state()


if __name__ == "__main__":
    unittest.main()
