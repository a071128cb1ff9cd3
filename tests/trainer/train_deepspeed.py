#!/usr/bin/env python3
"""DeepSpeed's configurations as people have them: each file of deepspeed/, written after the public file that
deepspeed/sources.json names, ends in a dry run that understands it, or in one message that lists what has no
counterpart here, and what to do about it."""
import glob, json, math, os
from train_lib import (cases, check, config, json_at, make_text, messages, metrics, MODEL, SOURCE,
                       train)

FILES = f"{SOURCE}/tests/trainer/deepspeed"
SOURCES = json.load(open(f"{FILES}/sources.json"))
GIVEN = ["model=model.json", "data.path=text", "data.sequence_length=128"]


def dry_run(path, *overrides):
    """Returns the warnings of a dry run."""
    overrides = [o for o in overrides if o != "device=cuda"]  # this machine may have no GPU
    _, err = train(1, path, *GIVEN, *overrides, "--dry-run")
    check("would start at random" in messages(err)[-1], f"{path}: {err}")
    return [m for m in messages(err) if m.startswith(f"dcp-train: warning: {path}: ")]


def taken(path, expected):
    overrides = expected.get("overrides", [])
    out, err = train(1, path, *GIVEN, *overrides, "--print-config")
    shown = json.loads(out)
    for key, value in expected["shows"].items():
        check(json_at(shown, key) == value, f"{path}: {key} is {json_at(shown, key)}")
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


@cases.shared
def inputs():
    make_text()
    config("ours.json")
    with open("model.json", "w") as f:
        json.dump(MODEL, f)


def test_sources_json_has_each_file():
    check(len(SOURCES) >= 20, "fewer than twenty files")
    check(sorted(SOURCES) == sorted(os.path.basename(p) for p in glob.glob(f"{FILES}/*.json")
                                    if not p.endswith("sources.json")), "sources.json has not each file")


def test_each_file_is_understood_or_refused():
    cases.use(inputs)
    for name, expected in SOURCES.items():
        with cases.part(f"{name}"):
            check("/" in expected["source"], f"{name} names no source")
            (taken if "shows" in expected else refused)(f"{FILES}/{name}", expected)


FILE = f"{FILES}/docs_cosine.json"


def test_a_missing_model_is_in_the_same_list():
    cases.use(inputs)
    _, err = train(1, f"{FILES}/examples_autotuning.json", expect=2)
    check(len(err.splitlines()) == 5 and "4 keys are wrong or have no counterpart here:" in err
          and "    model: missing" in err and "    data.path: missing" in err, err)


def test_the_command_line_takes_both_spellings():
    cases.use(inputs)
    for overrides, key, value in ((["max_steps=7"], "max_steps", 7),
                                  (["scheduler.params.total_num_steps=9"], "max_steps", 9),
                                  (["scheduler.type=WarmupLR"], "scheduler.type", "constant"),
                                  (["optimizer.params.lr=auto"], "optimizer.params.lr", 0.001),
                                  (["scheduler.params.warmup_steps=3"], "scheduler.params.warmup_steps", 3)):
        with cases.part(f"{overrides}"):
            shown = json.loads(train(1, FILE, *GIVEN, *overrides, "--print-config")[0])
            check(json_at(shown, key) == value, f"{overrides}: {key} is {json_at(shown, key)}")


def test_the_command_line_goes_before_our_own_file():
    cases.use(inputs)
    shown = json.loads(train(1, "ours.json", "scheduler.params.warmup_num_steps=5", "--print-config")[0])
    check(json_at(shown, "scheduler.params.warmup_steps") == 5, "a key of the file goes before the command line's")
    _, err = train(1, "ours.json", "fp16.enabled=true", "--print-config", expect=2)
    check(err.startswith("dcp-train: command line: fp16.enabled: true; fp16 is not implemented"), err)


def test_two_learning_rates_are_refused():
    cases.use(inputs)
    with open("both.json", "w") as f:
        json.dump({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 5}},
                   "optimizer": {"type": "Adam", "params": {"lr": 1e-4}}}, f)
    _, err = train(1, "both.json", *GIVEN, "--print-config", expect=2)
    check("scheduler.params.warmup_max_lr: 0.001, but optimizer.params.lr is 0.0001: drop one of them" in err, err)
    out, err = train(1, "both.json", *GIVEN, "optimizer.params.lr=2e-4", "--print-config")
    check(json_at(json.loads(out), "optimizer.params.lr") == 2e-4, out)


BATCH = "train_batch_size"


def test_keys_that_the_command_line_replaces_are_named():
    cases.use(inputs)
    # A key with the same value is not named.
    _, err = train(1, FILE, *GIVEN, "max_steps=7", "--print-config")
    check("the command line takes precedence over the file: scheduler.params.total_num_steps 80 (max_steps is 7)"
          in err, err)
    _, err = train(1, FILE, *GIVEN, "max_steps=80", "--print-config")
    check("takes precedence" not in err, err)


def test_the_batch_follows_from_micro_batch_accumulation_and_ranks():
    cases.use(inputs)
    for keys, ranks, batch in (({"gradient_accumulation_steps": 3}, 1, 6), ({"gradient_accumulation_steps": 3}, 2, 12),
                               ({}, 2, 4), ({BATCH: "auto", "gradient_accumulation_steps": "auto"}, 2, 4),
                               ({BATCH: 8, "gradient_accumulation_steps": 2}, 2, 8)):
        with cases.part(f"{keys}"):
            with open("batch.json", "w") as f:
                json.dump({"train_micro_batch_size_per_gpu": 2, "steps_per_print": 10, **keys}, f)
            out, err = train(ranks, "batch.json", *GIVEN, "--print-config")
            check(json_at(json.loads(out), BATCH) == batch, f"{keys}: {out}")
            told = f"train_micro_batch_size_per_gpu 2 and gradient_accumulation_steps {keys.get('gradient_accumulation_steps')} on"
            check((f"as {BATCH} {batch} " in err) == (keys.get(BATCH) != 8) and f"{BATCH} 32" not in err, err)
            check(told in err or keys.get("gradient_accumulation_steps") != 3, err)
            train(ranks, "batch.json", *GIVEN, "--dry-run")


LOG = {"type": "WarmupLR", "params": {"warmup_num_steps": 10, "warmup_max_lr": 0.001}}


def test_the_plan_uses_the_given_ranks():
    cases.use(inputs)
    with open("batch.json", "w") as f:
        json.dump({"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3, "steps_per_print": 10}, f)
    plan, _ = train(1, "batch.json", *GIVEN, "--plan", "--ranks", "4")
    check("12 micro-batches of 2" in plan, plan)
    shown = json.loads(train(1, "batch.json", *GIVEN, "train_batch_size=6", "--print-config")[0])
    check(json_at(shown, BATCH) == 6, "the command line's batch")


def test_warm_ups_are_logarithmic_by_default():
    cases.use(inputs)
    # The warm-up of DeepSpeed's schedules is logarithmic unless the file says linear. That of ours is linear.
    for name, schedule, kind in (("log", LOG, "log"), ("none", LOG, "log"),
                                 ("linear", LOG, "linear")):
        params = {**schedule["params"], **({"warmup_type": name} if name != "none" else {})}
        with open("warm.json", "w") as f:
            json.dump({"scheduler": {**schedule, "params": params}, "train_batch_size": 4,
                       "train_micro_batch_size_per_gpu": 4}, f)
        out, err = train(1, "warm.json", *GIVEN, "--print-config")
        check(json_at(json.loads(out), "scheduler.params.warmup_type") == kind and "without effect" not in err, err)
        check(f"after a {'logarithmic' if kind == 'log' else 'linear'} warm-up" in err, err)
        train(1, "warm.json", *GIVEN, "max_steps=3", f"checkpoint.dir=warm-{name}")
        rates = [row["lr"] for row in metrics(f"warm-{name}/metrics.jsonl")]
        want = [0.001 * (math.log(i) / math.log(10) if kind == "log" else i / 10) for i in (1, 2, 3)]
        check(all(abs(a - b) < 1e-9 for a, b in zip(rates, want)), f"{name}: {rates}")
    _, err = train(1, "warm.json", *GIVEN, "max_steps=4", "checkpoint.dir=warm-log",
                   "scheduler.params.warmup_type=linear")
    check('saved with scheduler.params.warmup_type "log", but the run continues with unset' in err, err)
    _, err = train(1, "warm.json", *GIVEN, "scheduler.params.warmup_type=cosine", "--print-config", expect=2)
    check('scheduler.params.warmup_type: "cosine" is not one of linear|log' in err, err)


def test_a_byte_order_mark_is_accepted():
    cases.use(inputs)
    # Python writes and reads it.
    with open("ours.json") as f:
        text = f.read()
    with open("marked.json", "w", encoding="utf-8-sig") as f:
        f.write(text)
    check(train(1, "marked.json", "--print-config") == train(1, "ours.json", "--print-config"), "a mark of UTF-8")


def test_numbers_that_json_does_not_have_are_refused():
    cases.use(inputs)
    for number in "Infinity", "-Infinity", "NaN":
        with cases.part(f"{number}"):
            with open("number.json", "w") as f:
                f.write('{"data": {"path": "NaN"},\n "gradient_clipping": ' + number + "}")
            _, err = train(1, "number.json", "--print-config", expect=2)
            check(f"number.json:2:23: {number}, which Python writes, is not a JSON number; give a finite one" in err,
                  err)


def test_a_file_of_ours_gives_no_notes():
    cases.use(inputs)
    # A misspelled key is not taken for one of DeepSpeed's.
    _, err = train(1, "ours.json", "--print-config")
    check(not err, err)
    for slip in ("bf16.enable=true", "zero_optimization.overlap_com=true", "max_steps=auto"):
        train(1, "ours.json", slip, "--print-config", expect=2)


cases.main()
