#!/usr/bin/env python3
"""The cost of a snapshot of 10 GB of a GPU's memory for the training step beside it.

    snapshots.py DIR [--layers 44] [--batches 8,4,2] [--samples 384] [--steps 5] [--limit 120]

Trains a Qwen3 whose parameters and moments are 10 GB, in bf16, with a save after every second step, and compares the
steps beside a save with the others. A step has many samples, so the save ends within it. Two short steps before the run
determine how many samples let all steps end within the limit; micro-batches have the first size that fits. Steps are
saved below DIR. Exit status 1 if a step with a save takes more than 1.02 times as long as one without. DCP_BIN: where
dcp-train is."""
import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time

import train

MOST = 1.02
PROBE = 32  # samples per step of the run that only measures the time of a step


def run(scratch, batch, samples, steps, limit, *options):
    """Runs dcp-train from its beginning, without the steps of an earlier run."""
    shutil.rmtree(os.path.join(scratch, "ckpt"), ignore_errors=True)
    metrics = os.path.join(scratch, f"metrics{batch}-{samples}-{steps}.jsonl")
    status, _, errors = train.ended(
        [os.path.join(train.BIN, "dcp-train"), os.path.join(scratch, "train.json"),
         f"max_steps={steps}", f"train_batch_size={samples}",
         f"train_micro_batch_size_per_gpu={batch}", f"metrics={metrics}", *options], limit)
    return status, train.metrics_of(metrics), errors


def samples_that_fit(scratch, batch, args, deadline):
    """A fifth of the time that remains after another start is for saves."""
    begin = time.monotonic()
    _, steps, _ = run(scratch, batch, PROBE, 2, deadline - begin)
    if len(steps) < 2:
        return PROBE
    now = time.monotonic()
    of_step = 0.8 * (deadline - now - (now - begin)) / args.steps
    fit = int(of_step / (steps[1]["step_s"] / PROBE)) // PROBE * PROBE
    return max(PROBE, min(args.samples, fit))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--layers", type=int, default=44)
    parser.add_argument("--batches", default="8,4,2", help="samples of a micro-batch")
    parser.add_argument("--samples", type=int, default=384, help="of a step, at most")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120, help="seconds")
    args = parser.parse_args()
    train.MODEL["num_hidden_layers"] = args.layers
    deadline = time.monotonic() + args.limit
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="gpu-") as scratch:
        train.write_inputs(scratch)
        for batch in args.batches.split(","):
            samples = samples_that_fit(scratch, batch, args, deadline)
            print(f"micro-batches of {batch}, {samples} samples a step", flush=True)
            status, steps, errors = run(scratch, batch, samples, args.steps,
                                        max(1, deadline - time.monotonic()),
                                        "checkpoint.every=2", "checkpoint.keep=1")
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
    print(f"{bytes_on_disk / 1e9:.3g} GB a step")
    print(f"{beside / alone:.4f} times as long with a save beside it, at most {MOST}: "
          f"{'ok' if beside <= MOST * alone else 'MISSED'}")
    return 0 if beside <= MOST * alone else 1


if __name__ == "__main__":
    sys.exit(main())
