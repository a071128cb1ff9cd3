#!/usr/bin/env python3
"""Sends the metrics of dcp-train to Weights & Biases, as one run. Needs wandb.

    tail -n +1 -F ckpt/metrics.jsonl | metrics_to_wandb.py PROJECT [RUN]

RUN is a name for the run: a program that is started again with the same name continues that run.
"""
import json
import sys

import wandb


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    run = wandb.init(project=sys.argv[1], id=sys.argv[2] if len(sys.argv) == 3 else None, resume="allow")
    with run:
        for line in map(json.loads, sys.stdin):  # one per step
            values = {name: value for name, value in line.items() if isinstance(value, (int, float)) and name != "step"}
            run.log(values, step=line["step"])


if __name__ == "__main__":
    main()
