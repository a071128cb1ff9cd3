#!/usr/bin/env python3
"""Undisturbed runs over three hosts beside four busy processes: each ends with exit status 0 after one start, and
leaves nothing.

hosts_undisturbed.py [RUNS]     by default two"""
import subprocess, sys
from hosts_train import Supervised, cases, check_clear, host_file, hosts, private, restarts
from train_lib import check, config, make_text, steps

LAST = 8
SPIN = [sys.executable, "-c", "while True: pass"]
RUNS = int(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1].isdigit() else 2


def run(i, ranks):
    name = f"run-{i}"
    path = config(f"{name}.json", max_steps=LAST, metrics=f"{name}.jsonl",
                  checkpoint={"dir": name, "every": LAST, "stores": private(name, "rs(1)")})
    text = Supervised(name, ["-n", ranks, "--hosts", "hosts"], path).ends()
    check("restart" not in text and "is lost" not in text and restarts(text) == [], text)
    check(f"step {LAST} is saved" in text and steps(name) == [LAST], text)
    check_clear()


def test_runs_beside_busy_processes_start_once():
    make_text()
    host_file(*(f"{name} slots=2" for name in hosts.names))
    for _ in range(4):
        cases.at_end(subprocess.Popen(SPIN).kill)
    for i in range(RUNS):
        run(i, 4 + 2 * (i % 2))
        print(f"run {i + 1} of {RUNS}: one start, exit 0", flush=True)


cases.main()
