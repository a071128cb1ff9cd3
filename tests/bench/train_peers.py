#!/usr/bin/env python3
"""Compares training with PyTorch FSDP2 on the same cores, and prints a table.

    train_peers.py DIR [--only fp32,bf16,ranks4] [--steps 8] [--repeat 2] [--limit 300] [--alone]
                   [--before BIN]

Trains a Qwen3 of 25 M parameters, with 8 samples of 256 tokens per rank, with dcp-train and with FSDP2 (gloo,
transformers' Qwen3, fused AdamW, one process per rank), eager and compiled, by turns. The fastest step of each after
the second counts. The cases are 2 ranks in fp32 and in bf16, and 4 ranks in fp32.

If the processor has no instructions for bf16, PyTorch's bf16 products take up to 70 times as long as its fp32 ones: on
such a processor FSDP2 is also tried with the operands of its products widened to fp32, as in dcp-train. An FSDP2 that
has not ended after LIMIT seconds is stopped, and the steps that it did after the first one count; a variant that did
none is not tried again. If no variant does any, the table gives a lower bound of the ratio, from the time that passed
without a complete step.

Also prints which share of the machine's cblas_sgemm (2048^3, two threads; numpy's OpenBLAS) dcp-train reaches, at 6
operations per parameter and token plus attention; its mfu, which is the share of its own products; and the share of its
steps in which rank 0 waited for gathers. Exit status 1 if a target is missed: 1.2, 1.35 and 1.25 times the better
FSDP2; 0.85 of sgemm in fp32 on 2 ranks; under 10 % of waiting on 4 ranks. --alone runs only dcp-train, and needs no
PyTorch. --before BIN also runs the dcp-train in that folder by turns, for example an older one, and prints the ratio
of the times of a step.

PEERS_VENV: a Python environment for PyTorch (XDG_CACHE_HOME/libdcp-peers), which pip makes and fills if it is missing
(6 GB). DCP_BIN: where dcp-train is (build/bin). DIR: for scratch files."""
import argparse
import collections
import functools
import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
VENV = os.environ.get("PEERS_VENV", os.path.join(CACHE, "libdcp-peers"))
BIN = os.environ.get("DCP_BIN", os.path.join(ROOT, "build/bin"))
ENV = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
MODEL = {"model_type": "qwen3", "vocab_size": 256, "hidden_size": 512, "intermediate_size": 1536,
         "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 64, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
         "rope_theta": 10000.0, "tie_word_embeddings": True}
BATCH, SEQUENCE = 8, 256
WARM_UP = 2  # steps at the start that are not counted
SGEMM_TARGET = 0.85
WAIT_TARGET = 0.1  # share of a step, for waiting for gathers
BEFORE = "dcp-train before"
NEVER = float("inf")
Case = collections.namedtuple("Case", "name dtype ranks target")
CASES = [Case("fp32", "fp32", 2, 1.2), Case("bf16", "bf16", 2, 1.35),
         Case("ranks4", "fp32", 4, 1.25)]


def run(*command, **env):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENV | env)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def prepare_venv():
    python = os.path.join(VENV, "bin/python")
    if not os.path.exists(python):
        run(sys.executable, "-m", "venv", VENV)
    if subprocess.run([python, "-c", "import torch, transformers, numpy"],
                      capture_output=True).returncode != 0:
        run(python, "-m", "pip", "install", "-q", "torch", "transformers", "numpy")
    return python


def flop_a_token():
    """Returns 6 per parameter, plus 12 * layers * heads * head_dim * sequence for attention."""
    m = MODEL
    hidden, dim = m["hidden_size"], m["head_dim"]
    q, kv = m["num_attention_heads"] * dim, m["num_key_value_heads"] * dim
    block = 2 * hidden * q + 2 * hidden * kv + 3 * hidden * m["intermediate_size"]
    block += 2 * hidden + 2 * dim
    layers = m["num_hidden_layers"]
    parameters = layers * block + hidden + m["vocab_size"] * hidden
    return 6 * parameters + 12 * layers * q * SEQUENCE


def has_bf16(python):
    """Returns true if the processor has the instructions that oneDNN uses for bf16 products."""
    code = "import torch; print(torch.ops.mkldnn._is_mkldnn_bf16_supported())"
    return run(python, "-c", code).strip() == "True"


def variants(case, python):
    """Returns the variants of FSDP2 to run, by name."""
    modes = {"FSDP2 eager": (), "FSDP2 compiled": ("--compile",)}
    if case.dtype == "bf16" and not has_bf16(python):
        modes = {f"{name}, wide": (*options, "--widen") for name, options in modes.items()} | modes
    return modes


def sgemm_flops(python):
    code = """
import time, numpy
a = numpy.random.rand(2048, 2048).astype("f4")
def once():
    start = time.perf_counter()
    a @ a
    return time.perf_counter() - start
print(2 * 2048**3 / min(once() for _ in range(12)))"""
    return float(run(python, "-c", code, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2"))


def ours(case, scratch, steps, folder=BIN):
    """Returns the fastest step's seconds, its mfu, and the share of all counted steps spent waiting for gathers."""
    metrics = os.path.join(scratch, "metrics.jsonl")
    with tempfile.TemporaryDirectory(dir=scratch) as ckpt:
        run("mpirun", "--oversubscribe", "-n", case.ranks, os.path.join(folder, "dcp-train"),
            os.path.join(scratch, "train.json"), f"max_steps={steps}",
            f"train_batch_size={BATCH * case.ranks}", f"checkpoint.dir={ckpt}",
            f"bf16.enabled={'true' if case.dtype == 'bf16' else 'false'}", f"metrics={metrics}")
    with open(metrics) as lines:
        counted = [json.loads(line) for line in list(lines)[WARM_UP:]]
    os.remove(metrics)
    best = min(counted, key=lambda s: s["step_s"])
    waited = sum(s["gather_wait_s"] for s in counted) / sum(s["step_s"] for s in counted)
    return best["step_s"], best["mfu"], waited


def peer(python, case, scratch, args, name, options):
    """Returns the fastest warm step's seconds, infinite if it did none within the limit; and the time spent in a
    step that it did not complete."""
    command = [python, os.path.join(HERE, "peers/peer_fsdp2.py"),
               os.path.join(scratch, "model.json"), "--ranks", str(case.ranks), "--batch",
               str(BATCH), "--sequence", str(SEQUENCE), "--dtype", case.dtype, "--steps",
               str(args.steps), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=ENV, start_new_session=True)
    try:
        out, errors = process.communicate(timeout=args.limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        now = time.monotonic()
        out, errors = process.communicate()
        steps = [float(line) for line in out.splitlines()]
        began = re.search(r"begins at (\S+)", errors)
        print(f"{name} in {case.dtype} on {case.ranks} ranks: stopped after {args.limit} s "
              f"and {len(steps)} of {args.steps} steps", flush=True)
        warm = steps[min(WARM_UP, max(1, len(steps) - 1)):]
        return min(warm, default=NEVER), now - float(began[1] if began else now) - sum(steps)
    if process.returncode != 0:
        sys.exit(f"peer_fsdp2.py: exit {process.returncode}: {errors[-2000:]}")
    return min([float(line) for line in out.splitlines()][WARM_UP:]), 0


def write_inputs(scratch):
    with open(os.path.join(scratch, "text"), "wb") as text:
        for path in sorted(glob.glob("/usr/include/*.h"))[:120]:
            with open(path, "rb") as f:
                text.write(f.read())
    with open(os.path.join(scratch, "model.json"), "w") as f:
        json.dump(MODEL, f)
    with open(os.path.join(scratch, "train.json"), "w") as f:
        json.dump({"model": MODEL, "train_micro_batch_size_per_gpu": BATCH,
                   "data": {"type": "text", "path": os.path.join(scratch, "text"),
                            "sequence_length": SEQUENCE},
                   "checkpoint": {"every": 0}}, f)


def row(case, system, seconds, sgemm, note=""):
    tokens = case.ranks * BATCH * SEQUENCE / seconds
    flops = tokens * flop_a_token()
    share = f"{flops / sgemm:9.2f}" if sgemm else f"{'':9}"
    print(f"{case.dtype} on {case.ranks:<3} {system:16} {tokens:9.0f} {flops / 1e9:9.1f} "
          f"{share}  {note}", flush=True)
    return flops / sgemm if sgemm else None


def compare(case, best, seconds):
    """Returns the speed as a multiple of FSDP2's, in words, and whether that is enough."""
    fastest = min(peer_s for peer_s, _ in best.values())
    if fastest < NEVER:
        ratio = fastest / seconds
        return f"{ratio:.2f} times FSDP2", ratio >= case.target, case.target
    had = min(had for _, had in best.values())
    return (f">= {had / seconds:.1f} times FSDP2 (the peer ended no step in {had:.0f} s)",
            had / seconds >= case.target, case.target)


def judge(case, ratio, share, waited):
    """Prints the verdicts. Returns the number of missed targets. ratio: as compare returns it; ratio and share are
    None with --alone."""
    checks = [ratio] if ratio else []
    if case.name == "fp32" and share is not None:
        checks.append((f"{share:.2f} of sgemm", share >= SGEMM_TARGET, SGEMM_TARGET))
    if case.name == "ranks4":
        checks.append((f"{waited:.3f} of the time waiting for gathers", waited < WAIT_TARGET,
                       WAIT_TARGET))
    for text, ok, target in checks:
        print(f"{case.dtype} on {case.ranks} ranks: {text}, target {target}: "
              f"{'ok' if ok else 'MISSED'}", flush=True)
    return sum(not ok for _, ok, _ in checks)


def measure(case, python, scratch, args):
    systems = {"dcp-train": lambda: ours(case, scratch, args.steps)}
    if not args.alone:
        for name, options in variants(case, python).items():
            systems[name] = functools.partial(peer, python, case, scratch, args, name, options)
    if args.before:
        systems[BEFORE] = functools.partial(ours, case, scratch, args.steps, args.before)
    best, rates = {}, []
    for _ in range(args.repeat):
        if not args.alone:
            rates.append(sgemm_flops(python))
        for name, once in systems.items():
            if name not in best or best[name][0] < NEVER:
                best[name] = min(best.get(name, (NEVER, NEVER)), once())
    sgemm = max(rates, default=None)
    seconds, mfu, waited = best.pop("dcp-train")
    share = row(case, "dcp-train", seconds, sgemm, f"mfu {mfu:.2f}, waited {100 * waited:.1f} %")
    if args.before:
        before = best.pop(BEFORE)[0]
        row(case, BEFORE, before, sgemm, f"a step now takes {seconds / before:.3f} of its time")
    for name, (peer_s, _) in best.items():
        if peer_s < NEVER:
            row(case, name, peer_s, sgemm)
    return judge(case, compare(case, best, seconds) if best else None, share, waited)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir")
    parser.add_argument("--only", default="fp32,bf16,ranks4")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--before", metavar="BIN")
    args = parser.parse_args()
    chosen = args.only.split(",")
    unknown = set(chosen) - {case.name for case in CASES}
    if unknown or args.steps <= WARM_UP or args.repeat < 1:
        parser.error(f"--only: {', '.join(unknown)}" if unknown else "too few steps or repeats")
    python = None if args.alone else prepare_venv()
    os.makedirs(args.dir, exist_ok=True)
    print(f"{'':9} {'':16} {'tokens/s':>9} {'GFLOP/s':>9} {'of sgemm':>9}", flush=True)
    with tempfile.TemporaryDirectory(dir=args.dir, prefix="train-") as scratch:
        write_inputs(scratch)
        return min(1, sum(measure(case, python, scratch, args)
                          for case in CASES if case.name in chosen))


if __name__ == "__main__":
    sys.exit(main())
