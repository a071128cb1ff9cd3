#!/usr/bin/env python3
"""Checkpoints of another model, damaged checkpoints, and runs that go back to an older step."""
import os, shutil
from train_lib import (cases, check, config, losses, make_text, messages, metrics, state,
                       step_path, steps, train)

def fresh():
    """Restores the four steps as they were saved."""
    shutil.rmtree("ckpt", ignore_errors=True)
    shutil.copytree("kept", "ckpt", symlinks=True)


@cases.shared
def saved():
    make_text()
    short = config("short.json", max_steps=4)
    train(2, short)
    reference = state(4), losses()

    shutil.copytree("ckpt", "kept", symlinks=True)
    shutil.copy("metrics.jsonl", "kept.jsonl")
    return short, reference


def test_another_model_is_refused():
    short, _ = cases.use(saved)
    # The message has the tensor and both shapes, or the tensor that is missing or surplus.
    for override, texts in (
            ("model.intermediate_size=120", ["model.layers.0.mlp.gate_proj.weight", "[112,64] there",
                                             "[120,64] here", "more differences"]),
            ("model.num_hidden_layers=4", ["model.layers.3.", "is missing there"]),
            ("model.num_hidden_layers=2", ["model.layers.2.", "the model here has no tensor "])):
        for ranks in (1, 3):
            _, err = train(ranks, short, override, "max_steps=5", expect=2)
            check(all(text in messages(err)[-1] for text in texts), f"{override}: {err}")


def change_about(old, new):
    path = f"{step_path(4)}/about.json"
    text = open(path, "rb").read()
    check(old in text, f"{old} is not in {text}")
    open(path, "wb").write(text.replace(old, new, 1))


def test_other_settings_are_warnings():
    short, _ = cases.use(saved)
    _, err = train(1, short, "model.rope_theta=500", "max_steps=5")
    check("warning: the checkpoint was saved with model.rope_theta 10000.0, but the run continues with 500"
          in err, err)
    check("warning: the checkpoint was saved with max_steps 4, but the run continues with 5" in err, err)

    # The same holds for every other setting that changes the next step.
    fresh_dir = "checkpoint.dir=changed"
    for override, text in (
            ("train_batch_size=12", "train_batch_size 14, but the run continues with 12"),
            ("train_micro_batch_size_per_gpu=1", "train_micro_batch_size_per_gpu 2, but the run continues with 1"),
            ("scheduler.type=constant", 'scheduler.type "cosine", but the run continues with "constant"'),
            ("gradient_clipping=0.5", "gradient_clipping 1.0, but the run continues with 0.5"),
            ("optimizer.params.betas=[0.8,0.95]",
             "optimizer.params.betas [0.9,0.95], but the run continues with [0.8,"),
            ("optimizer.params.eps=1e-7", "optimizer.params.eps 1e-8, but the run continues with 1e-7"),
            ("optimizer.params.weight_decay=0", "optimizer.params.weight_decay 0.1, but the run continues with 0.0"),
            ("optimizer.params.no_decay=[]", 'optimizer.params.no_decay ["*norm*"], but the run continues with []')):
        _, err = train(1, short, override, "checkpoint.resume=kept", fresh_dir, "max_steps=5",
                       "metrics=null")
        check("warning: the checkpoint was saved with " + text in err, f"{override}: {err}")
        told = [m for m in messages(err) if "was saved with" in m and "max_steps" not in m]
        check(len(told) == 1, f"{override}: {err}")
        shutil.rmtree("changed")


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


def test_about_json_counts_only_if_its_checksum_holds():
    short, _ = cases.use(saved)
    for damage in (lambda: change_about(b'"kernels"', b'"kernals"'), lambda: change_about(b"}", b"]"),
                   lambda: change_about(b'"ranks": 2', b'"ranks": 3'),
                   lambda: os.remove(f"{step_path(4)}/about.json")):
        fresh()
        damage()
        _, err = train(1, short, "max_steps=5", "metrics=null")
        check("cannot tell whether this processor computes the same bits" in err, err)
    fresh()
    _, err = train(1, short, "metrics=null")
    check("about.json" not in err and "on 1 rank;" in err, err)


def test_a_damaged_step_falls_back_to_an_older_one():
    short, reference = cases.use(saved)
    for damage in (truncate, garbage, flip, os.remove):
        with cases.part(f"{damage.__name__}"):
            for ranks in (1, 3):
                fresh()
                damage(f"{step_path(4)}/state.h5")
                damage(f"{step_path(3)}/state.h5")
                _, err = train(ranks, short)
                for what in ("step 4 is damaged", "falling back to step 3", "step 3 is damaged",
                             "falling back to step 2", "continuing from step 2"):
                    check(what in err, f"{damage.__name__}, {what}: {err}")
                check((state(4), losses()) == reference, f"{damage.__name__}: another result")
                check(os.path.isdir("ckpt/.abandoned-step-00000004"), "the damaged step is not set aside")


def test_a_directory_without_an_intact_step_is_refused():
    short, _ = cases.use(saved)
    fresh()
    for step in (1, 2, 3, 4):
        flip(f"{step_path(step)}/state.h5")
    for ranks in (1, 3):
        _, err = train(ranks, short, expect=1)
        check("none of the 4 steps is intact" in messages(err)[-1], err)
        _, err = train(ranks, short, f"checkpoint.resume={step_path(2)}", expect=1)


def test_a_run_goes_back_to_an_older_step():
    short, reference = cases.use(saved)
    # Newer steps exist, and are set aside.
    fresh()
    _, err = train(3, short, f"checkpoint.resume={step_path(2)}", "max_steps=3")
    check("continuing from step 2" in err and "step-00000004" in err, err)
    check(steps() == [1, 2, 3] and os.path.isdir("ckpt/.abandoned-step-00000004"), f"{steps()}")
    check([line["step"] for line in metrics()] == [1, 2, 3], "metrics are not those of this run")
    _, err = train(1, short)
    check("continuing from step 3" in err and (state(4), losses()) == reference, err)


def test_a_run_starts_from_the_checkpoint_of_another_directory():
    short, _ = cases.use(saved)
    # First with its state, then with its weights alone.
    train(1, short, "checkpoint.resume=kept", "checkpoint.dir=other", "max_steps=5", "metrics=null")
    check(steps("other") == [5], f"{steps('other')}")
    _, err = train(2, short, "init=kept/step-00000001", "checkpoint.dir=weights", "max_steps=1",
                   "metrics=null")
    check("weights from kept/step-00000001, moments start at zero" in err, err)


def test_resume_never_needs_permission_to_set_steps_aside():
    short, reference = cases.use(saved)
    _, err = train(2, short, "checkpoint.resume=never", expect=2)
    check("never, but ckpt holds 4 steps" in messages(err)[-1] and steps() == [1, 2, 3, 4], err)
    train(2, short, "checkpoint.resume=never", "checkpoint.overwrite=true")
    check((state(4), losses()) == reference, "another result after starting anew")
    _, err = train(2, short)
    check("nothing to do" in err, err)


cases.main()
