#!/usr/bin/env python3
"""The benchmarks of training on a GPU run on the CPU, with a small model and dcp-train alone, and both print their
measurements, whose values do not matter."""
import contextlib
import io
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
import cases
import snapshots
import train

train.DEVICE, train.SEQUENCE = "cpu", 64
train.MODEL.update(vocab_size=512, hidden_size=64, intermediate_size=128, num_attention_heads=2,
                   num_key_value_heads=1, head_dim=32)


def said(module, *options):
    out = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(out):
        sys.argv = [module.__file__, folder, "--layers", "2", "--batches", "2", "--limit", "100", *options]
        module.main()
    print(out.getvalue())
    return out.getvalue()


def test_train_prints_a_rate():
    rows = [line.split() for line in said(train, "--alone", "--steps", "4").splitlines()]
    assert rows[-1][:2] == ["dcp-train", "2"] and float(rows[-1][3]) > 0, rows


def test_snapshots_prints_a_factor():
    text = said(snapshots, "--samples", "32")
    assert "times as long with a save beside it" in text and "\n0 GB" not in text, text


with tempfile.TemporaryDirectory(prefix="dcp_gpu.") as scratch:
    os.chdir(scratch)
    cases.main()
