#!/usr/bin/env python3
"""Metrics of several runs. Each run has its own file in its checkpoint.dir, wherever it is started. If runs are given
the same file, a second run names the one that still writes; lines of an earlier run are moved aside, never lost, and a
run that is resumed finds its lines. A start that was killed before its first checkpoint belongs to the same run."""
import glob, json, os, re, signal, subprocess, time
from train_lib import (BIN, cases, check, config, fail, losses, make_text, metrics, Run, step_path,
                       steps, TIMEOUT, tool, train, TRAINER)

short = {"max_steps": 4, "scheduler": {"type": "constant", "params": {"warmup_steps": 3}}}


def lines(path):
    return [line["step"] for line in metrics(path)]


def runs(path):
    return {line["run"] for line in metrics(path)}


def test_metrics_are_in_the_checkpoint_directory_by_default():
    make_text()
    # Also if the run is continued from another folder.
    c = json.load(open(config(**short)))
    del c["metrics"]
    json.dump({**c, "data": {**c["data"], "path": os.path.abspath("text")}}, open("default.json", "w"))
    default = os.path.abspath("default.json")
    for name in ("a", "b"):
        directory = os.path.abspath(name)
        train(1, default, f"checkpoint.dir={directory}")
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")
        _, err = train(2, default, f"checkpoint.dir={directory}", "max_steps=6")
        check(not os.listdir("."), f"left behind: {os.listdir('.')}")
        os.chdir("..")
        check(lines(f"{name}/metrics.jsonl") == list(range(1, 7)), f"{name}: {lines(f'{name}/metrics.jsonl')}")
        check(os.listdir(name).count("metrics.jsonl") == 1 and not glob.glob(f"{name}/*.old*"), f"{os.listdir(name)}")
    check(len(runs("a/metrics.jsonl")) == 1 and runs("a/metrics.jsonl").isdisjoint(runs("b/metrics.jsonl")),
          "runs' names")
    shown = json.loads(tool("dcp-train", default, "--print-config", "checkpoint.dir=there"))["metrics"]
    check(shown == "there/metrics.jsonl", shown)


def test_runs_with_the_same_file_lose_no_lines():
    make_text()
    # While the first run lives, the second one is refused.
    one = config("one.json", **{**short, "max_steps": 1000000}, checkpoint={"dir": "one", "every": 0},
                 metrics="shared.jsonl")
    two = config("two.json", **short, checkpoint={"dir": "two"}, metrics="shared.jsonl")
    three = config("three.json", **short, checkpoint={"dir": "three"}, metrics="shared.jsonl")
    first = Run(2, one)
    first.wait_for(lambda: os.path.exists("shared.jsonl") and len(metrics("shared.jsonl")) > 2, "a third step")
    _, err = train(1, two, expect=2)
    told = re.search(r"metrics: shared.jsonl is written by process (\d+);", err)
    check(told and int(told[1]) in first.pids() and not glob.glob("shared.jsonl.old*"), err)
    check(not steps("two"), "a run that is refused has saved")
    os.kill(first.pids()[0], signal.SIGTERM)
    check(first.wait() == 143, "the first run does not end")
    last = max(steps("one"))
    check(lines("shared.jsonl") == list(range(1, last + 1)), f"{lines('shared.jsonl')}")
    whole = losses("shared.jsonl")

    _, err = train(2, two)
    check("metrics: shared.jsonl held lines of another run, which are in shared.jsonl.old.1 now" in err, err)
    check(lines("shared.jsonl") == [1, 2, 3, 4] and losses("shared.jsonl.old.1") == whole, "the second run's lines")
    _, err = train(1, one, f"max_steps={last + 2}")
    check("shared.jsonl.old.2 now" in err and f"lines up to step {last} are copied from shared.jsonl.old.1" in err, err)
    check(losses("shared.jsonl")[:last] == whole and lines("shared.jsonl") == list(range(1, last + 3)),
          "the first run's lines")
    _, err = train(1, three)
    check(losses("shared.jsonl.old.1") == whole and lines("shared.jsonl.old.2") == [1, 2, 3, 4],
          "a moved file is written over")
    check(lines("shared.jsonl.old.3") == list(range(1, last + 3)) and lines("shared.jsonl") == [1, 2, 3, 4], err)
    _, err = train(1, three, "max_steps=5")
    check(lines("shared.jsonl") == [1, 2, 3, 4, 5] and not os.path.exists("shared.jsonl.old.4"), err)


def test_a_branch_takes_the_lines_before_it_along():
    make_text()
    # The lines of the other run stay as they are.
    three = config("three.json", **short, checkpoint={"dir": "three"}, metrics="shared.jsonl")
    train(1, three)
    train(1, three, "max_steps=5")
    train(1, three, "checkpoint.dir=branch", f"checkpoint.resume={step_path(3, 'three')}", "max_steps=6")
    check(lines("shared.jsonl") == [1, 2, 3, 4, 5, 6] and lines("shared.jsonl.old.1") == [1, 2, 3, 4, 5], "the branch")


def test_a_start_killed_before_its_first_checkpoint_is_the_same_run():
    make_text()
    killed = config("killed.json", **{**short, "max_steps": 1000000}, checkpoint={"dir": "killed", "every": 0},
                    metrics="killed.jsonl")
    with open("killed.err", "w") as log, open("killed.out", "w") as out:
        run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--", TRAINER, killed],
                               stdin=subprocess.DEVNULL, stdout=out, stderr=log)
        deadline = time.monotonic() + TIMEOUT

        def wait_for(condition):
            while not condition():
                check(run.poll() is None and time.monotonic() < deadline, open("killed.err").read())
                time.sleep(0.001)

        def rank(start):
            return re.search(rf"start {start}, 2 ranks, pids (\d+) (\d+)", open("killed.err").read())

        wait_for(lambda: rank(1) and os.path.exists("killed.jsonl") and os.path.getsize("killed.jsonl") > 5000)
        os.kill(int(rank(1)[1]), signal.SIGKILL)
        wait_for(lambda: rank(2) and open("killed.out").read().count("step 2/") == 2)
        run.send_signal(signal.SIGTERM)
        try:
            status = run.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            run.kill()
            fail("dcp-run hangs")
    said = open("killed.err").read()
    check(status == 143 and "another run" not in said and not glob.glob("killed.jsonl.old*"), f"exit {status}: {said}")
    check(lines("killed.jsonl") == list(range(1, max(steps("killed")) + 1)), f"{lines('killed.jsonl')}")


def test_other_steps_identify_a_run_whose_newest_about_json_is_damaged():
    make_text()
    kept = config("kept.json", **short, checkpoint={"dir": "kept"}, metrics="kept.jsonl")
    train(2, kept)
    for cut in range(2):
        path = step_path(4 + cut, "kept") + "/about.json"
        with open(path, "rb") as f:
            raw = bytearray(f.read())
        raw[len(raw) // 2] ^= 1
        with open(path, "wb") as f:
            f.write(raw[:0] if cut else raw)
        _, err = train(1, kept, f"max_steps={5 + cut}")
        check("held lines of another run" not in err and lines("kept.jsonl") == list(range(1, 6 + cut)), err)
    check(len(runs("kept.jsonl")) == 1 and not glob.glob("kept.jsonl.old*"), f"{runs('kept.jsonl')}")


cases.main()
