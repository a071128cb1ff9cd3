#!/usr/bin/env python3
"""The soak itself: one run after another, each with faults, until the time is over. soak.sh starts it."""
import collections, random, shutil, sys, time, traceback
from faults import FAULTS
from run import WORLD, Ended, Reference, Run, prepare
from world import Failure, kill_strangers, processes

BURST = 0.3  # the probability of a fault before the run has recovered from the last one
RUN_S = 25  # seconds with faults; then the run is left undisturbed until its end
LAST_S = 15  # seconds before the end of the time during which no run begins
LEAST = 5  # the minimum number of faults of a run, however long they take


def disturb(run, end, counts):
    """Causes faults until the run or the time ends."""
    # More hosts may be lost at once than a store in memory survives, so a step must exist in checkpoint.dir.
    run.until(run.intact, "the first step in checkpoint.dir")
    end, before = min(end, time.monotonic() + RUN_S), counts.total()
    while time.monotonic() < end or counts.total() < before + LEAST:
        if run.random.random() < BURST:
            time.sleep(run.random.uniform(0, 3))
        else:
            run.go_on(run.random.randint(1, 5))
            time.sleep(run.random.uniform(0, 0.05))
        run.look()
        fault, = run.random.choices([f for f, _ in FAULTS], [weight for _, weight in FAULTS])
        begin = time.monotonic()
        done = fault(run)
        if not done:
            continue
        counts[fault.__name__] += 1
        run.say(f"{begin - BEGIN:.2f} s, step {run.newest()}: {done}")


def soak_once(number, seed, end, reference, counts):
    run = Run(number, random.Random(f"{seed} {number}"), memory=(seed + number) % 2)
    print(f"run {number}: {run.told}", flush=True)
    begin = time.monotonic()
    try:
        run.start()
        try:
            disturb(run, end, counts)
        except Ended:
            pass
        run.finish()
        run.check(reference)
    except Exception:
        print(f"--- run {number}, the end of its log:", "".join(open(run.log).readlines()[-60:]),
              sep="\n")
        for p in processes().values():
            print(p)
        raise
    print(f"run {number}: {time.monotonic() - begin:.1f} s, dcp-run started {run.starts} times, "
          f"gave up {run.gave_up} times; the same state and metrics, nothing left over", flush=True)


def main():
    minutes, seed = float(sys.argv[1]), int(sys.argv[2])
    print(f"soak: {minutes:g} minutes, seed {seed}", flush=True)
    counts, number = collections.Counter(), 0
    try:
        prepare()
        reference = Reference()
        end = time.monotonic() + minutes * 60
        while number == 0 or time.monotonic() < end - LAST_S:
            soak_once(number, seed, end, reference, counts)
            number += 1
    except Exception as failure:
        kill_strangers()
        if len(sys.argv) > 3:
            try:
                shutil.copytree(WORLD, f"{sys.argv[3]}/world", symlinks=True)
            except shutil.Error:  # Open MPI makes fifos
                pass
        if not isinstance(failure, Failure):
            traceback.print_exc()
        print(f"FAILED, seed {seed}: {failure}")
        sys.exit(1)
    print(f"soak: {number} runs, {sum(counts.values())} faults in {time.monotonic() - BEGIN:.0f} s: "
          + ", ".join(f"{counts[f.__name__]} {f.__name__}" for f, _ in FAULTS))


BEGIN = time.monotonic()
main()
