"""Makes data/deepspeed.tar.xz anew, for test_deepspeed.py: checkpoints that DeepSpeed itself has written on two ranks, and
what it reads from them. The file in the repository was made with deepspeed 0.19.8 and torch 2.15:

    pip install deepspeed
    DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 tests/python/deepspeed_files.py SCRATCH

The first run compiles an operation of DeepSpeed, which takes minutes. SCRATCH must not exist.
"""

import pathlib
import subprocess
import sys
import tarfile

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.checkpoint import ds_to_universal
from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

from deepspeed_ranks import Model

DATA = pathlib.Path(__file__).parent / "data" / "deepspeed.tar.xz"
KINDS = [("zero0", 0, False), ("zero1", 1, False), ("zero2_bf16", 2, True), ("zero3_bf16", 3, True)]
UNIVERSAL = ("zero1", "zero3_bf16")


def train(stage, is_bf16):
    torch.manual_seed(0)
    model = Model()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW([{"params": [p for p in trained if p.ndim > 1], "weight_decay": 0.5},
                                   {"params": [p for p in trained if p.ndim == 1], "weight_decay": 0.}], lr=0.125)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "bf16": {"enabled": is_bf16},
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=config)
    for i in range(3):
        inputs = torch.ones(2, 7) * (dist.get_rank() + 1 + i) + torch.arange(7) * torch.arange(2)[:, None]
        engine.backward(engine(inputs.bfloat16() if is_bf16 else inputs).square().sum())
        engine.step()
    return engine


def main(scratch):
    deepspeed.init_distributed("gloo")
    for name, stage, is_bf16 in KINDS:
        train(stage, is_bf16).save_checkpoint(str(scratch / name))
        dist.barrier()
    if dist.get_rank() > 0:
        return
    for name, stage, _ in KINDS[1:]:
        torch.save(get_fp32_state_dict_from_zero_checkpoint(str(scratch / name)), scratch / f"{name}.pt")
    for name in UNIVERSAL:
        subprocess.run([sys.executable, ds_to_universal.__file__, "--input_folder", scratch / name / "global_step3",
                        "--output_folder", scratch / f"{name}_universal" / "global_step3_universal",
                        "--num_extract_workers", "1", "--num_merge_workers", "1", "--inject_missing_state"], check=True)
    for script in scratch.rglob("*.py"):
        script.unlink()
    with tarfile.open(DATA, "w:xz") as made:
        for path in sorted(scratch.iterdir()):
            made.add(path, path.name)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
