#!/usr/bin/env python3
"""dcp-run counts what any store gets: a run whose steps are in memory only is restarted for as long as it makes progress,
more often than --max-restarts, and continues from there, whatever checkpoint.resume says. It computes no step twice but
the one in flight, and says where it continues."""
import glob, os, re, signal, subprocess, time
from train_lib import (BIN, cases, check, config, losses, make_text, state, steps, TIMEOUT, train,
                       TRAINER, wait_for_end)

LAST, KILLS = 40, 3
constant = {"type": "constant", "params": {"warmup_steps": 0}}


def text():
    return open("run.err").read()


def wait_for(run, condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not (found := condition()):
        check(run.poll() is None and time.monotonic() < deadline, f"waited in vain for {what}: {text()}")
        time.sleep(0.001)
    return found


def newest():
    return max([s for folder in glob.glob("memory-*") for s in steps(folder)] + [0])


def test_a_run_with_steps_in_memory_only_is_restarted():
    make_text()
    given = config(scheduler=constant, max_steps=LAST, checkpoint={
        "resume": "never", "every": 1000, "stores": [{"path": "memory-{host}", "every": 1, "keep": 2}]})
    train(1, config("whole.json", scheduler=constant, max_steps=LAST, checkpoint={"dir": "whole", "every": LAST},
                    metrics="whole.jsonl"))

    with open("run.err", "w") as err:
        run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "3", "--max-restarts", "1", "--", TRAINER, given],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)

    killed_at = []
    for start in range(1, KILLS + 1):
        pids = wait_for(run, lambda: re.search(rf"start {start}, 3 ranks, pids (\d+) (\d+) (\d+)\n", text()),
                        f"start {start}")
        before = newest()
        wait_for(run, lambda: newest() >= before + 3, f"three more steps in start {start}")
        os.kill(int(pids[1 + start % 3]), signal.SIGKILL)
        killed_at.append(newest())
    status = wait_for_end(run, text)
    lines = text()
    check(status == 0, f"exit {status}: {lines}")
    check(killed_at[-1] < LAST - 1, f"killed at {killed_at}: too late to say anything")
    resumed = [int(n) for n in re.findall(r"dcp-run: start \d+: step (\d+) from memory-", lines)]
    check(len(resumed) == KILLS, f"goes on {resumed}, killed at {killed_at}: {lines}")
    for at, step in zip(killed_at, resumed):
        check(step >= at, f"killed at {killed_at}, goes on from {resumed}")
    again = [int(n) for n in re.findall(r"; (\d+) steps? to compute again;", lines)]
    check(len(again) == KILLS and max(again) <= 2, f"computes {again} steps again: {lines}")
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another end")


cases.main()
