"""Runs under torchrun for test_torchtitan.py: titan_ranks.py WHAT SCRATCH FOLDER; it saves to SCRATCH/FOLDER."""

import os
import pathlib
import signal
import sys
import types

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
    """Checkpoints of torchtitan's own manager, in the run's folder and as the initial one, are refused."""
    name = f"foreign-{os.environ['RANK']}-of-{dist.get_world_size()}"
    step = scratch / name / "step-10"
    step.mkdir(parents=True)
    (step / ".metadata").touch()
    for settings in ({"folder": name}, {"folder": f"{name}-empty", "initial_load_path": str(step)}):
        config = CheckpointManager.Config(enable=True, load_only=True, **settings)
        manager = CheckpointManager(config, states={}, base_folder=str(scratch), model_parts=trainer.model_parts,
                                    dataloader=None, optimizers=None, lr_schedulers=None, sd_adapter=None)
        refused(["step-10", "libdcp.convert"], manager.load)


def hugging_face(trainer, scratch):
    """Weights under Hugging Face's names, with which a training begins."""
    from safetensors.torch import save_file
    wanted = {name: value.full_tensor() for name, value in trainer.checkpointer.states["model"].state_dict().items()}
    adapter = trainer.checkpointer._adapter
    (scratch / "hf").mkdir()
    theirs = {name: value.contiguous() for name, value in adapter.to_hf(wanted).items()}
    save_file(theirs, scratch / "hf" / "model.safetensors")
    other = make(scratch, folder="from-hf", seed=3, initial_load_in_hf=True, initial_load_path=str(scratch / "hf"))
    assert other.checkpointer.load() and other.step == 0
    for name, value in other.checkpointer.states["model"].state_dict().items():
        assert torch.equal(value.full_tensor(), wanted[name]), name
    other.close()


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
    if dist.get_world_size() == 1:
        hugging_face(trainer, scratch)
    # a training that begins with its model
    trainer = make(scratch, stages=stages, folder=f"{folder}-exported", seed=2, initial_load_path=str(source),
                   last_save_model_only=True, export_dtype="bfloat16")
    assert trainer.checkpointer.load() and trainer.step == 0
    assert trainer.checkpointer.save(1, last_step=True)
    trainer.close()
    with libdcp.Checkpoint(source) as before, libdcp.Checkpoint(scratch / f"{folder}-exported") as after:
        assert all(after.dtype(name) == "BF16" and name.startswith("/model/") for name in after), after.entries
        assert {name for name in before if name.startswith("/model/")} == set(after)
        whole = torch.from_numpy(before["/model/norm.weight"]).bfloat16()
        assert (torch.from_numpy(after["/model/norm.weight"].view("int16")).view(torch.bfloat16) == whole).all()


if __name__ == "__main__":
    init_logger()
    {"train": train, "other_ranks": other_ranks}[sys.argv[1]](pathlib.Path(sys.argv[2]), sys.argv[3])
    dist.barrier()
    dist.destroy_process_group()
