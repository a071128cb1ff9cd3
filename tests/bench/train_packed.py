#!/usr/bin/env python3
"""The gain of data.pack: records per second of the same training with packed records, and with one record per sample.

    train_packed.py DIR [--records 512] [--sequence 512] [--steps 6] [--repeat 2] [key=value ...]

The lengths of the records are distributed like those of chats: many short ones, few long ones. Trains a small Llama on
them in both ways by turns, on one rank, with scratch files below DIR. Prints the records per second of both ways and
their ratio, beside the ratio of the numbers of samples in an epoch, which is the largest possible gain if each sample
takes the same time. Further arguments are settings for dcp-train. DCP_BIN says where it is (build/bin)."""
import argparse
import json
import os
import random
import re
import struct
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = {"model_type": "llama", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 8192, "tie_word_embeddings": True}
BATCH = 4  # samples per step


def write_records(path, n, most):
    """Writes records whose lengths are log-normal around an eighth of the longest one."""
    generator = random.Random(1)
    lengths = [max(4, min(most + 1, int(generator.lognormvariate(0, 0.8) * most / 8))) for _ in range(n)]
    starts = [0]
    for length in lengths:
        starts.append(starts[-1] + length)
    ids = [generator.randrange(512) for _ in range(starts[-1])]
    data = struct.pack(f"<{n + 1}q{len(ids)}I", *starts, *ids) + b"\1" * len(ids)
    ends = [0, 8 * (n + 1), 8 * (n + 1) + 4 * len(ids), len(data)]
    kinds = ("starts", "I64", n + 1), ("input_ids", "U32", len(ids)), ("loss_mask", "U8", len(ids))
    header = json.dumps({name: {"dtype": dtype, "shape": [count], "data_offsets": ends[i:i + 2]}
                         for i, (name, dtype, count) in enumerate(kinds)}).encode()
    header += b" " * (-len(header) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)


def train(args, scratch, pack):
    """Returns the seconds of the fastest step, and the number of samples of an epoch."""
    config = {"model": MODEL, "data": {"type": "records", "path": f"{scratch}/records.safetensors", "pack": pack,
                                       "sequence_length": args.sequence},
              "max_steps": args.steps, "train_batch_size": BATCH, "train_micro_batch_size_per_gpu": BATCH,
              "checkpoint": {"dir": f"{scratch}/ckpt", "every": 0, "resume": "never", "overwrite": True},
              "metrics": f"{scratch}/metrics.jsonl"}
    with open(f"{scratch}/config.json", "w") as f:
        json.dump(config, f)
    program = os.path.join(os.environ.get("DCP_BIN", os.path.join(ROOT, "build/bin")), "dcp-train")
    done = subprocess.run([program, f"{scratch}/config.json", *args.settings], check=True, capture_output=True,
                          text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    with open(f"{scratch}/metrics.jsonl") as lines:
        seconds = min(json.loads(line)["step_s"] for line in list(lines)[1:])
    return seconds, int(re.search(r"(\d+) samples per epoch", done.stdout + done.stderr)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--records", type=int, default=512)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("settings", nargs="*")
    args = parser.parse_intermixed_args()
    os.makedirs(args.dir, exist_ok=True)
    best, samples = {}, {}
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="packed-") as scratch:
        write_records(f"{scratch}/records.safetensors", args.records, args.sequence)
        for _ in range(args.repeat):
            for pack in False, True:
                seconds, samples[pack] = train(args, scratch, pack)
                best[pack] = min(seconds, best.get(pack, seconds))
    speed = {pack: args.records / (samples[pack] * best[pack] / BATCH) for pack in best}
    for pack, name in (False, "one a sample"), (True, "packed"):
        print(f"{name:>12}: {samples[pack]:5} samples per epoch, {best[pack] / BATCH * 1e3:8.2f} ms each, "
              f"{speed[pack]:8.1f} records/s")
    print(f"packed is {speed[True] / speed[False]:.2f} times as fast; there are {samples[False] / samples[True]:.2f} "
          f"times fewer samples, and each takes {best[True] / best[False]:.2f} of the time")


if __name__ == "__main__":
    main()
