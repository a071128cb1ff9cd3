#!/usr/bin/env python3
"""Every option with state: a run that other ranks resume in the middle of the warm-up, the epoch and the decay ends with
the bits of the run that never stopped. Each row differs from the first one, which shows that its option works, or has
its losses and state, if the option must not change any."""
import array, struct
from train_lib import cases, check, config, metrics, MODEL, state, step_path, train

tiny = {**MODEL, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "head_dim": 4}
base = {"model": tiny, "data": {"sequence_length": 16}, "max_steps": 7, "train_batch_size": 5,
        "train_micro_batch_size_per_gpu": 1, "optimizer": {"params": {"lr": 1e-2}},
        "scheduler": {"type": "constant", "params": {"warmup_steps": 3}}}


def schedule(kind, **params):
    return {"scheduler": {"type": kind, "params": {"warmup_steps": 3, "min_lr_ratio": 0.2, **params}}}


def idx(model):
    return {"model": model, "data": {"type": "idx", "path": "13-images", "eval_path": "13-images"}, "eval_every": 2}


VIT = {"model_type": "vit", "image_size": 4, "patch_size": 2, "num_channels": 1, "hidden_size": 8,
       "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
ROWS = [  # name, options, and True if losses and state are those of the first row
    ("constant", {}, True),
    ("linear", schedule("linear"), False),
    ("cosine", schedule("cosine"), False),
    ("wsd", schedule("wsd", decay_ratio=0.5), False),
    ("accumulation", {"train_batch_size": 6, "train_micro_batch_size_per_gpu": 2}, False),
    ("clipping", {"gradient_clipping": 0.05}, False),
    ("no_decay", {"optimizer": {"params": {"lr": 1e-2, "no_decay": ["*proj*"]}}}, False),
    ("frozen", {"frozen": ["*.mlp.*", "model.embed*"]}, False),
    ("checkpointing", {"fsdp": {"activation_checkpointing": True}}, True),
    ("offload", {"fsdp": {"cpu_offload": True, "offload_path": "."}}, True),
    ("evaluation", {"data": {"sequence_length": 16, "eval_path": "text"}, "eval_every": 2}, True),
    ("bf16", {"bf16": {"enabled": True}}, False),
    ("local", {"fsdp": {"accumulate": "local"}}, True),
    ("tokens", {"data": {"type": "tokens", "path": "ids", "sequence_length": 16}}, True),
    ("vit", idx(VIT), False),
    ("mlp", idx({"model_type": "mlp", "sizes": [16, 8, 3]}), False),
    ("ring", {"zero_optimization": {"ring": True}}, False),  # its bits depend on the number of ranks
]


def progress(path):
    """Returns the values that do not depend on the clock or the number of ranks."""
    keys = ("step", "loss", "grad_norm", "lr", "tokens", "eval_loss", "eval_accuracy")
    return [{key: line[key] for key in keys if key in line} for line in metrics(path)]


@cases.shared
def inputs():
    with open("text", "w") as f:
        f.write("".join(f"{i} squared is {i * i}. " for i in range(30))[:13 * 16 + 1])  # 13 samples per epoch
    with open("text", "rb") as f, open("ids", "wb") as out:
        array.array("H", list(f.read())).tofile(out)
    for name, dims in (("images", (13, 4, 4)), ("labels", (13,))):
        with open(f"13-{name}", "wb") as f:
            elements = [i * i % 251 for i in range(13 * 16)] if name == "images" else [i % 3 for i in range(13)]
            f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims) + bytes(elements))


def test_resumed_runs_end_with_the_same_bits():
    cases.use(inputs)
    first = None
    for i, (name, options, same) in enumerate(ROWS):
        with cases.part(f"{name}"):
            run = {**base, **options, "checkpoint": {"dir": name, "async": False}, "metrics": f"{name}.jsonl"}
            train(3 if name == "ring" else 1, config(**run))
            whole = progress(f"{name}.jsonl")
            first = first or whole
            seen = [{**line} for line in whole]
            for line in seen:
                line.pop("eval_loss", None)
            check((seen == first) == same, f"{name}: the option changes nothing, or too much")
            check(not same or state(7, name) == state(7, "constant"), f"{name}: the option changes the state")
            stop = 2 if i % 2 == 0 else 5  # in the warm-up and in the first epoch, or after both
            other = f"{name}-resumed"
            run = {**run, "checkpoint": {"dir": other, "every": 0, "resume": step_path(stop, name)},
                   "metrics": f"{other}.jsonl"}
            train(3 if name == "ring" else 2 + i % 2, config(**run))
            check(progress(f"{other}.jsonl") == whole[stop:], f"{name}: resumed, lines differ")
            check(state(7, other) == state(7, name), f"{name}: resumed from step {stop}, state.h5 differs")


cases.main()
