"""The Trainer of transformers with checkpoints by libdcp: killed and continued under torchrun (transformers_ranks.py), and
what it does with steps in one process."""

import importlib.util
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

import libdcp
import libdcp.hf

from torchrun import torchrun
from training_losses import read_losses

HERE = pathlib.Path(__file__).parent
RANKS = HERE / "transformers_ranks.py"
NEEDED = ("torch", "transformers", "accelerate")
ROUNDING = 1e-3


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-transformers-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def ranks(self, ranks, name, *, fails=False, **options):
        """Trains under torchrun; returns the losses by step, those of a step that was repeated in a list."""
        done = torchrun(ranks, RANKS, self.dir, name, json.dumps(options))
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return self.losses(name)

    def losses(self, name):
        return read_losses(self.dir / f"{name}.losses")

    def trainer(self, name, **options):
        import transformers_ranks
        return transformers_ranks.make(self.dir, name, options)

    def alone(self, name, resume=None, **options):
        trainer = self.trainer(name, **options)
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    def no_folders(self, name):
        self.assertEqual(list((self.dir / f"{name}-output").glob("checkpoint-*")), [])

    def test_killed_under_fsdp(self):
        """With dropout, so also the generators of each rank continue: the losses are equal to the last bit."""
        wanted = self.ranks(2, "whole", fsdp=True)
        self.ranks(2, "killed", fsdp=True, kill_at=11, fails=True)
        first = libdcp.steps(self.dir / "killed")[-1]
        self.assertIn(first, (4, 8))
        found = self.ranks(2, "killed", fsdp=True, resume=True, seed=7)
        self.assertEqual(sorted(found), list(range(1, 21)))
        for step, losses in found.items():
            self.assertEqual(set(losses), set(wanted[step]), step)
            self.assertEqual(len(losses), 2 if first < step <= 10 else 1, step)
        self.no_folders("killed")
        with libdcp.Checkpoint(self.dir / "whole") as one, libdcp.Checkpoint(self.dir / "killed") as other:
            self.assertEqual(one.diff(other), {})
            self.assertEqual(one.shape("/rng/torch")[0], 2)

    def test_another_number_of_ranks(self):
        """From FSDP on two ranks to DDP on four, and to one process: the same samples, so the losses are equal up to
        rounding."""
        self.alone("whole", dropout=0)
        wanted = self.losses("whole")
        self.ranks(2, "killed", fsdp=True, dropout=0, kill_at=11, fails=True)
        first = libdcp.steps(self.dir / "killed")[-1]
        shutil.copytree(self.dir / "killed", self.dir / "one", symlinks=True)
        self.ranks(4, "killed", dropout=0, resume=True, seed=7)
        self.alone("one", resume=True, dropout=0, seed=8)
        for name in "killed", "one":
            found = self.losses(name)
            self.assertEqual(max(found), 20)
            self.assertEqual(min(self.losses("one")), first + 1)
            for step, losses in found.items():
                for loss in losses:
                    self.assertAlmostEqual(loss, wanted[step][0], delta=ROUNDING, msg=f"{name}, step {step}")

    def test_alone(self):
        """Every part of a step, the limit, and callbacks' state; equal losses after going back."""
        trainer = self.alone("run", args={"save_total_limit": 2})
        self.assertEqual(libdcp.steps(self.dir / "run"), [16, 20])
        self.no_folders("run")
        with libdcp.Checkpoint(self.dir / "run") as checkpoint:
            self.assertEqual(checkpoint.json["model"]["model_type"], "llama")
            state = checkpoint.json["state"]
            self.assertEqual(state["trainer_state"]["global_step"], 20)
            self.assertEqual(state["trainer_state"]["log_history"], trainer.state.log_history[:-1])
            self.assertEqual(state["scheduler"]["last_epoch"], 20)
            self.assertEqual(state["optimizer"]["param_groups"][0]["lr"], 0)
            self.assertIn("/optimizer/exp_avg/model.norm.weight", checkpoint)
        wanted = self.losses("run")
        again = self.alone("run", resume=str(self.dir / "run" / "step-00000016"), seed=7,
                           args={"save_total_limit": 2, "restore_callback_states_from_checkpoint": True})
        for step, losses in self.losses("run").items():
            self.assertEqual(losses, wanted[step] * (2 if step > 16 else 1))
        self.assertEqual([callback.seen for callback in again.callback_handler.callbacks if hasattr(callback, "seen")], [20])
        with self.assertRaisesRegex(ValueError, "resume_from_checkpoint=True"):
            self.alone("run")

    @unittest.skipUnless(importlib.util.find_spec("peft"), "needs peft")
    def test_lora(self):
        """Adapters of PEFT: a step has the frozen weights as well, so a run that begins with others continues with equal
        losses; only trained parameters have moments."""
        self.alone("run", lora=True)
        wanted = self.losses("run")
        trained = "layers.0.self_attn.q_proj.lora_A.default.weight"
        with libdcp.Checkpoint(self.dir / "run") as step:
            proof, moments = step.proof(), [name for name in step if name.startswith("/optimizer/exp_avg/")]
        self.assertIn(f"/optimizer/exp_avg/base_model.model.model.{trained}", moments)
        self.assertEqual([name for name in moments if "lora_" not in name and "modules_to_save" not in name], [])
        self.alone("run", lora=True, resume=str(self.dir / "run" / "step-00000008"), seed=7)
        for step, losses in self.losses("run").items():
            self.assertEqual(losses, wanted[step] * (2 if step > 8 else 1))
        with libdcp.Checkpoint(self.dir / "run") as step:
            self.assertEqual(step.proof(), proof)

        with self.assertRaisesRegex(libdcp.Error, "is of an adapter of PEFT"):
            libdcp.hf.export(self.dir / "run", self.dir / "exported")

    def test_list_of_stores(self):
        """The faster store is lost, and the run continues from the other one. What needs a step's path is refused."""
        stores = [libdcp.Tier(self.dir / "fast", keep=1), libdcp.Tier(self.dir / "slow", keep=4)]

        def train(name, resume=None, **options):
            with libdcp.Store(stores) as store:
                return self.alone(name, resume, store=store, **options)
        train("list")
        wanted = self.losses("list")
        self.assertEqual((libdcp.steps(self.dir / "fast"), libdcp.steps(self.dir / "slow")[-1]), ([20], 20))
        shutil.rmtree(self.dir / "fast")
        shutil.rmtree(self.dir / "slow" / "step-00000020")
        first = libdcp.steps(self.dir / "slow")[-1]
        train("list", True, seed=7)
        for step, losses in self.losses("list").items():
            self.assertEqual(losses, wanted[step] * (2 if step > first else 1))
        for refused, resume, args in ("metric_for_best_model", True, {"metric_for_best_model": "loss"}), (
                "resume_from_checkpoint=True", str(self.dir / "slow"), {}):
            with self.assertRaisesRegex(ValueError, refused):
                train("refused", resume, args=args)

    def test_best_model(self):
        """The best step stays, whatever the limit, and is loaded at the end."""
        import torch
        args = {"save_total_limit": 2, "load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 4,
                "metric_for_best_model": "loss"}

        def train(losses, resume=None, **more):
            def evaluate(**kwargs):
                metrics = {"eval_loss": losses.pop(0)}
                trainer.control = trainer.callback_handler.on_evaluate(trainer.args, trainer.state, trainer.control, metrics)
                return metrics
            trainer = self.trainer("best", args={**args, **more})
            trainer.evaluate = evaluate
            trainer.train(resume_from_checkpoint=resume)
            return trainer
        trainer = train([3, 1, 2.5, 2.2, 2])
        self.assertEqual(libdcp.steps(self.dir / "best"), [8, 20])
        self.assertEqual(trainer.state.best_model_checkpoint, str(self.dir / "best" / "step-00000008"))
        best = libdcp.read(self.dir / "best" / "step-00000008", only="/model/*")["model"]
        for name, value in trainer.model.state_dict().items():
            self.assertTrue(torch.equal(value, best[name]), name)
        state = libdcp.Checkpoint(self.dir / "best").json["state"]["trainer_state"]
        self.assertEqual((state["best_metric"], state["best_model_checkpoint"]), (1, "step-00000008"))
        train([4], resume=True, max_steps=24)
        self.assertEqual(libdcp.steps(self.dir / "best"), [8, 24])

    def test_best_model_on_ranks(self):
        """What remains beside the best step is rank 0's decision, even if the ranks' listings differ."""
        self.ranks(2, "best", late=True, args={
            "max_steps": 10, "save_steps": 1, "save_total_limit": 2, "eval_strategy": "steps", "eval_steps": 2,
            "metric_for_best_model": "loss", "greater_is_better": True, "ddp_timeout": 20})
        self.assertEqual(libdcp.steps(self.dir / "best"), [2, 10])
        state = libdcp.Checkpoint(self.dir / "best").json["state"]["trainer_state"]
        self.assertEqual(state["best_model_checkpoint"], "step-00000002")

    def test_failing_save(self):
        """A save beside the training that fails ends it; earlier steps remain."""
        import transformers
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

        class Full(transformers.TrainerCallback):
            def on_step_begin(self, args, state, control, **kwargs):
                if state.global_step == 7:
                    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, hard))
        for save_async in True, False:
            name = f"full-{save_async}"
            trainer = self.trainer(name, callback={"save_async": save_async})
            trainer.add_callback(Full())
            try:
                with self.assertRaises(libdcp.Error) as raised, self.assertLogs("libdcp"):
                    trainer.train()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            self.assertEqual(raised.exception.status, libdcp.Status.IO)
            self.assertEqual(libdcp.steps(self.dir / name), [4])

    def test_damaged(self):
        """The newest step is damaged: the one before is resumed, with its own place in the data."""
        self.alone("run")
        wanted = self.losses("run")
        file = self.dir / "run" / "step-00000020" / "state.h5"
        with libdcp.Checkpoint(self.dir / "run") as checkpoint:
            last = checkpoint["/optimizer/exp_avg_sq/model.norm.weight"].tobytes()
        data = file.read_bytes()
        self.assertEqual(data.count(last), 1)
        file.write_bytes(data.replace(last, bytes(len(last))))
        with self.assertLogs("libdcp", "WARNING") as logs:
            self.alone("run", resume=True, seed=7)
        self.assertIn("step 20 is damaged", "".join(logs.output))
        self.assertEqual(self.losses("run"), {step: losses * (2 if step > 16 else 1) for step, losses in wanted.items()})

    def test_from_the_trainers_own(self):
        """A run of the Trainer alone continues with libdcp; a step without the optimizer gives its weights."""
        import transformers

        class Stop(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, **kwargs):
                control.should_training_stop = state.global_step == 8
        trainer = self.trainer("run")
        trainer.pop_callback(libdcp.transformers.CheckpointCallback)
        trainer.add_callback(Stop())
        trainer.train()
        self.assertEqual(transformers.trainer_utils.get_last_checkpoint(trainer.args.output_dir)[-12:], "checkpoint-8")
        self.alone("run", resume=True, seed=7)
        self.alone("whole")
        self.assertEqual(self.losses("run"), self.losses("whole"))
        self.assertEqual(libdcp.steps(self.dir / "run"), [12, 16, 20])
        self.alone("run", resume=trainer.args.output_dir + "/checkpoint-8", seed=7)  # goes back
        self.assertEqual(len(self.losses("run")[20]), 2)
        self.alone("light", resume=str(self.dir / "run" / "step-00000012"), args={"save_only_model": True, "max_steps": 16})
        with libdcp.Checkpoint(self.dir / "light") as checkpoint:
            self.assertTrue(all(name.startswith("/model/") for name in checkpoint))
        with self.assertLogs("libdcp", "WARNING") as logs:
            self.alone("light", resume=True)
        self.assertIn("step 16 has no optimizer", "".join(logs.output))

    def test_import(self):
        """libdcp alone imports no framework, and libdcp.transformers is not transformers."""
        done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


IMPORT = """
import sys
import libdcp
assert not sys.modules.keys() & {"torch", "transformers", "accelerate"}, sys.modules.keys()
import transformers
assert libdcp.transformers.CheckpointCallback.__mro__[1] is transformers.TrainerCallback
assert libdcp.accelerate.register and sys.modules["accelerate"].Accelerator
"""

if __name__ == "__main__":
    unittest.main()
