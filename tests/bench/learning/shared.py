"""Shared by the demonstrations: running dcp-train and the tools, batches in dcp-train's order, and the schedule."""
import glob
import json
import os
import subprocess
import sys
import sysconfig
import warnings

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", TQDM_DISABLE="1")
# PyTorch's schedules step before the update, as dcp-train's do.
warnings.filterwarnings("ignore", message="Detected call of .lr_scheduler.step")
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
BIN = os.environ.get("DCP_BIN", os.path.join(ROOT, "build/bin"))
ENV = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                    "OMP_NUM_THREADS": "1",
                    "OMPI_MCA_mpi_yield_when_idle": "1"}  # there may be fewer cores than ranks
RANKS = 2
MASK32, MASK64 = (1 << 32) - 1, (1 << 64) - 1


def run(*command, cwd=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=ENV, cwd=cwd)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: exit {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def tool(name, *args):
    return run(os.path.join(BIN, name), *args)


def train(folder, name, config, *overrides):
    """Trains on RANKS ranks. Returns the lines of metrics.jsonl. The checkpoint is in folder/name."""
    path, lines = os.path.join(folder, f"{name}.json"), os.path.join(folder, f"{name}.jsonl")
    with open(path, "w") as f:
        json.dump(config, f)
    run("mpirun", "--oversubscribe", "-n", RANKS, os.path.join(BIN, "dcp-train"), path,
        f"checkpoint.dir={os.path.join(folder, name)}", f"metrics={lines}", *overrides, cwd=folder)
    with open(lines) as f:
        return [json.loads(line) for line in f]


def judge(what, figure, ok):
    print(f"{what}: {figure}: {'ok' if ok else 'MISSED'}", flush=True)
    return ok


def library_text(train_bytes, eval_bytes):
    """Returns real text that exists wherever this runs, for training and for evaluation: the sources of Python's
    standard library sorted by name, with every eighth file for evaluation."""
    paths = sorted(glob.glob(os.path.join(sysconfig.get_paths()["stdlib"], "*.py")))
    parts = (b"".join(open(p, "rb").read() for i, p in enumerate(paths) if (i % 8 == 0) == held_out)
             for held_out in (False, True))
    texts = [text[:n] for text, n in zip(parts, (train_bytes, eval_bytes), strict=True)]
    if list(map(len, texts)) != [train_bytes, eval_bytes]:
        sys.exit("learns.py: this Python's standard library is too small a text")
    return texts


def philox(counter, key):
    """Returns the first word of Philox4x32-10."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & MASK32, a >> 32 ^ c[3] ^ k[1], a & MASK32]
        k = [k[0] + 0x9E3779B9 & MASK32, k[1] + 0xBB67AE85 & MASK32]
    return c[0]


def permute(i, n, seed, epoch):
    """Returns the place of dcp-train's sample i of n in an epoch: a Feistel network, applied repeatedly until the
    result is < n."""
    bits = 1
    while 1 << 2 * bits < n:
        bits += 1
    mask = (1 << bits) - 1
    while True:
        left, right = i >> bits, i & mask
        for r in range(6):
            mixed = philox((right, r, epoch & MASK32, epoch >> 32), (seed & MASK32, seed >> 32))
            left, right = right, left ^ mixed & mask
        i = left << bits | right
        if i < n:
            return i


def sample_numbers(step, batch, n, seed):
    """Returns the numbers of the samples of a step among the n of an epoch; steps count from 1."""
    return [permute(g % n, n, seed, g // n) for g in range((step - 1) * batch, step * batch)]


def split_parameters(model, no_decay, decay):
    """Returns groups for AdamW: parameters with a word of no_decay in their names do not decay."""
    named = dict(model.named_parameters()).items()
    return [{"params": [p for n, p in named if no_decay not in n], "weight_decay": decay},
            {"params": [p for n, p in named if no_decay in n], "weight_decay": 0.0}]
