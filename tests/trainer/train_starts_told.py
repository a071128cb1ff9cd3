#!/usr/bin/env python3
"""What dcp-run reports of a restart and at the end, even if mpirun was killed, from which nothing was heard before: parts
that add up to no more than the run took, and one failure."""
import os, re, signal, subprocess, time
from train_lib import BIN, cases, check, config, make_text, steps, TIMEOUT, TRAINER, wait_for_end


def test_parts_of_a_restart_add_up():
    make_text()
    begin = time.monotonic()
    with open("err", "w") as err:
        run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--", TRAINER, config()],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
    text = lambda: open("err").read()
    deadline = begin + TIMEOUT
    while not (pids := re.search(r"start 1, 2 ranks, pids (\d+)", text())) or len(steps()) < 3:
        check(run.poll() is None and time.monotonic() < deadline, text())
        time.sleep(0.001)
    mpirun = int(re.search(r"^PPid:\s*(\d+)", open(f"/proc/{pids[1]}/status").read(), re.M)[1])
    os.kill(mpirun, signal.SIGKILL)
    check(wait_for_end(run, text) == 0, text())
    took = time.monotonic() - begin

    line = re.search(r"^dcp-run: start 2: .*; noticed ([\d.]+) s, ended ([\d.]+), started ([\d.]+), rebuilt "
                     r"([\d.]+), loaded ([\d.]+), first step ([\d.]+): ([\d.]+) s$", text(), re.M)
    check(line, text())
    *parts, total = map(float, line.groups())
    check(abs(sum(parts) - total) < 0.05 and total < took, f"{took} s: {line[0]}")
    summary = re.search(r"^dcp-run: 2 starts, 1 after failures, 0 planned: .*, ([\d.]+) s lost$", text(), re.M)
    check(summary and float(summary[1]) < took, text())


cases.main()
