#!/usr/bin/env python3
"""Shows the metrics of dcp-train in TensorBoard. Needs tensorboard and torch.

    tail -n +1 -F ckpt/metrics.jsonl | metrics_to_tensorboard.py LOG_DIR
    tensorboard --logdir LOG_DIR
"""
import json
import sys

from torch.utils.tensorboard import SummaryWriter


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with SummaryWriter(sys.argv[1]) as writer:
        for line in map(json.loads, sys.stdin):  # one per step
            for name, value in line.items():
                if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "step":
                    writer.add_scalar(name, value, line["step"])
            writer.flush()


if __name__ == "__main__":
    main()
