#!/usr/bin/env python3
"""--trace writes one file for all ranks, complete JSON also if SIGTERM ends the run. In it, pieces of work nest; each
step has a slice with its number and loss; every unit is computed, gathered and reduced on every rank; saves have their
pieces, and slower stores their fills, at the right times."""
import glob, json, os, signal
from collections import defaultdict
from train_lib import cases, check, config, make_text, metrics, MODEL, Run, steps, train

RANKS, EPSILON = 3, 0.0005  # microseconds: half of the last digit that is written
UNITS = MODEL["num_hidden_layers"] + 1


def events(path):
    with open(path) as f:
        found = json.load(f)["traceEvents"]
    names = {(e["pid"], e.get("tid")): e["args"]["name"] for e in found if e["ph"] == "M"}
    threads = defaultdict(list)
    for e in found:
        if e["ph"] == "X":
            threads[e["pid"], e["tid"]].append(e)
    return names, threads


def nests(timeline):
    """Checks for one thread that a piece ends before the next one begins, or contains it."""
    open_ends = []
    for e in sorted(timeline, key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= e["ts"] + EPSILON:
            open_ends.pop()
        end = e["ts"] + e["dur"]
        check(not open_ends or end <= open_ends[-1] + EPSILON, f"{e} overlaps what ends at {open_ends}")
        open_ends.append(end)


def check_save(timeline, save):
    """Checks that the pieces of a save are in it, in order, and the waits for the disk in those that move data."""
    def end(e):
        return e["ts"] + e["dur"]

    def within(e, others):
        return any(o["ts"] - EPSILON <= e["ts"] and end(e) <= end(o) + EPSILON for o in others)

    own = sorted((e for e in timeline if e is not save and within(e, [save])), key=lambda e: e["ts"])
    pieces = [e for e in own if e["name"] != "write"]
    if [e["name"] for e in pieces[:2]] == ["plan", "plan"]:
        pieces.pop(1)  # what the thread that saves plans; HDF5 is not called there
    if pieces[1:] and pieces[1]["name"] == "copy":
        pieces.pop(1)  # extents that a file system can share
    check([e["name"] for e in pieces] == ["plan", "gather pieces", "copy", "publish", "sync", "publish"],
          f"the pieces of {save} are {pieces}")
    check(all(end(a) <= b["ts"] + EPSILON for a, b in zip(pieces, pieces[1:])), f"{pieces} overlap")
    check(abs(pieces[0]["ts"] - save["ts"]) < EPSILON and end(pieces[-1]) <= end(save) + EPSILON,
          f"{save} is not where its pieces are: {pieces}")
    check(all(within(e, pieces[1:3]) for e in own if e["name"] == "write"), f"a write in {pieces}")
    return sum(e["name"] == "write" for e in own)


def check_steps(path, names, threads):
    """Checks that rank 0 has one slice per step, in order, which contains the step's optimizer."""
    lines = metrics(path)
    slices = threads[0, 0]
    check(names[0, 0] == "steps" and not any((rank, 0) in threads for rank in range(1, RANKS)), f"{names}")
    check([(e["name"], e["args"]["loss"]) for e in slices] == [(f"step {v['step']}", v["loss"]) for v in lines],
          f"{slices}, not {[(v['step'], v['loss']) for v in lines]}")
    check(slices[0]["ts"] >= 0, f"the first step begins before the trace: {slices[0]}")
    updates = [e for e in threads[0, 1] if e["name"] == "optimizer"]
    for e in slices:
        inside = [u for u in updates if e["ts"] - EPSILON <= u["ts"] and u["ts"] + u["dur"] <= e["ts"] + e["dur"] + EPSILON]
        check(inside, f"{e} holds no update of {updates}")


def check_trace(path, steps, leaves, saves=1, told="metrics.jsonl"):
    names, threads = events(path)
    check_steps(told, names, threads)
    check({pid for pid, _ in threads} == set(range(RANKS)), "not all ranks are there")
    for (pid, tid), timeline in threads.items():
        nests(timeline)
        check(all(e["ts"] > -1e5 and e["ts"] + e["dur"] < 1e9 for e in timeline), "a clock is off")
    for rank in range(RANKS):
        check(names[rank, None] == f"rank {rank}", "a rank has no name")
        own = [e for (pid, _), timeline in threads.items() for e in timeline if pid == rank]
        count = defaultdict(int)
        for e in own:
            count[e["name"]] += 1
        for unit in range(UNITS):
            stages = 2 if unit == 0 else 1  # the root has the embedding and the head
            micro_steps = -(-leaves // RANKS)
            for work, times in (("forward", stages * micro_steps), ("backward", stages * micro_steps),
                                ("reduce", micro_steps)):
                check(count[f"{work} unit {unit}"] == times * steps,
                      f"rank {rank}: {count[f'{work} unit {unit}']} times {work} unit {unit}")
            check(count[f"gather unit {unit}"] >= steps, f"rank {rank}: unit {unit} is not gathered")
        check(count["read data"] == steps and count["optimizer"] >= steps, f"rank {rank}: {dict(count)}")
        for step in range(1, steps + 1):
            check(count[f"save step {step}"] == (saves if step == steps else 1),
                  f"rank {rank}: step {step} is saved {count[f'save step {step}']} times")
    waits = sum(check_save(threads[pid, tid], e) for pid, tid in threads for e in threads[pid, tid]
                if e["name"].startswith("save step"))
    check(waits, "no save waits for the disk")
    return threads


@cases.shared
def traced():
    make_text()
    make_text()
    config(max_steps=4, data={"sequence_length": 32},
           checkpoint={"every": 2, "stores": [{"path": "fast", "every": 1, "keep": 2, "redundancy": "none"}]})
    train(RANKS, "config.json", "--trace", "trace.json")


def test_a_trace_has_all_work_of_all_ranks():
    cases.use(traced)
    threads = check_trace("trace.json", 4, 7, saves=2)  # the last step is saved in both stores
    for rank in range(RANKS):
        fills = [e for (pid, _), timeline in threads.items() for e in timeline
                 if pid == rank and e["name"].startswith("fill")]
        saved = next(e for (pid, _), t in threads.items() for e in t if pid == rank and e["name"] == "save step 2")
        check([e["name"] for e in fills] == ["fill with step 2"] and fills[0]["dur"] > 0
              and fills[0]["ts"] >= saved["ts"] + saved["dur"] - EPSILON, f"rank {rank}: {fills}, {saved}")
    # Ranks do the last reduction of a step together, so with one clock it overlaps on any two of them.
    last = [max((e for e in threads[r, 2] if e["name"] == "sum losses"), key=lambda e: e["ts"]) for r in range(RANKS)]
    check(max(e["ts"] for e in last) <= min(e["ts"] + e["dur"] for e in last) + 20000, f"clocks differ: {last}")


def test_a_trace_is_complete_after_sigterm():
    cases.use(traced)
    # It replaces the trace of the run before.
    config(max_steps=100000, data={"sequence_length": 32}, checkpoint={"dir": "stopped", "keep": 1})
    run = Run(RANKS, "config.json", "--trace", "trace.json")
    pids = []
    run.wait_for(lambda: pids or pids.extend(run.pids()), "its ranks")
    run.wait_for(lambda: glob.glob("stopped/step-*3"), "a step")
    os.kill(pids[1], signal.SIGTERM)
    check(run.wait() == 143, "SIGTERM does not end it")
    done = len(metrics())
    check_trace("trace.json", done, 7)


def test_a_file_that_is_no_trace_is_not_replaced():
    cases.use(traced)
    before, lines = open("text").read(), metrics()
    _, err = train(1, "config.json", "--trace", "text", "checkpoint.dir=other", expect=2)
    check("text exists and is not a trace" in err and open("text").read() == before, err)
    check(not os.path.exists("other") and metrics() == lines, "it is refused late")
    _, err = train(1, "config.json", "--trace", "text", "checkpoint.dir=other", "--dry-run", expect=2)
    check("text exists and is not a trace" in err, err)
    train(1, "config.json", "--trace", "no/such/folder/t.json", "checkpoint.dir=other", expect=2)


cases.main()
