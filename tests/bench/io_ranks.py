#!/usr/bin/env python3
"""Saves and loads of 2.28 GB on growing numbers of ranks, with shared memory and by messages.

  tests/bench/io_ranks.py DIR [--ranks 2,4,8,32,64] [--rounds 3] [--small]

All cases take turns, round after round, and each round also measures fio's writes and reads, since the speed of a
shared machine changes from minute to minute. Each case is divided by the fio of its round; the table gives medians of
these shares over the rounds. Targets: a save and a load on 32 ranks reach at least 0.9 of the share of 8 ranks, with
shared memory and without. Exit status 1 if one is missed.
DIR: a folder on the disk to measure; needs 5 GB there. --small: 0.30 GB in 10,806 tensors.
DCP_BIN says where dcp-bench is (build/bin)."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BIG = "--layers 10 --hidden 1024 --vocab 32000".split()
SMALL = "--layers 400 --hidden 64 --vocab 1000".split()
BIN = Path(os.environ.get("DCP_BIN", Path(__file__).resolve().parents[2] / "build/bin"))
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "OMP_NUM_THREADS": "1"}
WAYS = {"1": "shared memory", "0": "messages"}


def fio(scratch, direction):
    """Returns the GB/s of 4 MiB requests that bypass the page cache."""
    out = subprocess.run(
        ["fio", "--name=io", f"--filename={scratch}/fio", "--size=2G", "--bs=4M", f"--rw={direction}", "--direct=1",
         "--ioengine=io_uring", "--iodepth=8", "--fallocate=posix", "--end_fsync=1", "--output-format=json"],
        check=True, capture_output=True, text=True).stdout
    return json.loads(out)["jobs"][0][direction]["bw_bytes"] / 1e9


def ours(scratch, ranks, way, op, shape):
    """Returns the GB/s of one save or load, by processes that have saved nothing before."""
    out = subprocess.run(
        ["mpirun", "--oversubscribe", "-n", str(ranks), BIN / "dcp-bench", op, scratch / "ckpt", "--repeat", "1",
         *shape],
        check=True, capture_output=True, text=True, env={**os.environ, **AS_ROOT, "DCP_SHARED_MEMORY": way}).stdout
    return json.loads(out.splitlines()[-1])["gb_per_s"]


def measure(scratch, ranks, rounds, shape):
    """Returns shares of fio by (ranks, way, op), with one figure per round."""
    shares = {(n, way, op): [] for n in ranks for way in WAYS for op in ("save", "load")}
    for number in range(rounds):
        base = {"save": fio(scratch, "write"), "load": fio(scratch, "read")}
        (scratch / "fio").unlink()
        print(f"round {number + 1}: fio writes {base['save']:.2f} GB/s, reads {base['load']:.2f}", file=sys.stderr)
        for (n, way, op), list_ in shares.items():
            list_.append(ours(scratch, n, way, op, shape) / base[op])
    return {case: statistics.median(list_) for case, list_ in shares.items()}


def show(shares, ranks):
    """Prints the table. Returns true if the targets are met."""
    print(f"{'medians of shares of fio':<26}" + "".join(f"{n:>8}" for n in ranks) + "  ranks")
    met = True
    for way, name in WAYS.items():
        for op in ("save", "load"):
            row = [shares[n, way, op] for n in ranks]
            word = ""
            if 8 in ranks and 32 in ranks:
                ratio = shares[32, way, op] / shares[8, way, op]
                met = met and ratio >= 0.9
                word = f"  32 of 8: {ratio:.2f} {'ok' if ratio >= 0.9 else 'MISSED (0.9)'}"
            print(f"{op + ', ' + name:<26}" + "".join(f"{share:8.2f}" for share in row) + word)
    return met


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--ranks", default="2,4,8,32,64")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    ranks = [int(n) for n in args.ranks.split(",")]
    args.dir.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="bench-", dir=args.dir))
    try:
        met = show(measure(scratch, ranks, args.rounds, SMALL if args.small else BIG), ranks)
    finally:
        shutil.rmtree(scratch)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
