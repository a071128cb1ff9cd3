#!/usr/bin/env python3
"""Undisturbed runs over three hosts beside four busy processes: each ends with exit 0 after one start, and leaves nothing.

    hosts_undisturbed.py [RUNS]     by default two
"""
from hosts_train import *

LAST = 8
SPIN = [sys.executable, "-c", "while True: pass"]
cluster = host_file(*(f"{name} slots=2" for name in hosts.names))


def run(i, ranks):
    name = f"run-{i}"
    path = config(f"{name}.json", max_steps=LAST, metrics=f"{name}.jsonl",
                  checkpoint={"dir": name, "every": LAST, "stores": private(name, "rs(1)")})
    text = Supervised(name, ["-n", ranks, "--hosts", cluster], path).ends()
    check("restart" not in text and "is lost" not in text and restarts(text) == [], text)
    check(f"step {LAST} is saved" in text and steps(name) == [LAST], text)
    check_clear()


runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
busy = [subprocess.Popen(SPIN) for _ in range(4)]
try:
    for i in range(runs):
        run(i, 4 + 2 * (i % 2))
        print(f"run {i + 1} of {runs}: one start, exit 0", flush=True)
finally:
    for process in busy:
        process.kill()
