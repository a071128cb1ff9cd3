"""Runs under torchrun for test_torchtitan.py: titan_ranks.py WHAT SCRATCH FOLDER; it saves to SCRATCH/FOLDER."""

import json
import os
import pathlib
import signal
import sys
import types
from unittest import mock

import torch
import torch.distributed as dist
import torchtitan.tools.utils


class Cpu(types.ModuleType):
    """torch.cpu with the additional functions that torchtitan calls in a device's module. torchtitan uses CUDA if
    it finds no accelerator, so this module and the device's type are set before torchtitan's other modules
    import them."""

    get_device_name = staticmethod(lambda device: "CPU")
    get_device_properties = staticmethod(lambda device: types.SimpleNamespace(total_memory=1 << 30))
    current_device = staticmethod(lambda: 0)
    memory_stats = staticmethod(lambda device: {})
    reset_peak_memory_stats = empty_cache = staticmethod(lambda: None)

    def __getattr__(self, name):
        return getattr(torch.cpu, name)


torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", Cpu("cpu")

from torch.distributed.fsdp import FSDPModule  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402
from torchtitan.components.checkpointer import dcp  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402

import libdcp  # noqa: E402
from libdcp.torchtitan import CheckpointManager  # noqa: E402

STEPS = 8


def make(scratch, stages=1, override=False, seed=1, **checkpoint):
    """Makes a trainer of torchtitan's smallest model."""
    config = llama3_debugmodel()
    for layer in config.model_spec.model.layers:  # flex attention has no backward pass on CPUs
        layer.attention.inner_attention = ScaledDotProductAttention.Config()
    config.training.local_batch_size, config.training.seq_len, config.training.steps = 2, 128, STEPS
    config.training.disable_cuda_graphs = True
    config.training.mixed_precision_param = "float32"
    config.parallelism.pipeline_parallel_degree = stages
    config.parallelism.pipeline_parallel_schedule = "1F1B"
    config.hf_assets_path, config.dump_folder = str(scratch / "assets"), str(scratch)
    config.dataloader.dataset_path = str(scratch / "data")
    config.debug.seed, config.debug.deterministic = seed, True
    settings = {"enable": True, "interval": 2, "last_save_model_only": False, **checkpoint}
    if override:
        config.override.imports = ["libdcp.torchtitan.use_libdcp"]
        for name, value in settings.items():
            setattr(config.checkpoint, name, value)
    else:
        config.checkpoint = CheckpointManager.Config(**settings)
    trainer = config.build()
    assert type(trainer.checkpointer) is CheckpointManager
    for part in trainer.model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)  # gloo cannot scale a sum
    return trainer


def train(scratch, folder):
    """Trains all steps. KILL_AT=N, RAISE_AT=N: the last rank kills itself, or raises, in step N. The steps that
    begin are recorded."""
    trainer = make(scratch, folder=folder, keep_latest_k=2, override=os.environ.get("OVERRIDE") == "1",
                   async_mode=os.environ.get("ASYNC_MODE", "disabled"))
    step = trainer.train_step

    def noted(iterator):
        if dist.get_rank() == dist.get_world_size() - 1:
            with open(scratch / f"{folder}.begun", "a") as begun:
                print(trainer.step, file=begun)
            if trainer.step == int(os.environ.get("KILL_AT", 0)):
                os.kill(os.getpid(), signal.SIGKILL)
            if trainer.step == int(os.environ.get("RAISE_AT", 0)):
                raise RuntimeError("enough")
        step(iterator)
    trainer.train_step = noted
    try:
        trainer.train()
    finally:
        trainer.close()  # as in torchtitan.train


def refused(words, function):
    try:
        function()
    except (ValueError, libdcp.Error) as e:
        assert all(word in str(e) for word in words), e
    else:
        raise AssertionError(f"not refused: {words}")


def refuse_foreign(trainer, scratch):
    """Checkpoints of torchtitan's own manager, in the run's folder and as the initial one, are refused, also if their
    names have as many digits as libdcp's."""
    name = f"foreign-{os.environ['RANK']}-of-{dist.get_world_size()}"
    step, late = scratch / name / "step-10", scratch / f"{name}-late" / "step-10000000"
    for folder in (step, late):
        folder.mkdir(parents=True)
        (folder / ".metadata").touch()
    for settings in ({"folder": name}, {"folder": late.parent.name},
                     {"folder": f"{name}-empty", "initial_load_path": str(step)}):
        config = CheckpointManager.Config(enable=True, load_only=True, **settings)
        manager = CheckpointManager(config, states={}, base_folder=str(scratch), model_parts=trainer.model_parts,
                                    dataloader=None, optimizers=None, lr_schedulers=None, sd_adapter=None)
        refused(["step-10", "libdcp.convert"], manager.load)


def weights_in(folder):
    """All tensors of a Hugging Face folder."""
    from safetensors.torch import load_file
    return {name: value for file in sorted(folder.glob("*.safetensors")) for name, value in load_file(file).items()}


def manager(kind, trainer, scratch, **settings):
    """A manager of the trainer's model alone."""
    return kind(kind.Config(enable=True, **settings), states={}, base_folder=str(scratch), dataloader=None, optimizers=None,
                lr_schedulers=None, model_parts=trainer.model_parts, sd_adapter=trainer.checkpointer._adapter)


def last_save_in_hf(trainer, scratch, folder):
    """The last save as a Hugging Face folder has the tensors that torchtitan's own manager writes, in its files; a
    training begins with it."""
    settings = {"last_save_in_hf": True, "export_dtype": "bfloat16"}
    own = manager(dcp.CheckpointManager, trainer, scratch, folder=f"{folder}-own", **settings)
    ours = manager(CheckpointManager, trainer, scratch, folder=folder, **settings)
    assert own.save(3, last_step=True) and ours.save(3, last_step=True)
    dist.barrier()
    step, wanted = scratch / folder / "step-3", weights_in(scratch / f"{folder}-own" / "step-3")
    found = weights_in(step)
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in found)
    assert [file.name for file in step.iterdir()] == ["model.safetensors"] and os.listdir(scratch / folder) == ["step-3"]
    dist.barrier()
    split = {name: 1 + i % 2 for i, name in enumerate(sorted(wanted))}
    with mock.patch.object(ours._adapter, "fqn_to_index_mapping", split):
        assert ours.save(3, last_step=True)  # replaces the folder
    names = {name: f"model-0000{number}-of-00002.safetensors" for name, number in split.items()}
    assert json.loads((step / "model.safetensors.index.json").read_text())["weight_map"] == names
    assert weights_in(step).keys() == wanted.keys() and not (step / "model.safetensors").exists()
    late = 10_000_000  # from here on, torchtitan's name of a step is that of a step in libdcp
    saver = manager(CheckpointManager, trainer, scratch, folder=folder, last_save_model_only=True)
    assert saver.save(late, last_step=True)
    saver.close()
    assert ours.save(late, last_step=True)
    dist.barrier()
    assert libdcp.steps(scratch / folder) == [late], os.listdir(scratch / folder)
    libdcp.Checkpoint(scratch / folder).close()
    found = weights_in(scratch / folder / f"step-{late}-hf")
    assert found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in found)
    dist.barrier()
    for value in ours.states["model"].state_dict().values():
        value.zero_()
    reader = manager(CheckpointManager, trainer, scratch, folder=f"{folder}-new", initial_load_in_hf=True,
                     initial_load_path=str(step))
    assert reader.load()
    for name, value in ours._adapter.to_hf(reader.states["model"].state_dict()).items():
        whole = value.full_tensor() if isinstance(value, DTensor) else value
        assert torch.equal(whole.bfloat16(), wanted[name]), name
    ours.close()
    reader.close()


def sharded_in_hf(scratch, folder):
    """SOURCE is the folder of the weights."""
    trainer = make(scratch, folder=folder, initial_load_path=str(scratch / os.environ["SOURCE"]))
    assert trainer.checkpointer.load()
    with torch.no_grad():
        last_save_in_hf(trainer, scratch, f"{folder}-last")
    trainer.close()


def other_ranks(scratch, folder):
    """Loads on one rank, or in pipeline stages, what data-parallel ranks have saved: the same weights and moments;
    SOURCE is the folder."""
    source = scratch / os.environ["SOURCE"]
    stages = dist.get_world_size() if dist.is_initialized() else int(os.environ["WORLD_SIZE"])
    trainer = make(scratch, stages=stages, folder=source.name, seed=2)
    refused(["2 ranks", "samples", "exclude_from_loading"], trainer.checkpointer.load)
    trainer.close()
    trainer = make(scratch, stages=stages, folder=source.name, seed=2, load_only=True,
                   exclude_from_loading=["dataloader"])
    assert trainer.checkpointer.load(step=STEPS) and trainer.step == STEPS and trainer.ntokens_seen == 128 * 2 * STEPS
    assert trainer.lr_schedulers.schedulers[0].last_epoch == STEPS
    assert not trainer.checkpointer.save(STEPS, last_step=True)
    # the loaded state, saved to another folder
    states = trainer.checkpointer.states
    writer = CheckpointManager(CheckpointManager.Config(enable=True, folder=folder, last_save_model_only=False),
                               states=states, base_folder=str(scratch), dataloader=None, sd_adapter=None,
                               model_parts=trainer.model_parts, optimizers=trainer.optimizers,
                               lr_schedulers=trainer.lr_schedulers)
    assert not writer.save(STEPS + 1) and writer.save(STEPS, last_step=True)
    writer.close()
    with libdcp.Checkpoint(source) as before, libdcp.Checkpoint(scratch / folder) as after:
        old, new = before.proof().crc, after.proof().crc
        assert {**new, "/dataloader/state": old["/dataloader/state"]} == old, set(old.items()) ^ set(new.items())
        was, is_now = ([{**group, "params": sorted(group["params"])} for group in options["param_groups"]]
                       for options in (before.json["state"]["optimizer"], after.json["state"]["optimizer"]))
        assert was == is_now, (was, is_now)
    refuse_foreign(trainer, scratch)
    # a training that begins with its model
    trainer = make(scratch, stages=stages, folder=f"{folder}-exported", seed=2, initial_load_path=str(source),
                   last_save_model_only=True, export_dtype="bfloat16")
    assert trainer.checkpointer.load() and trainer.step == 0
    assert trainer.checkpointer.save(1, last_step=True)
    with torch.no_grad():
        last_save_in_hf(trainer, scratch, f"{folder}-in-hf")
    trainer.close()
    with libdcp.Checkpoint(source) as before, libdcp.Checkpoint(scratch / f"{folder}-exported") as after:
        assert all(after.dtype(name) == "BF16" and name.startswith("/model/") for name in after), after.entries
        assert {name for name in before if name.startswith("/model/")} == set(after)
        whole = torch.from_numpy(before["/model/norm.weight"]).bfloat16()
        assert (torch.from_numpy(after["/model/norm.weight"].view("int16")).view(torch.bfloat16) == whole).all()


def different_folders(scratch, folder):
    """Loads while ranks see the run's folder differently, as with a cache of a file system: all load the step that
    rank 0 sees, or rank 0's error is raised on all."""
    dist.init_process_group("gloo")
    rank, model = dist.get_rank(), torch.nn.Linear(2, 2)
    for step in (2, 3):
        torch.nn.init.constant_(model.weight, step)
        libdcp.save(scratch / folder, step, {"model": model.state_dict()})

    def loaded(steps, found=()):
        """Returns the weights that were loaded, or the exception's text."""
        config = CheckpointManager.Config(enable=True, folder=folder, load_only=True,
                                          exclude_from_loading=["optimizer", "lr_scheduler", "dataloader"])
        manager = CheckpointManager(config, states={}, base_folder=str(scratch), model_parts=[model], sd_adapter=None,
                                    dataloader=None, optimizers=None, lr_schedulers=None)
        torch.nn.init.zeros_(model.weight)
        with mock.patch("libdcp.torchtitan.store.steps", steps), \
                mock.patch("libdcp.torchtitan.glob.glob", lambda _: found):
            try:
                return set(model.weight.flatten().tolist()) if manager.load() else None
            except (ValueError, OSError, libdcp.Error) as e:
                return str(e)

    def fail(_folder):
        raise OSError("stale handle")
    for first, other, wanted in (([2, 3], [2], {3.0}), ([2, 3], [], {3.0}), ([2], [2, 3], {2.0}),
                                 ([2, 3], [2, 3, 9], {3.0}), ([], [2, 3], None)):
        found = loaded(lambda _folder: (other if rank else first))
        assert found == wanted, (first, other, found)
    assert loaded(lambda _folder: fail(_folder) if rank else [2, 3]) == {3.0}
    text = loaded(lambda _folder: [2, 3] if rank else fail(_folder))
    assert text == ("rank 0: OSError: stale handle" if rank else "stale handle"), text
    foreign = [str(scratch / folder / "step-3" / ".metadata")]
    for steps in ([2, 3], []):
        assert "libdcp.convert" in loaded(lambda _folder: steps, () if rank else foreign)
        assert loaded(lambda _folder: steps, foreign if rank else ()) == ({3.0} if steps else None)


if __name__ == "__main__":
    init_logger()
    what = {"train": train, "other_ranks": other_ranks, "sharded_in_hf": sharded_in_hf,
            "different_folders": different_folders}[sys.argv[1]]
    what(pathlib.Path(sys.argv[2]), sys.argv[3])
    dist.barrier()
    dist.destroy_process_group()
