#!/usr/bin/env python3
"""What a snapshot of 10 GB of a GPU's memory costs the training step beside it.

    snapshots.py DIR [--layers 44] [--batches 8,4,2] [--samples 384] [--steps 5] [--limit 120]

Trains a Qwen3 whose parameters and moments are 10 GB, in bf16, with a save after every second step,
and compares the steps that a save goes on beside with those between them. A step has so many
samples that the save ends within it, in the first of the micro-batches that fits. Steps are saved below DIR. Exit status 1 where a step
with a save takes more than 1.02 times as long as one without. DCP_BIN: where dcp-train is.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile

import train

MOST = 1.02


def run(scratch, batch, args):
    metrics = os.path.join(scratch, f"metrics{batch}.jsonl")
    status, _, errors = train.ended(
        [os.path.join(train.BIN, "dcp-train"), os.path.join(scratch, "train.json"),
         f"max_steps={args.steps}", f"train_batch_size={args.samples}",
         f"train_micro_batch_size_per_gpu={batch}", "checkpoint.every=2", "checkpoint.keep=1",
         f"metrics={metrics}"], args.limit)
    steps = [json.loads(line) for line in open(metrics)] if os.path.exists(metrics) else []
    return status, steps, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--layers", type=int, default=44)
    parser.add_argument("--batches", default="8,4,2", help="samples of a micro-batch")
    parser.add_argument("--samples", type=int, default=384, help="of a step")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds")
    args = parser.parse_args()
    train.MODEL["num_hidden_layers"] = args.layers
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="gpu-") as scratch:
        train.write_inputs(scratch)
        for batch in args.batches.split(","):
            status, steps, errors = run(scratch, batch, args)
            if status is None or steps:
                break
        bytes_on_disk = max((os.path.getsize(os.path.join(folder, "state.h5"))
                             for folder, _, names in os.walk(scratch) if "state.h5" in names),
                            default=0)
    print(errors.strip()[-2000:])
    for step in steps:
        print(f"step {step['step']}: {step['step_s']:.3f} s, waited {step['save_stall_s']:.3f} s for saves")
    if status not in (0, None) or len(steps) < 5:
        print(f"exit {status}, {len(steps)} steps done, at least 5 are needed")
        return 1
    # a step is saved after its line; the first step is not counted
    alone = statistics.median(s["step_s"] for s in steps[1:] if s["step"] % 2 == 0)
    beside = statistics.median(s["step_s"] for s in steps[1:] if s["step"] % 2 == 1)
    print(f"{bytes_on_disk / 1e9:.2f} GB a step")
    print(f"{beside / alone:.4f} times as long with a save beside it, at most {MOST}: "
          f"{'ok' if beside <= MOST * alone else 'MISSED'}")
    return 0 if beside <= MOST * alone else 1


if __name__ == "__main__":
    sys.exit(main())
