#!/usr/bin/env python3
"""A dead peer: a rank is killed before or within a collective function of the library.

Each function is run by three ranks: over shared memory, over messages, on two hosts, and over a caller's table of
functions. Rank 0, 1 or the last one gets SIGKILL before it calls the function, or at the first, the middle or the last
internal point of it (crash_peers.c defines points). The launcher lets the other ranks live. Each of them
  - returns DCP_ERR_COMM that names the victim, or was done before it needed the victim again;
  - returns the same from a collective call after that;
  - does so within two seconds of the death, and closes everything within two more;
  - does not call a caller's table again after it has failed.
Functions that begin with MPI's communicator do not know the ranks yet: for them a limit of 3 s is set, and they need
not name the victim.

    crash_peers.py [--sample] [--only PATTERN] [--jobs N] [--within SECONDS] [--record FILE]

--sample: one case per function, at points with fixed numbers. --record writes the table of docs/crash-matrix.md. Exit
status: 0 if all cases pass, else 1."""
import argparse
import collections
import concurrent.futures
import fnmatch
import os
import shutil
import signal
import subprocess
import sys
import tempfile

ERR_COMM = -8
RANKS = 3
WAYS = ("shared", "messages", "hosts", "table")
BIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/tests/bin")
PROGRAM = os.environ.get("CRASH_PEERS", os.path.join(BIN, "crash_peers"))
MPIRUN = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split() + ["--enable-recovery", "-n", str(RANKS)]
PATIENCE = int(os.environ.get("CRASH_PATIENCE", "100"))  # seconds; only a run that hangs takes that long

Case = collections.namedtuple("Case", "way function victim point on_mpi")


class Failed(Exception):
    pass


def run(case):
    """Runs a case in a folder of its own; returns what the ranks wrote, by the files' names."""
    folder = tempfile.mkdtemp(prefix="dcp_peers.")
    command = MPIRUN + [PROGRAM, case.way, case.function, str(case.victim), str(case.point), folder]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder)
    try:
        try:
            output, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate()
            output += "\n(it hung)"
        found = {}
        for name in os.listdir(folder):
            if name == "died" or name.startswith("rank-"):
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    found[name] = file.read()
        return found, output
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def count_points(way, function, on_mpi):
    """Returns the number of internal points of each rank, from a run in which no rank is killed."""
    found, output = run(Case(way, function, 0, -1, on_mpi))
    if len(found) != RANKS:
        raise Failed(f"{way} {function}: does not even run:\n{output}")
    return [int(found[f"rank-{rank}"]) for rank in range(RANKS)]


def check(case, within):
    """Returns (how many ranks failed, the longest time until one returned, and until all was closed)."""
    found, output = run(case)
    if "died" not in found:
        raise Failed(f"the victim lives\n{output}")
    died = int(found["died"])
    failed, slowest, closing = 0, 0.0, 0.0
    for rank in range(RANKS):
        if rank == case.victim:
            continue
        if f"rank-{rank}" not in found:
            raise Failed(f"rank {rank} did not end by itself\n{output}")
        words = found[f"rank-{rank}"].split(None, 8)
        status, named, after, named_after, returned, closed, _, again = map(int, words[:8])
        said = f"rank {rank}: status {status}, naming {named}; afterwards {after}, naming {named_after}: {words[8]}"
        if status not in (0, ERR_COMM) or (status == 0 and case.point == 0):
            raise Failed(said)
        if after != ERR_COMM or again:
            raise Failed(f"{said}; {again} calls of a table that had failed")
        may_name = [case.victim] + ([-1] if case.on_mpi else [])
        if case.way != "table" and (named_after != case.victim or (status and named not in may_name)):
            raise Failed(said)
        failed += status != 0
        slowest = max(slowest, (returned - died) / 1e9)
        closing = max(closing, (closed - max(returned, died)) / 1e9)
    if slowest > within + 4 * case.on_mpi or closing > within:
        raise Failed(f"returned after {slowest:.2f} s, closed after {closing:.2f} s more")
    return failed, slowest, closing


def all_cases(functions, pool):
    pairs = [(way, name, on_mpi) for way in WAYS for name, on_mpi in functions if not (on_mpi and way == "table")]
    for (way, name, on_mpi), points in zip(pairs, pool.map(lambda pair: count_points(*pair), pairs)):
        for victim in (0, 1, RANKS - 1):
            last = max(points[victim], 3)
            for point in (0, 1, (last + 1) // 2, last):
                yield Case(way, name, victim, point, on_mpi)


def sample_cases(functions):
    for i, (name, on_mpi) in enumerate(functions):
        way = WAYS[i % (3 if on_mpi else 4)]
        yield Case(way, name, (0, 1, RANKS - 1)[i // 4 % 3], (0, 3, 9, 16, 30)[i % 5], on_mpi)


def list_functions():
    lines = subprocess.run([PROGRAM, "list"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return [(line.removesuffix(" (MPI)"), line.endswith(" (MPI)")) for line in lines]


def describe(tally):
    lines = ["| over | cases | all others return DCP_ERR_COMM | some or all were done before | longest until it "
             "returns | failed |", "| --- | --- | --- | --- | --- | --- |"]
    for way, (cases, every, some, slowest, bad) in tally.items():
        lines.append(f"| {way} | {cases} | {every} | {some} | {slowest:.2f} s | {bad} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Kills a rank before and within each collective function.")
    parser.add_argument("--sample", action="store_true")
    parser.add_argument("--only", default="*", help="a pattern for 'WAY FUNCTION'")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--within", type=float, default=2.0)
    parser.add_argument("--record")
    given = parser.parse_args()
    os.environ.setdefault("OMPI_MCA_orte_abort_timeout", "1")
    tally = {way: [0, 0, 0, 0.0, 0] for way in WAYS}
    functions = list_functions()
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        wanted = [f for f in functions if any(fnmatch.fnmatch(f"{way} {f[0]}", given.only) for way in WAYS)]
        cases = list(sample_cases(wanted) if given.sample else all_cases(wanted, pool))
        cases = [c for c in cases if fnmatch.fnmatch(f"{c.way} {c.function}", given.only)]
        futures = {pool.submit(check, case, given.within): case for case in cases}
        for future in concurrent.futures.as_completed(futures):
            case = futures[future]
            row = tally[case.way]
            row[0] += 1
            try:
                failed, slowest, _ = future.result()
                row[1 if failed == RANKS - 1 else 2] += 1
                row[3] = max(row[3], slowest)
            except Failed as why:
                row[4] += 1
                print(f"{case.way} {case.function}: rank {case.victim} killed at point {case.point}: {why}",
                      flush=True)
    table = describe(tally)
    print(table)
    if given.record:
        with open(given.record, "w", encoding="utf-8") as file:
            file.write(table)
    return 1 if any(row[4] for row in tally.values()) or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
