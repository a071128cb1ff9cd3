#!/usr/bin/env python3
"""Sliding windows: the same bits on any number of ranks and after a resume. A window that covers the sequence changes
nothing; a smaller one does. In fp32 and in bf16, in all layers (Mistral) and in some (Qwen2)."""
import os
from train_lib import cases, check, config, losses, make_text, MODEL, state, train

SIZES = {k: v for k, v in MODEL.items() if k not in ("model_type", "head_dim")}
MISTRAL = {**SIZES, "model_type": "mistral", "head_dim": 16}
QWEN2 = {**SIZES, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1}
RANKS = [n for n in (1, 2, 3, 5, 8) if n <= int(os.environ.get("DCP_TEST_RANKS", 8))]


def start(ranks, name, model, **over):
    c = config(model=model, checkpoint={"dir": name}, metrics=f"{name}.jsonl", **{"max_steps": 3, **over})
    train(ranks, c)
    return losses(f"{name}.jsonl"), state(3, name) if over.get("max_steps", 3) == 3 else None


def test_ranks_and_resumes_do_not_change_bits():
    make_text()
    for name, model, bf16 in (("mistral", {**MISTRAL, "sliding_window": 24}, False), ("qwen2", QWEN2, False),
                              ("narrow", {**MISTRAL, "sliding_window": 24}, True)):
        with cases.part(f"{name}"):
            over = {"bf16": {"enabled": bf16}}
            results = [start(ranks, f"{name}{ranks}", model, fsdp={"activation_checkpointing": ranks in (2, 5)}, **over)
                       for ranks in RANKS]
            check(all(r == results[0] for r in results), f"{name}: ranks leave a trace: {[r[0] for r in results]}")
            start(RANKS[-1], f"{name}cut", model, max_steps=2, **over)
            check(start(1, f"{name}cut", model, **over) == results[0], f"{name}: a resume leaves a trace")


def test_a_window_that_covers_the_sequence_is_none():
    make_text()
    whole = start(1, "whole", {**MISTRAL, "sliding_window": None})[0]
    check(start(1, "covered", {**MISTRAL, "sliding_window": 128})[0] == whole,
          "a window that covers all changes a loss")
    check(start(1, "nearly", {**MISTRAL, "sliding_window": 127})[0] != whole, "a token outside of the window is seen")


cases.main()
