#!/usr/bin/env python3
"""DeepSpeed's configurations as people have them: each of deepspeed/*.json, written after the public
file that deepspeed/sources.json names, ends in a dry run that understands it, or in one message that
lists what has no counterpart here, and what to do about it."""
from train_lib import *

FILES = f"{SOURCE}/tests/trainer/deepspeed"
SOURCES = json.load(open(f"{FILES}/sources.json"))
make_text()
with open("model.json", "w") as f:
    json.dump(MODEL, f)
GIVEN = ["model=model.json", "data.path=text", "data.sequence_length=128"]


def at(tree, path):
    for part in path.split("."):
        tree = tree[part]
    return tree


def dry_run(path, *overrides):
    """What a dry run warns of."""
    overrides = [o for o in overrides if o != "device=cuda"]  # this machine may have none
    _, err = train(1, path, *GIVEN, *overrides, "--dry-run")
    check("would start at random" in messages(err)[-1], f"{path}: {err}")
    return [m for m in messages(err) if m.startswith(f"dcp-train: warning: {path}: ")]


def taken(path, expected):
    overrides = expected.get("overrides", [])
    out, err = train(1, path, *GIVEN, *overrides, "--print-config")
    shown = json.loads(out)
    for key, value in expected["shows"].items():
        check(at(shown, key) == value, f"{path}: {key} is {at(shown, key)}")
    for note in expected.get("notes", []):
        check(note in err, f"{path}: {note}: {err}")
    notes = dry_run(path, *overrides)
    leads = [n[len(f"dcp-train: warning: {path}: "):].split(":")[0] for n in notes]
    check(len(set(leads)) == len(leads) and len(leads) <= 4, f"{path}: not one line each: {err}")


def refused(path, expected):
    _, err = train(1, path, *GIVEN, "--dry-run", expect=2)
    check(len(messages(err)) == 1, f"{path}: not one message: {err}")
    lines = err.splitlines()[1:] if len(expected["refused"]) > 1 else [err.split(f"{path}: ")[1].strip()]
    check(len(lines) >= len(expected["refused"]), f"{path}: {err}")
    for line in lines:
        check(any(r in line for r in expected["refused"]) or "unknown key" in line, f"{path}: {line}")
    for text in expected["refused"]:
        check(sum(text in line for line in lines) == 1, f"{path}: {text}: {err}")
    if "mended" in expected:
        dry_run(path, *expected["mended"])


check(len(SOURCES) >= 20, "fewer than twenty files")
check(sorted(SOURCES) == sorted(os.path.basename(p) for p in glob.glob(f"{FILES}/*.json")
                                if not p.endswith("sources.json")), "sources.json has not each file")
for name, expected in SOURCES.items():
    check("/" in expected["source"], f"{name} names no source")
    (taken if "shows" in expected else refused)(f"{FILES}/{name}", expected)

# A model and data that are missing are in the same list; nothing else is told.
_, err = train(1, f"{FILES}/examples_autotuning.json", expect=2)
check(len(err.splitlines()) == 5 and "4 keys are wrong or have no counterpart here:" in err
      and "    model: missing" in err and "    data.path: missing" in err, err)

# The command line: in either spelling, and before what the file says.
FILE = f"{FILES}/docs_cosine.json"
for overrides, key, value in ((["max_steps=7"], "max_steps", 7),
                              (["scheduler.params.total_num_steps=9"], "max_steps", 9),
                              (["scheduler.type=WarmupLR"], "scheduler.type", "constant"),
                              (["optimizer.params.lr=auto"], "optimizer.params.lr", 0.001),
                              (["scheduler.params.warmup_steps=3"], "scheduler.params.warmup_steps", 3)):
    shown = json.loads(train(1, FILE, *GIVEN, *overrides, "--print-config")[0])
    check(at(shown, key) == value, f"{overrides}: {key} is {at(shown, key)}")
config("ours.json")
shown = json.loads(train(1, "ours.json", "scheduler.params.warmup_num_steps=5", "--print-config")[0])
check(at(shown, "scheduler.params.warmup_steps") == 5, "a key of the file goes before the command line's")
_, err = train(1, "ours.json", "fp16.enabled=true", "--print-config", expect=2)
check(err.startswith("dcp-train: command line: fp16.enabled: true; fp16 is not built"), err)
with open("both.json", "w") as f:
    json.dump({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 5}},
               "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}}, f)
_, err = train(1, "both.json", *GIVEN, "--print-config", expect=2)
check("scheduler.params.warmup_max_lr: 0.001, but optimizer.params.lr is 0.0001: drop one of them" in err, err)
out, err = train(1, "both.json", *GIVEN, "optimizer.params.lr=2e-4", "--print-config")
check(at(json.loads(out), "optimizer.params.lr") == 2e-4, out)

# A file without a key of theirs is told nothing of them; a slip is no key of theirs.
_, err = train(1, "ours.json", "--print-config")
check(not err, err)
for slip in ("bf16.enable=true", "zero_optimization.overlap_com=true", "max_steps=auto"):
    train(1, "ours.json", slip, "--print-config", expect=2)
