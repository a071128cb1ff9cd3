#!/usr/bin/env python3
"""Checkpoints of another model, damaged ones, and runs that go back."""
from train_lib import *

make_text()
short = config("short.json", max_steps=4)
train(2, short)
reference = state(4), losses()


def fresh():
    """The four steps as they were saved."""
    shutil.rmtree("ckpt", ignore_errors=True)
    shutil.copytree("kept", "ckpt", symlinks=True)


shutil.copytree("ckpt", "kept", symlinks=True)
shutil.copy("metrics.jsonl", "kept.jsonl")

# Another model: the tensor and both shapes, or what is missing, or surplus.
for override, texts in (
        ("model.intermediate_size=120", ["model.layers.0.mlp.gate_proj.weight", "[112,64] there",
                                         "[120,64] here", "more differences"]),
        ("model.num_hidden_layers=4", ["model.layers.3.", "is missing there"]),
        ("model.num_hidden_layers=2", ["model.layers.2.", "the model here has no such tensor"])):
    for ranks in (1, 3):
        _, err = train(ranks, short, override, "max_steps=5", expect=2)
        check(all(text in messages(err)[-1] for text in texts), f"{override}: {err}")
_, err = train(1, short, "model.rope_theta=500", "max_steps=5")
check("warning: the checkpoint was saved with model.rope_theta 10000.0, the run goes on with 500"
      in err, err)

# The newest step is damaged: older ones are tried in turn.
def truncate(path):
    os.truncate(path, os.path.getsize(path) // 2)


def garbage(path):
    with open(path, "r+b") as f:
        f.write(os.urandom(65536))


def flip(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        byte = f.read(1)
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte[0] ^ 1]))


for damage in (truncate, garbage, flip, os.remove):
    for ranks in (1, 3):
        fresh()
        damage(f"{step_path(4)}/state.h5")
        damage(f"{step_path(3)}/state.h5")
        _, err = train(ranks, short)
        for what in ("step 4 is damaged", "falling back to step 3", "step 3 is damaged",
                     "falling back to step 2", "going on from step 2"):
            check(what in err, f"{damage.__name__}, {what}: {err}")
        check((state(4), losses()) == reference, f"{damage.__name__}: another result")
        check(os.path.isdir("ckpt/.abandoned-step-00000004"), "the damaged step is not set aside")
fresh()
for step in (1, 2, 3, 4):
    flip(f"{step_path(step)}/state.h5")
for ranks in (1, 3):
    _, err = train(ranks, short, expect=1)
    check("none of the 4 steps is intact" in messages(err)[-1], err)
    _, err = train(ranks, short, f"checkpoint.resume={step_path(2)}", expect=1)

# Going back: from an older step where newer ones lie.
fresh()
_, err = train(3, short, f"checkpoint.resume={step_path(2)}", "max_steps=3")
check("going on from step 2" in err and "step-00000004" in err, err)
check(steps() == [1, 2, 3] and os.path.isdir("ckpt/.abandoned-step-00000004"), f"{steps()}")
check([line["step"] for line in metrics()] == [1, 2, 3], "metrics are not those of this run")
_, err = train(1, short)
check("going on from step 3" in err and (state(4), losses()) == reference, err)

# From another directory's checkpoint, and from its weights alone.
train(1, short, "checkpoint.resume=kept", "checkpoint.dir=other", "max_steps=5", "metrics=null")
check(steps("other") == [5], f"{steps('other')}")
_, err = train(2, short, "init=kept/step-00000001", "checkpoint.dir=weights", "max_steps=1",
               "metrics=null")
check("weights from kept/step-00000001, moments start at zero" in err, err)

# `never` needs leave to set steps aside.
_, err = train(2, short, "checkpoint.resume=never", expect=2)
check("never, but ckpt holds 4 steps" in messages(err)[-1] and steps() == [1, 2, 3, 4], err)
train(2, short, "checkpoint.resume=never", "checkpoint.overwrite=true")
check((state(4), losses()) == reference, "another result after starting anew")
_, err = train(2, short)
check("nothing to do" in err, err)
