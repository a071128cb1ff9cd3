#!/usr/bin/env python3
"""A rank that hangs is a failure like any other: after --stall seconds without progress of any rank, dcp-run names the
ranks that are behind, writes the stacks of all ranks and restarts them, and the run ends as an undisturbed one. This
holds from the first report of a rank on, before any step."""
import os, re, shutil, signal, subprocess, time
from train_lib import (BIN, cases, check, config, fail, losses, make_text, state, steps, TIMEOUT,
                       train, TRAINER)


def hung(name, until_ready, *options):
    """Runs two ranks, and stops one of them once until_ready() holds. Returns stderr."""
    with open(f"{name}.err", "w") as err:
        run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--max-restarts", "2", "--stall", "4", *options,
                                "--", TRAINER, "config.json", f"checkpoint.dir={name}", f"metrics={name}.jsonl"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
    try:
        deadline = time.monotonic() + TIMEOUT
        text = lambda: open(f"{name}.err").read()
        while not (pids := re.search(r"start 1, 2 ranks, pids (\d+) (\d+)", text())) or not until_ready(text()):
            check(run.poll() is None and time.monotonic() < deadline, f"{name}: {text()}")
            time.sleep(0.001)
        os.kill(int(pids[2]), signal.SIGSTOP)
        status = run.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        fail(f"{name} hangs: {text()}")
    finally:
        run.kill()
    check(status == 0, f"{name}: exit {status}: {text()}")
    check((state(12, name), losses(f"{name}.jsonl")) == whole(), f"{name}: another result")
    check("start 2, 2 ranks" in text(), f"{name}: {text()}")
    return text(), pids


def stacks_of(text, pids):
    for rank, pid in enumerate(pids.groups()):
        check(f"== rank {rank}, process {pid} (dcp-train) ==" in text, f"no stack of {pid}: {text}")
    check(f"thread {pids[2]} (dcp-train), state T (stopped)" in text, text)
    if shutil.which("gdb") and "Operation not permitted" not in text:
        check(re.search(r"#\d+ .* in main \(", text), f"no functions: {text}")


@cases.shared
def whole():
    make_text()
    config(max_steps=12, metrics=None)
    train(1, "config.json", "checkpoint.dir=whole", "metrics=whole.jsonl")
    reference = state(12, "whole"), losses("whole.jsonl")
    return reference


def test_a_rank_that_hangs_in_training():
    cases.use(whole)
    text, pids = hung("in_steps", lambda _: len(steps("in_steps")) >= 4)
    check(re.search(r"no rank has made progress for \d+ s", text), text)
    stacks_of(text, pids)


def test_a_rank_that_hangs_at_the_start():
    cases.use(whole)
    text, pids = hung("at_start", lambda text: "parameters in" in text, "--logs", "logs")
    check(re.search(r"no rank has made progress for \d+ s", text), text)
    stacks_of(open("logs/start-1/stacks.log").read(), pids)


cases.main()
