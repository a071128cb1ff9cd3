#!/usr/bin/env python3
"""A checkpoint directory that is moved away during a run ends the run at the next save, with what happened and exit status
3. dcp-run does not start again beside what was moved: neither then, nor if a rank dies as well. Moved back, it is the
directory from which the run continues."""
import os, shutil, signal, subprocess, time
from train_lib import (BIN, cases, check, config, losses, make_text, messages, metrics, Run, state,
                       steps, TIMEOUT, train, TRAINER)

constant = {"type": "constant"}


def test_a_moved_directory_ends_the_run():
    make_text()
    whole = config("whole.json", scheduler=constant, checkpoint={"dir": "whole", "every": 0}, metrics="whole.jsonl")
    moved = config("moved.json", scheduler=constant, max_steps=1000000, metrics="lines.jsonl")
    for ranks in (1, 2):
        with open("err", "w") as err:
            run = subprocess.Popen([f"{BIN}/dcp-run", "-n", str(ranks), "--", TRAINER, moved],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=err)
        deadline = time.monotonic() + TIMEOUT
        while not steps():
            check(run.poll() is None and time.monotonic() < deadline, open("err").read())
            time.sleep(0.001)
        os.rename("ckpt", "elsewhere")
        try:
            status = run.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            run.kill()
            status = "none"
        said = open("err").read()
        check(status == 3, f"exit {status}: {said}")
        check(said.count("checkpoint.dir: ckpt was moved or removed during the run") == 2, said)
        check("giving up: checkpoint.dir" in said and "start 2" not in said, said)
        check(" is not saved: " not in said, f"it went on: {said}")
        check(not os.path.exists("ckpt"), "a directory is made in its place")

        # dcp-run would restart the run if it had seen a step and no reason.
        os.environ["DCP_RUN_RESTART"] = "1"
        _, err = train(ranks, moved, expect=2)
        check("no longer holds any step" in messages(err)[-1], err)
        del os.environ["DCP_RUN_RESTART"]
        shutil.rmtree("ckpt", True)

        os.rename("elsewhere", "ckpt")
        last = max(steps()) + 2
        train(ranks, moved, f"max_steps={last}")
        train(1, whole, f"max_steps={last}")
        check(state(last) == state(last, "whole"), "the state differs")
        check(losses("lines.jsonl") == losses("whole.jsonl"), "losses differ")
        for left in ("ckpt", "whole"):
            shutil.rmtree(left)
        for left in ("lines.jsonl", "whole.jsonl"):
            os.remove(left)


def test_a_requested_or_last_save_ends_the_run_too():
    make_text()
    config("asked.json", max_steps=1000000, scheduler=constant, checkpoint={"every": 0}, metrics="asked.jsonl")
    for asked, said in (("SIGUSR1", "SIGUSR1: step"), ("SIGTERM", "stopped by SIGTERM, but step")):
        run = Run(2, "asked.json")
        run.wait_for(lambda: os.path.exists("asked.jsonl") and len(metrics("asked.jsonl")) > 0, "a first step")
        os.rename("ckpt", "elsewhere")
        os.kill(run.pids()[0], signal.Signals[asked])
        status, err = run.wait(), run.text(run.err)
        check(status == 3 and any(said in m and "ckpt was moved or removed" in m for m in messages(err)), err)
        shutil.rmtree("elsewhere")
        os.remove("asked.jsonl")


cases.main()
