#!/usr/bin/env python3
"""The Python package compared with torch's own checkpoints, torch_checkpointing and dcp-bench: saves on 4 ranks, cold
loads on 8.

  tests/bench/pytorch.py DIR [--rounds 3] [--works big,small,train] [--systems libdcp,dcp,torch_checkpointing]

In one program under torchrun, all systems save and load the same DTensors in turns; in each round, dcp-bench does the
same by MPI before and after. The table gives medians. The targets determine the exit status:
- big state (2.28 GB): at least 0.85 of dcp-bench's figure for a save and for a load
- small state (10,806 tensors, 0.30 GB): at most 2.5 times dcp-bench's time for a save, and 1.8 times for a load
- an asynchronous save of either with copy=False returns within 1 % of the time of a durable one (libdcp's call is
  made ten more times, since it is short compared with the time that four ranks wait for the few cores)
- an asynchronous save that copies returns within 1.25 times the time of memcpy for the same bytes, except for the
  store's first save, which copies into fresh memory. Measured on no more ranks than there are cores: with more, both
  times consist mostly of waiting for a core, and the call, in which a thread of each rank begins the save, waits longer
- training with a save beside every second step: these steps run at 0.97 of the other steps' speed, for both kinds of
  save, not counting the call that copies
DIR: a folder on the disk to measure; needs 12 GB there. Requires a Python with torch and the package
(tests/python/run.sh makes one). DCP_BIN: where dcp-bench is (build/bin)."""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(os.environ.get("DCP_BIN", HERE.parents[1] / "build/bin"))
SHAPES = {"big": "--layers 10 --hidden 1024 --vocab 32000".split(),
          "small": "--layers 400 --hidden 64 --vocab 1000".split()}
RANKS = {"save": 4, "async": 4, "load": 8}
CORES = len(os.sched_getaffinity(0))
REPEAT = 3
CALLS = 10
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
               "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def lines_of(command):
    done = subprocess.run(list(map(str, command)), env=ENVIRONMENT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def torchrun(ranks, program, *arguments):
    return lines_of([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks,
                     HERE / "pytorch" / program, *arguments])


def dcp_bench(folder, op, shape):
    return lines_of(["mpirun", "--oversubscribe", "-n", RANKS[op], BIN / "dcp-bench", op, folder / "dcp-bench",
                     "--repeat", REPEAT, *shape])


def measure(folder, work, systems, rounds):
    """Returns (system, op) -> [(seconds, seconds of the call, seconds of memcpy)]."""
    found = {}

    def note(system, row):
        found.setdefault((system, row["op"]), []).append((row["s"], row["stall_s"], row.get("memcpy_s", 0)))
    for _ in range(rounds):
        for op in RANKS:
            able = [s for s in systems if op != "async" or s != "torch_checkpointing"]
            extra = ["libdcp_at_once"] if op == "load" and "libdcp" in able else []
            runs = [(RANKS[op], REPEAT, able + extra)]
            if op == "async" and "libdcp" in able:
                runs += [(RANKS[op], CALLS, ["libdcp"]), (min(RANKS[op], CORES), CALLS, ["libdcp_copied"])]
            for ranks, repeat, together in runs:
                rows = torchrun(ranks, "ranks.py", op, folder, "--ranks", ranks, "--rounds", repeat,
                                "--systems", ",".join(together), *SHAPES[work])
                for row in rows[1:] if together == ["libdcp_copied"] else rows:
                    note(row["system"], row)
            for row in dcp_bench(folder, op, SHAPES[work]):
                note("dcp-bench", row)
    return found


def judge(what, value, target, at_most):
    good = value <= target if at_most else value >= target
    print(f"{what}: {value:.3f}, target {'at most' if at_most else 'at least'} {target}: {'ok' if good else 'MISSED'}")
    return good


def show(work, found):
    """Prints the rows. Returns true if the targets are reached."""
    s = {key: statistics.median(seconds for seconds, _, _ in rows) for key, rows in found.items()}
    call = {key: statistics.median(stall for _, stall, _ in rows) for key, rows in found.items()}
    for (system, op), seconds in s.items():
        note = f"  call {call[system, op] * 1e3:8.1f} ms" if op == "async" else ""
        print(f"{work:6} {op:6} {system:20} {seconds:8.3f} s, {seconds / s['dcp-bench', op]:6.2f} times dcp-bench's{note}")
    if ("libdcp", "save") not in s:
        return True
    of = {op: s["libdcp", op] / s["dcp-bench", op] for op in ("save", "load")}
    returns = judge(f"{work}, save_async's call, of a durable save", call["libdcp", "async"] / s["libdcp", "save"], 0.01, True)
    memcpy = statistics.median(seconds for _, _, seconds in found["libdcp_copied", "async"])
    returns &= judge(f"{work}, save_async's call that copies, times memcpy's", call["libdcp_copied", "async"] / memcpy, 1.25,
                     True)
    if work == "small":
        return all([returns, judge("small, save, times dcp-bench's", of["save"], 2.5, True),
                    judge("small, load, times dcp-bench's", of["load"], 1.8, True)])
    return all([returns, judge("big, save, of dcp-bench's speed", 1 / of["save"], 0.85, False),
                judge("big, load, of dcp-bench's speed", 1 / of["load"], 0.85, False)])


def train(folder, rounds):
    both = [torchrun(2, "train.py", folder / "train") for _ in range(rounds)
            if not shutil.rmtree(folder / "train", ignore_errors=True)]
    return all([judge_train(list(rows)) for rows in zip(*both)])


def judge_train(rows):
    ratio = statistics.median(row["ratio"] for row in rows)
    step, lost = (statistics.median(row[a] - row.get(b, 0) for row in rows)
                  for a, b in (("without_s", None), ("beside_s", "without_s")))
    print(f"train  {rows[0]['parameters'] / 1e6:.0f} M parameters, steps of {step:.3f} s, {1e3 * lost:.0f} ms more beside a save "
          f"with copy={rows[0]['copy']}")
    return judge("train, speed beside a save", ratio, 0.97, False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--works", default="big,small,train")
    parser.add_argument("--systems", default="libdcp,dcp,torch_checkpointing")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)
    good = True
    for work in args.works.split(","):
        with tempfile.TemporaryDirectory(dir=args.dir, prefix="pytorch-") as scratch:
            if work == "train":
                good &= train(Path(scratch), args.rounds)
            else:
                good &= show(work, measure(Path(scratch), work, args.systems.split(","), args.rounds))
    sys.exit(not good)


if __name__ == "__main__":
    main()
