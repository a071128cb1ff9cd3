#!/usr/bin/env python3
"""dcp-run restarts a killed run from the newest step, whatever checkpoint.resume says for the start: even if that would
start anew, refuse, or look for a step that retention has removed."""
import os, re, shutil, signal, subprocess, time
from train_lib import (BIN, cases, check, config, losses, make_text, state, step_path, steps,
                       TIMEOUT, train, wait_for_end)


def restarted(name, *overrides, told):
    """Runs under dcp-run and loses a rank after some published steps."""
    directory = f"checkpoint.dir={name}"
    with open(f"{name}.err", "w+") as err:
        run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--max-restarts", "1", "--",
                                f"{BIN}/dcp-train", "config.json", directory, f"metrics={name}.jsonl",
                                *overrides], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=err)
        before = {(s, os.stat(step_path(s, name)).st_mtime_ns) for s in steps(name)}

        def text():
            return open(f"{name}.err").read()

        def published():
            newest = max(steps(name) + [0])
            try:
                return 4 <= newest < 11 and (
                    newest, os.stat(step_path(newest, name)).st_mtime_ns) not in before
            except OSError:
                return False

        deadline = time.monotonic() + TIMEOUT
        while not published():
            check(run.poll() is None and time.monotonic() < deadline, f"{name}: {text()}")
            time.sleep(0.001)
        pids = re.search(r"start 1, 2 ranks, pids (\d+) (\d+)", text())
        check(pids, f"{name}: {text()}")
        os.kill(int(pids[1]), signal.SIGKILL)
        status = wait_for_end(run, lambda: f"{name}: {text()}")
    lines = text()
    check(status == 0, f"{name}: exit {status}: {lines}")
    check("restarted by dcp-run: continuing from the newest step, ignoring checkpoint.resume=" + told
          in lines, f"{name}: {lines}")
    check(len(re.findall("continuing from step [4-9]|continuing from step 1[01]", lines)) == 1, lines)
    check((state(12, name), losses(f"{name}.jsonl")) == whole(), f"{name}: another result")


@cases.shared
def whole():
    make_text()
    config(checkpoint={"keep": 1})
    train(1, config("whole.json", checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
    reference = state(12, "whole"), losses("whole.jsonl")
    return reference


def test_steps_that_the_start_set_aside():
    cases.use(whole)
    train(1, "config.json", "checkpoint.dir=anew", "seed=8", "metrics=null")
    restarted("anew", "checkpoint.resume=never", "checkpoint.overwrite=true", told="never")


def test_an_empty_directory():
    cases.use(whole)
    restarted("empty", "checkpoint.resume=never", told="never")


def test_a_step_that_is_removed_by_then():
    cases.use(whole)
    train(1, "config.json", "checkpoint.dir=path", "checkpoint.every=2", "metrics=path.jsonl",
          "checkpoint.keep=0")
    for step in steps("path")[1:]:
        shutil.rmtree(step_path(step, "path"))
    restarted("path", f"checkpoint.resume={step_path(2, 'path')}", told="path/step-00000002")


cases.main()
