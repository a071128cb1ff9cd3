#!/usr/bin/env python3
"""Metrics of several runs: each has its own file in its checkpoint.dir, wherever it is started; of runs that are given one
file, one that is there is named to the next, what one has written is moved aside and never lost, and who comes back finds its
lines. A start that was killed before its first checkpoint is the same run."""
import re
from train_lib import *

make_text()
short = {"max_steps": 4, "scheduler": {"type": "constant", "params": {"warmup_steps": 3}}}


def lines(path):
    return [line["step"] for line in metrics(path)]


def runs(path):
    return {line["run"] for line in metrics(path)}


# By default: in checkpoint.dir, also when the run goes on from another folder.
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
check(len(runs("a/metrics.jsonl")) == 1 and runs("a/metrics.jsonl").isdisjoint(runs("b/metrics.jsonl")), "runs' names")
shown = json.loads(tool("dcp-train", default, "--print-config", "checkpoint.dir=there"))["metrics"]
check(shown == "there/metrics.jsonl", shown)

# One file for three runs. While the first one lives the second is refused.
one = config("one.json", **{**short, "max_steps": 1000000}, checkpoint={"dir": "one", "every": 0}, metrics="shared.jsonl")
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
check(losses("shared.jsonl")[:last] == whole and lines("shared.jsonl") == list(range(1, last + 3)), "the first run's lines")
_, err = train(1, three)
check(losses("shared.jsonl.old.1") == whole and lines("shared.jsonl.old.2") == [1, 2, 3, 4], "a moved file is written over")
check(lines("shared.jsonl.old.3") == list(range(1, last + 3)) and lines("shared.jsonl") == [1, 2, 3, 4], err)
_, err = train(1, three, "max_steps=5")
check(lines("shared.jsonl") == [1, 2, 3, 4, 5] and not os.path.exists("shared.jsonl.old.4"), err)

# A run that branches off from another's step takes the lines before it along, and leaves the other's as they are.
train(1, three, "checkpoint.dir=branch", f"checkpoint.resume={step_path(3, 'three')}", "max_steps=6")
check(lines("shared.jsonl") == [1, 2, 3, 4, 5, 6] and lines("shared.jsonl.old.4") == [1, 2, 3, 4, 5], "the branch")

# Killed before the first checkpoint: dcp-run's next start is the same run.
killed = config("killed.json", **{**short, "max_steps": 1000000}, checkpoint={"dir": "killed", "every": 0}, metrics="killed.jsonl")
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

# The newest step's about.json is damaged: other steps tell whose it is.
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
