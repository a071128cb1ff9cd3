"""Trains under torchrun, or alone, for test_transformers.py: transformers_ranks.py SCRATCH NAME OPTIONS, a JSON object.

Its members: fsdp; lora: train adapters of PEFT; seed; dropout; resume, for train(); kill_at: the last rank kills itself as that step begins; callback
and args: options of the callback, and of TrainingArguments; store: instead of SCRATCH/NAME; late: see_late. Steps go to SCRATCH/NAME, losses to
SCRATCH/NAME.losses.
"""

import json
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
import transformers

import libdcp
import libdcp.transformers

WORDS, LENGTH, SAMPLES, BATCH = 64, 16, 96, 8


class Texts(torch.utils.data.Dataset):
    """Sequences in which each word follows from the one before."""

    def __init__(self, seed):
        generator = torch.Generator().manual_seed(seed)
        steps = torch.randint(1, 4, (SAMPLES, LENGTH), generator=generator)
        self.words = (steps.cumsum(1) * 5) % WORDS

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return {"input_ids": self.words[i], "labels": self.words[i]}


class Watch(transformers.TrainerCallback, transformers.trainer_callback.ExportableState):
    """Notes losses, kills its process, and has a state: how many steps it has seen."""

    def __init__(self, path="", kill_at=None):
        self.path, self.kill_at, self.seen = path, kill_at, 0

    def state(self):
        return {"args": {"path": "", "kill_at": None}, "attributes": {"seen": self.seen}}

    def on_step_begin(self, args, state, control, **kwargs):
        if self.kill_at == state.global_step + 1 and args.process_index == args.world_size - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_step_end(self, args, state, control, **kwargs):
        self.seen += 1


class Losses(transformers.TrainerCallback):
    def __init__(self, path):
        self.path = path

    def on_log(self, args, state, control, logs, **kwargs):
        if args.process_index == 0 and "loss" in logs:
            with open(self.path, "a") as out:
                print(state.global_step, repr(logs["loss"]), file=out)


def force_fsdp(args):
    """accelerate uses DDP on CPUs, whatever is asked for; its own tests set the type of the accelerator's state."""
    args.distributed_state.distributed_type = transformers.training_args.DistributedType.MULTI_HPU
    Accelerator = transformers.trainer.Accelerator

    def made(*given, **options):
        accelerator = Accelerator(*given, **options)
        assert accelerator.is_fsdp2, accelerator.distributed_type
        return accelerator
    transformers.trainer.Accelerator = made


def see_late(rank):
    """Ranks other than 0 see each removed step once more, since rank 0 removes steps after the last vote of a save."""
    own, seen = libdcp.Store.steps, []

    def steps(store):
        found = own(store)
        late = sorted({*found, *seen})
        seen[:] = found
        return late
    if rank:
        libdcp.Store.steps = steps


def make(scratch, name, options):
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=LENGTH, tie_word_embeddings=False,
        attention_dropout=options.get("dropout", 0.1), attn_implementation="eager")
    world = int(os.environ.get("WORLD_SIZE", 1))
    args = transformers.TrainingArguments(**{
        "output_dir": str(scratch / f"{name}-output"), "use_cpu": True, "max_steps": 20, "save_steps": 4, "logging_steps": 1,
        "per_device_train_batch_size": BATCH // world, "learning_rate": 5e-3, "warmup_steps": 3, "seed": 3,
        "report_to": "none", "disable_tqdm": True, "log_level": "error", "fsdp": True if options.get("fsdp") else None,
        **options.get("args", {})})
    if options.get("fsdp"):
        force_fsdp(args)
    if options.get("late"):
        see_late(args.process_index)
    transformers.set_seed(options.get("seed", 3))
    model = transformers.LlamaForCausalLM(config)
    if options.get("lora"):
        import peft
        model = peft.get_peft_model(model, peft.LoraConfig(r=4, lora_dropout=0.1, target_modules=["q_proj", "v_proj"],
                                                           modules_to_save=["lm_head"], task_type="CAUSAL_LM"))
    callback = libdcp.transformers.CheckpointCallback(options.get("store", scratch / name), **options.get("callback", {}))
    watch = Watch(kill_at=options.get("kill_at"))
    trainer = transformers.Trainer(model, args, train_dataset=Texts(1), eval_dataset=Texts(2),
                                   callbacks=[callback, watch, Losses(scratch / f"{name}.losses")])
    trainer.pop_callback(transformers.PrinterCallback)
    return trainer


def main():
    scratch, name, options = pathlib.Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    torch.set_num_threads(1)
    trainer = make(scratch, name, options)
    trainer.train(resume_from_checkpoint=options.get("resume"))
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
