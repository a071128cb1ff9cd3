#!/usr/bin/env python3
"""The cost of saves for training: the same training with a save at every step and with none.

    train_saves.py DIR [--config FILE] [--ranks 2] [--steps 24] [--repeat 3] [key=value ...]

Trains the quickstart's model (or FILE) by turns with and without saves, REPEAT times each, with the steps saved below
DIR. Prints the median seconds of a step of each run, and, from the best run of each kind, the share of the speed that
remains with saves. Exit status 1 if it is below the target, 0.98. Further arguments are settings for dcp-train. DCP_BIN
says where it is (build/bin)."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = 0.98
WARM_UP = 3  # steps at the start that are not counted


def train(args, scratch, every):
    metrics = os.path.join(scratch, "metrics.jsonl")
    ckpt = os.path.join(scratch, "ckpt")
    program = os.path.join(os.environ.get("DCP_BIN", os.path.join(ROOT, "build/bin")), "dcp-train")
    env = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                        "OMP_NUM_THREADS": "1"}
    subprocess.run(["mpirun", "--oversubscribe", "-n", str(args.ranks), program, args.config,
                    f"max_steps={args.steps}", f"checkpoint.dir={ckpt}", f"checkpoint.every={every}",
                    "checkpoint.keep=2", f"metrics={metrics}", *args.settings],
                   check=True, stdout=subprocess.DEVNULL, env=env)
    with open(metrics) as lines:
        steps = [json.loads(line) for line in lines][WARM_UP:]
    shutil.rmtree(ckpt)
    os.remove(metrics)
    return (statistics.median(step["step_s"] for step in steps),
            statistics.median(step["save_stall_s"] for step in steps))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--config", default=os.path.join(ROOT, "examples/configs/quickstart.json"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("settings", nargs="*")
    args = parser.parse_intermixed_args()
    os.makedirs(args.dir, exist_ok=True)
    best = {}
    print(f"{'saves':>12} {'step, s':>9} {'stall, s':>9}   medians of steps", flush=True)
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="train-") as scratch:
        for _ in range(args.repeat):
            for every, name in ((args.steps, "none"), (1, "every step")):
                step, stall = train(args, scratch, every)
                best[name] = min(step, best.get(name, step))
                print(f"{name:>12} {step:9.4f} {stall:9.4f}", flush=True)
    share = best["none"] / best["every step"]
    print(f"speed with a save at every step: {share:.3f} of that without (at least {TARGET})")
    return 0 if share >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
