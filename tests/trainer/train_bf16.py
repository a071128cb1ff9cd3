#!/usr/bin/env python3
"""bf16 computes what fp32 does but for its rounding, with the same bits on any number of ranks and
whatever the strategy; a checkpoint holds fp32, and a resume tells that the type has changed."""
from train_lib import *

# So many tokens that logits are bf16 too.
MODEL1 = {**MODEL, "vocab_size": 1024, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
make_text()


def over(name, enabled=True, **more):
    return config(model=MODEL1, checkpoint={"dir": name}, metrics=f"{name}.jsonl", max_steps=3,
                  data={"sequence_length": 16}, bf16={"enabled": enabled}, **more)


train(1, over("wide", enabled=False))
train(1, over("on1"))
train(2, over("on2", zero_optimization={"stage": 2}))
train(3, over("on3", fsdp={"activation_checkpointing": True}))
for name in ("on2", "on3"):
    check(losses(f"{name}.jsonl") == losses("on1.jsonl"), f"losses of {name}")
    check(state(3, name) == state(3, "on1"), f"state.h5 of {name} differs")
wide, narrow = ([m["loss"] for m in metrics(f"{name}.jsonl")] for name in ("wide", "on1"))
for a, b in zip(wide, narrow):
    check(a != b and abs(a - b) < 2e-2 * a, f"losses {wide} and in bf16 {narrow}")
check(narrow[-1] < narrow[0], f"losses in bf16 {narrow}")
shown = subprocess.run([f"{BIN}/dcp-inspect", "show", step_path(3, "on1")], capture_output=True, text=True)
check("F32" in shown.stdout and "BF16" not in shown.stdout, shown.stdout + shown.stderr)

_, err = train(2, over("on2", enabled=False), "max_steps=4")
check("saved with bf16.enabled true, the run goes on with false" in err, err)
_, err = train(1, over("on3"), "max_steps=4")
check("saved with bf16" not in err, err)
