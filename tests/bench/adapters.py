#!/usr/bin/env python3
"""Measures libdcp's adapters of training frameworks against the frameworks' own checkpoints, in one program, in turns.

  adapters.py DIR [--frameworks NAME,...] [--ranks 1,4] [--rounds N] [--words N]
              [--layers L --hidden H --vocab V | --config FILE]

Trains a Llama, or the model of a config.json, with AdamW on CPUs: in one process, and under FSDP2 on several. After an
update, its state is saved by the framework and then durable by fsync; after another one it is saved by libdcp, once in
the call, once in the background. Loads are cold. Prints the medians in seconds, and the framework's divided by
libdcp's: of a durable save, of a load, and of the time for which the training stops for a save (the framework's with
its fsync, as libdcp's is durable). The last row compares an update alone with one beside libdcp's save. A save beside
an update takes the same time from it whatever the length of the sequence (--words)."""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "peers"), str(HERE.parent / "python")]
SHARDED = "SHARDED_STATE_DICT"  # each rank writes its part, by torch.distributed.checkpoint


def make_model(args):
    from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, set_seed
    set_seed(1)
    if args.config:
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.config))
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=args.vocab, hidden_size=args.hidden, intermediate_size=3 * args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=8, num_key_value_heads=8, tie_word_embeddings=False))


def make_samples(args):
    import torch
    return [{"input_ids": words, "labels": words} for words in torch.randint(args.vocab, (4096, args.words))]


class Accelerate:
    """accelerate's save_state and load_state."""

    def __init__(self, args, folder):
        import accelerate
        import torch

        import libdcp.accelerate
        from accelerate_ranks import force_fsdp
        plugin = force_fsdp(state_dict_type=SHARDED) if args.world > 1 else None
        self.accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
        model = make_model(args)
        samples = torch.utils.data.DataLoader(make_samples(args), 1)
        self.model, self.optimizer, loader = self.accelerator.prepare(model, torch.optim.AdamW(model.parameters()), samples)
        self.samples = iter(loader)
        self.own = self.accelerator.save_state, self.accelerator.load_state
        libdcp.accelerate.register(self.accelerator, folder)
        self.steps = self.accelerator.save_state.__self__._steps

    def train(self, measure):
        measure(self)
        self.accelerator.end_training()

    def update(self):
        self.accelerator.backward(self.model(**next(self.samples)).loss)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def save_own(self, folder):
        self.own[0](folder)

    def load_own(self, folder):
        self.own[1](folder)

    def save(self):
        self.accelerator.save_state()

    def load(self):
        self.accelerator.load_state()


class Transformers:
    """Saves and resumes of the Trainer of transformers."""

    def __init__(self, args, folder):
        import transformers

        import libdcp.transformers
        from transformers_ranks import force_fsdp
        given = transformers.TrainingArguments(
            output_dir=f"{folder}-own", use_cpu=True, report_to="none", disable_tqdm=True, save_strategy="no",
            per_device_train_batch_size=1, max_steps=1 << 20, logging_strategy="no", fsdp=True if args.world > 1 else None,
            fsdp_config={"state_dict_type": SHARDED} if args.world > 1 else None)
        if args.world > 1:
            force_fsdp(given)
        self.callback = libdcp.transformers.CheckpointCallback(folder)
        self.steps = self.callback._steps
        self.trainer = transformers.Trainer(make_model(args), given, train_dataset=make_samples(args), callbacks=[self.callback])
        self.folder = folder

    def train(self, measure):
        """The measurements are made within train(), as its saves are: after the first update, whose step ends it."""
        import transformers
        outer = self

        class Measure(transformers.TrainerCallback):
            def on_step_end(self, args, state, control, model, train_dataloader, **kwargs):
                outer.samples, outer.model = iter(train_dataloader), outer.trainer.model_wrapped
                measure(outer)
                control.should_training_stop = True
        self.trainer.add_callback(Measure())
        self.trainer.train()

    def update(self):
        trainer = self.trainer
        trainer.training_step(self.model, next(self.samples))
        trainer.optimizer.step()
        trainer.lr_scheduler.step()
        self.model.zero_grad()
        trainer.state.global_step += 1

    @contextlib.contextmanager
    def alone(self):
        self.trainer.remove_callback(self.callback)
        yield
        self.trainer.add_callback(self.callback)

    def save_own(self, folder):
        self.trainer.args.output_dir = folder
        with self.alone():
            self.trainer._save_checkpoint(self.model, None)

    def load_own(self, folder):
        own = f"{folder}/checkpoint-{self.trainer.state.global_step}"
        with self.alone():
            self.trainer._load_from_checkpoint(own, self.model)
            self.trainer._load_optimizer_and_scheduler(own)

    def save(self):
        self.trainer._save_checkpoint(self.model, None)

    def load(self):
        from libdcp.transformers import _prepare, _Resumed
        store = self.steps.store()
        self.callback._resumed = _Resumed(store.newest())
        _prepare(store, self.callback._resumed)
        self.trainer._load_optimizer_and_scheduler("")
        self.callback._resumed = None


class Lightning:
    """Saves and loads of Lightning's Fabric."""

    def __init__(self, args, folder):
        import torch
        from lightning import fabric

        import libdcp.lightning
        self.steps = libdcp.lightning.CheckpointIO()
        strategy = fabric.strategies.ModelParallelStrategy(self.shard, args.world, 1) if args.world > 1 else "auto"
        self.fabric = fabric.Fabric(accelerator="cpu", devices=args.world, strategy=strategy, plugins=[self.steps])
        self.fabric.launch()
        model = make_model(args)
        self.model = self.fabric.setup(model)
        self.optimizer = self.fabric.setup_optimizers(torch.optim.AdamW(self.model.parameters()))
        self.samples = iter(self.fabric.setup_dataloaders(torch.utils.data.DataLoader(make_samples(args), 1)))
        self.path = f"{folder}/last.ckpt"
        self.number = 0

    @staticmethod
    def shard(model, mesh):
        from torch.distributed.fsdp import fully_shard
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh["data_parallel"])
        return fully_shard(model, mesh=mesh["data_parallel"])

    def train(self, measure):
        measure(self)

    def update(self):
        self.fabric.backward(self.model(**next(self.samples)).loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.number += 1

    def state(self):
        return {"model": self.model, "optimizer": self.optimizer, "step": self.number}

    def own(self, method, folder):
        """Calls the strategy's own method, which libdcp's plugin has replaced, with Lightning's plugin."""
        from lightning.fabric.plugins.io import TorchCheckpointIO
        from lightning.fabric.wrappers import _unwrap_objects
        strategy = self.fabric.strategy
        if self.fabric.world_size == 1:  # otherwise the strategy uses torch.distributed.checkpoint without a plugin
            strategy.checkpoint_io = TorchCheckpointIO()
        getattr(type(strategy), method)(strategy, f"{folder}/own.ckpt", _unwrap_objects(self.state()))
        if self.fabric.world_size == 1:
            strategy.checkpoint_io = self.steps

    def save_own(self, folder):
        self.own("save_checkpoint", folder)

    def load_own(self, folder):
        self.own("load_checkpoint", folder)

    def save(self):
        self.fabric.save(self.path, self.state())

    def load(self):
        self.fabric.load(self.path, self.state())


FRAMEWORKS = {"accelerate": Accelerate, "transformers": Transformers, "lightning": Lightning}


def measure(args, framework):
    """Prints the seconds of each call on rank 0, as JSON."""
    import torch.distributed as dist
    import work
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    own = Path(args.dir, "own")

    def barrier():
        if world > 1:
            dist.barrier()

    def timed(what, call, then=lambda: None):
        barrier()
        start = time.perf_counter()
        call()
        stall = time.perf_counter() - start
        then()
        barrier()
        if rank == 0:
            print(json.dumps({"what": what, "s": time.perf_counter() - start, "stall_s": stall}), flush=True)

    def durable():
        barrier()
        work.make_durable(own, rank, world)

    def cold(folder):
        barrier()
        if rank == 0:
            work.make_cold(folder)
    for i in range(args.rounds + 1):
        if rank == 0:
            shutil.rmtree(own, ignore_errors=True)
            os.sync()
        framework.update()
        timed("save own", lambda: framework.save_own(str(own)), durable)
        cold(own)
        timed("load own", lambda: framework.load_own(str(own)))
        framework.update()
        framework.steps._save_async = False
        timed("save", framework.save)
        timed("update", framework.update)
        framework.steps._save_async = True
        timed("async", framework.save)
        timed("update beside", framework.update)
        framework.steps.wait()
        cold(Path(args.dir, "steps"))
        timed("load", framework.load)
        if i == 0 and rank == 0:
            print(json.dumps({"what": "warm"}), flush=True)


def rows_of(args, name, world):
    command = [str(HERE / "adapters.py"), args.dir, "--child", name, "--world", world, "--rounds", args.rounds, "--layers",
               args.layers, "--hidden", args.hidden, "--vocab", args.vocab, "--config", args.config, "--words", args.words]
    if world > 1:
        command = ["-m", "torch.distributed.run", "--nproc-per-node", world, *command]
    done = subprocess.run([sys.executable, "-W", "ignore", *map(str, command)], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{name} on {world}:\n{done.stdout}{done.stderr}")
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"what"')]
    return rows[[row["what"] for row in rows].index("warm") + 1:]  # the first round warms up


def show(name, world, rows):
    def median(what, part="s"):
        return statistics.median(row[part] for row in rows if row["what"] == what)
    found = {"save": (median("save own"), median("save")), "load": (median("load own"), median("load")),
             "stall": (median("save own"), median("async", "stall_s")), "stall without fsync":
             (median("save own", "stall_s"), median("async", "stall_s"))}
    alone, beside = median("update"), median("update beside")
    for what, (own, ours) in found.items():
        print(f"{name:14} {world} ranks  {what:20} own {own:7.3f} s  libdcp {ours:7.3f} s  ratio {own / ours:6.2f}", flush=True)
    print(f"{name:14} {world} ranks  {'an update':20} alone {alone:5.3f} s  beside {beside:7.3f} s  ratio {alone / beside:6.2f}",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--ranks", default="1,4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--vocab", type=int, default=8192)
    parser.add_argument("--config", default="", help="a model's config.json")
    parser.add_argument("--words", type=int, default=64, help="of a sequence")
    parser.add_argument("--child", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        import torch
        torch.set_num_threads(1)
        FRAMEWORKS[args.child](args, f"{args.dir}/steps").train(lambda framework: measure(args, framework))
        return
    for name in args.frameworks.split(","):
        for world in map(int, args.ranks.split(",")):
            with tempfile.TemporaryDirectory(dir=args.dir, prefix="adapters-") as scratch:
                show(name, world, rows_of(argparse.Namespace(**{**vars(args), "dir": scratch}), name, world))


if __name__ == "__main__":
    main()
