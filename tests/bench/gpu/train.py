#!/usr/bin/env python3
"""Compares training on one GPU with PyTorch FSDP2, and prints a table.

    train.py DIR [--batches 16,8,4] [--steps 8] [--layers 28] [--limit 150] [--alone]

Trains a model of the shape of Qwen3-0.6B, in bf16 with fp32 state, on samples of 1024 random tokens, with dcp-train and
with FSDP2 (fused AdamW; eager, and with every layer compiled). FSDP2 uses transformers' Qwen3, or, if that is missing,
one in plain PyTorch with PyTorch's own attention. Each uses the first of the batches that fits its memory. Prints for
the fastest step after the second the tokens per second, the model operations (6 per parameter and token, plus
attention) as a share of 990 TFLOP/s, and the most memory in use according to nvidia-smi. Reports what cannot be
measured here, and leaves it out. Exit status 1 if dcp-train fails, is slower than compiled FSDP2, or uses more memory;
77 if compiled FSDP2 was not measured. DCP_BIN: where dcp-train is. DIR: for scratch files."""
import argparse
import array
import contextlib
import importlib.metadata
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BIN = os.environ.get("DCP_BIN", os.path.join(ROOT, "build/bin"))
MODEL = {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
         "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
         "head_dim": 128, "max_position_embeddings": 1024, "rms_norm_eps": 1e-6,
         "rope_theta": 1000000.0, "tie_word_embeddings": True}
SEQUENCE = 1024
DEVICE = "cuda"
PEAK = 990e12  # operations per second of the bf16 tensor cores of an H100 or H200, dense
WARM_UP = 2  # steps at the start that are not counted


def flop_a_token():
    """Returns 6 per parameter, plus 12 * layers * heads * head_dim * sequence for attention."""
    m = MODEL
    hidden, dim, layers = m["hidden_size"], m["head_dim"], m["num_hidden_layers"]
    q, kv = m["num_attention_heads"] * dim, m["num_key_value_heads"] * dim
    block = 2 * hidden * (q + kv) + 3 * hidden * m["intermediate_size"] + 2 * hidden + 2 * dim
    return (6 * (layers * block + hidden + m["vocab_size"] * hidden) +
            12 * layers * q * SEQUENCE)


class Memory:
    """The peak of the MiB in use on the GPU while this context is entered, less those in use before."""

    def used(self):
        try:
            out = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                 capture_output=True, text=True)
        except OSError:
            return 0
        return int(out.stdout.split()[0]) if out.returncode == 0 else 0

    def watch(self):
        while not self.done.wait(0.2):
            self.most = max(self.most, self.used())

    def __enter__(self):
        self.done, self.before, self.most = threading.Event(), self.used(), 0
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def mib(self):
        return max(0, self.most - self.before)


def write_inputs(scratch):
    random.seed(1)
    tokens = array.array("I", (random.randrange(MODEL["vocab_size"]) for _ in range(512 * SEQUENCE + 1)))
    with open(os.path.join(scratch, "tokens.bin"), "wb") as f:
        tokens.tofile(f)
    with open(os.path.join(scratch, "model.json"), "w") as f:
        json.dump(MODEL, f)
    with open(os.path.join(scratch, "train.json"), "w") as f:
        json.dump({"model": MODEL, "bf16": {"enabled": True}, "device": DEVICE,
                   "data": {"type": "tokens", "dtype": "uint32", "sequence_length": SEQUENCE,
                            "path": os.path.join(scratch, "tokens.bin")},
                   "checkpoint": {"every": 0, "dir": os.path.join(scratch, "ckpt")}}, f)


def ended(command, limit):
    """Returns a command's exit status and output; None and its output so far if it took too long. None of its
    processes is left."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=limit)
        return process.returncode, out, errors
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        return None, out, f"{errors[-300:]}\nnot done after {limit:.0f} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def whole_lines(text):
    """Returns the lines, except a last one that is not complete."""
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def metrics_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in whole_lines(f.read())]


def ours(scratch, batch, args, limit):
    metrics = os.path.join(scratch, f"metrics{batch}.jsonl")
    status, _, errors = ended(
        [os.path.join(BIN, "dcp-train"), os.path.join(scratch, "train.json"),
         f"max_steps={args.steps}", f"train_batch_size={batch}",
         f"train_micro_batch_size_per_gpu={batch}", f"metrics={metrics}"], limit)
    return status, [step["step_s"] for step in metrics_of(metrics)], errors


def peer(scratch, batch, args, limit, *options):
    status, out, errors = ended(
        [sys.executable, os.path.join(ROOT, "tests/bench/peers/peer_fsdp2.py"),
         os.path.join(scratch, "model.json"), "--ranks", 1, "--batch", batch, "--sequence", SEQUENCE,
         "--dtype", "bf16", "--steps", args.steps, "--device", DEVICE, *options], limit)
    return status, [float(line) for line in whole_lines(out)], errors


def measure(name, once, batches, deadline):
    """Returns tokens per second and MiB with the first batch that fits; None if none fits."""
    for batch in batches:
        left = deadline - time.monotonic()
        if left < 5:
            print(f"{name}: left out, no time is left", flush=True)
            return None
        with Memory() as memory:
            status, steps, errors = once(batch, left)
        if len(steps) > WARM_UP and status in (0, None):
            seconds = min(steps[WARM_UP:])
            rate = batch * SEQUENCE / seconds
            print(f"{name:16} {batch:6} {seconds:9.4f} {rate:10.0f} {rate * flop_a_token() / PEAK:7.3f} "
                  f"{memory.mib():9}", flush=True)
            return rate, memory.mib()
        why = errors.strip().splitlines()[-1:] or ["it said nothing"]
        print(f"{name}, batch {batch}: exit {status}: {why[0][:300]}", flush=True)
    return None


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def measure_peers(scratch, batches, args, deadline):
    """Runs the eager variant first, which starts quickly; the compiled one gets the rest of the time. Returns the
    second one's result."""
    torch, transformers = version_of("torch"), version_of("transformers")
    if not torch:
        print("FSDP2: left out, python3 has no PyTorch", flush=True)
        return None
    print(f"FSDP2 of PyTorch {torch}, transformers {transformers or 'missing: a Qwen3 in plain PyTorch'}",
          flush=True)
    now = time.monotonic()
    measure("FSDP2 eager", lambda b, s: peer(scratch, b, args, s), batches, now + 0.4 * (deadline - now))
    return measure("FSDP2 compiled", lambda b, s: peer(scratch, b, args, s, "--compile"), batches, deadline)


def judge(own, compiled):
    if own is None:
        return 1
    if compiled is None:
        print("no ratio: compiled FSDP2 was not measured", flush=True)
        return 77
    speed, memory = own[0] / compiled[0], own[1] / max(1, compiled[1])
    print(f"{speed:.2f} of compiled FSDP2's tokens per second, at least 1.0: "
          f"{'ok' if speed >= 1 else 'MISSED'}", flush=True)
    print(f"{memory:.2f} of its memory, at most 1.0: {'ok' if memory <= 1 else 'MISSED'}", flush=True)
    return 0 if speed >= 1 and memory <= 1 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--batches", default="16,8,4")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--limit", type=float, default=150, help="seconds, of all together")
    parser.add_argument("--alone", action="store_true", help="dcp-train only")
    args = parser.parse_args()
    batches = [int(batch) for batch in args.batches.split(",")]
    MODEL["num_hidden_layers"] = args.layers
    deadline = time.monotonic() + args.limit
    print(f"{'':16} {'batch':>6} {'step, s':>9} {'tokens/s':>10} {'mfu':>7} {'MiB':>9}", flush=True)
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="gpu-") as scratch:
        write_inputs(scratch)
        own = measure("dcp-train", lambda b, s: ours(scratch, b, args, s), batches, deadline)
        compiled = None if args.alone else measure_peers(scratch, batches, args, deadline)
    if args.alone:
        return 0 if own else 1
    return judge(own, compiled)


if __name__ == "__main__":
    sys.exit(main())
