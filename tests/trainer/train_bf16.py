#!/usr/bin/env python3
"""bf16 computes what fp32 does except for its rounding, with the same bits on any number of ranks and with any strategy.
A checkpoint holds fp32, and a resume reports a change of the type."""
import subprocess
from train_lib import (BIN, cases, check, config, losses, make_text, metrics, MODEL, state,
                       step_path, train)

# The vocabulary is large enough for logits in bf16.
MODEL1 = {**MODEL, "vocab_size": 1024, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


def over(name, enabled=True, **more):
    return config(model=MODEL1, checkpoint={"dir": name}, metrics=f"{name}.jsonl", max_steps=3,
                  data={"sequence_length": 16}, bf16={"enabled": enabled}, **more)


@cases.shared
def runs():
    make_text()
    train(1, over("wide", enabled=False))
    train(1, over("on1"))
    train(2, over("on2", zero_optimization={"stage": 2}))
    train(3, over("on3", fsdp={"activation_checkpointing": True}))


def test_ranks_and_strategies_do_not_change_bits():
    cases.use(runs)
    for name in ("on2", "on3"):
        check(losses(f"{name}.jsonl") == losses("on1.jsonl"), f"losses of {name}")
        check(state(3, name) == state(3, "on1"), f"state.h5 of {name} differs")


def test_losses_differ_from_fp32_by_rounding():
    cases.use(runs)
    wide, narrow = ([m["loss"] for m in metrics(f"{name}.jsonl")] for name in ("wide", "on1"))
    for a, b in zip(wide, narrow):
        check(a != b and abs(a - b) < 2e-2 * a, f"losses {wide} and in bf16 {narrow}")
    check(narrow[-1] < narrow[0], f"losses in bf16 {narrow}")


def test_a_checkpoint_holds_fp32():
    cases.use(runs)
    shown = subprocess.run([f"{BIN}/dcp-inspect", "show", step_path(3, "on1")], capture_output=True, text=True)
    check("F32" in shown.stdout and "BF16" not in shown.stdout, shown.stdout + shown.stderr)


def test_a_resume_reports_a_change_of_the_type():
    cases.use(runs)
    _, err = train(2, over("on2", enabled=False), "max_steps=4")
    check("saved with bf16.enabled true, but the run continues with false" in err, err)
    _, err = train(1, over("on3"), "max_steps=4")
    check("saved with bf16" not in err, err)


cases.main()
