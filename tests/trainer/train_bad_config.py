#!/usr/bin/env python3
"""A wrong configuration, model or data file is reported in one line with exit status 2, and no file is made: neither a
checkpoint directory nor metrics. train_wrong_inputs.py has many more wrong inputs, in dry runs."""
import json, os, shutil, subprocess
from train_lib import (BIN, cases, check, config, make_text, messages, metrics, MODEL, steps,
                       train, TRAINER)

@cases.shared
def inputs():
    make_text()
    os.mkdir("empty")
    with open("garbage.safetensors", "wb") as f:
        f.write(os.urandom(1000))
    with open("broken.json", "w") as f:
        f.write('{"model": ')
    config("good.json")


# Errors that a start would run into. A dry run makes nothing.
DRY = [
    (["metrics=empty"], "metrics: cannot open empty: Is a directory"),
    (["metrics=no/folder/m.jsonl"], "metrics: cannot open no/folder/m.jsonl: No such file"),
    (['checkpoint.stores=[{"path": "a", "redundancy": "partner"}]'],
     "checkpoint.stores[0].redundancy: partner needs ranks in at least 2 failure domains, but they are in 1"),
]


def test_a_wrong_value_is_refused_in_one_line_and_makes_nothing():
    cases.use(inputs)
    CASES = [  # overrides, and what the line must hold
        (["data.path=nowhere"], "data.path: cannot read nowhere: No such file or directory; relative to the current "
                                f"folder, where the run starts, it is {os.getcwd()}/nowhere"),
        (["data.path=/nowhere"], "data.path: cannot read /nowhere: No such file or directory"),
        (["data.path=text/below"], "text/below: Not a directory"),
        (["data.path=no*match"], f"data.path: nothing matches no*match; relative to the current folder, where the run "
                                 f"starts, it is {os.getcwd()}/no*match"),
        (["data.type=safetensors", "data.path=garbage.safetensors"], "data.path: garbage.safetensors"),
        (["model.rope_scaling.rope_type=longrope"], 'rope_scaling.rope_type "longrope" is not supported'),
        (["frozen=[\"*\", \"lm_haed.*\"]"], "frozen: lm_haed.* matches no parameter"),
        (["frozen=[\"*bias*\", \"model.*\"]"], "frozen: *bias* matches no parameter"),
        (["frozen=[\"model.*\"]"], "frozen: matches every parameter of the model"),
        (["checkpoint.resume=nowhere"], "nowhere"),
        (["metrics=empty"], "metrics: cannot open empty: Is a directory"),
        (['checkpoint.stores=[{"path": "a-{rank", "domain": "{rank}"}]'],
         "checkpoint.stores[0].path: a-{rank: {rank is unknown"),
        (['checkpoint.stores=[{"path": "a-{host}", "domain": "x{env:}"}]'],
         "checkpoint.stores[0].domain: x{env:}: {env:} is unknown"),
        (["checkpoint.domain={env:NO_RACK}", 'checkpoint.stores=[{"path": "a"}]'],
         "checkpoint.domain: {env:NO_RACK}: NO_RACK is not set in the environment"),
        (['checkpoint.stores=[{"path": "a"}, {"path": "b-{env:NO_DISK}"}]'],
         "checkpoint.stores[1].path: b-{env:NO_DISK}: NO_DISK is not set in the environment"),
    ]
    made_late = ("checkpoint.resume=", "metrics=")  # found when the directory is open

    for overrides, text in CASES:
        with cases.part(f"{overrides}"):
            _, err = train(1, "good.json", *overrides, expect=2)
            lines = [m for m in messages(err) if text in m]
            check(len(lines) == 1 and lines[0] == messages(err)[-1], f"{overrides}: {err}")
            early = not overrides[0].startswith(made_late)
            check(not early or len(messages(err)) == 1, f"{overrides}: more than one line: {err}")
            check(not early or not os.path.exists("ckpt"), f"{overrides}: the directory is made")
            check(not steps() and not os.path.exists("metrics.jsonl"), f"{overrides}: something is made")
            shutil.rmtree("ckpt", ignore_errors=True)


def check_dry_run_made_nothing():
    check(not os.path.exists("dry") and not os.path.exists("dry.jsonl"), "a dry run makes something")


def test_a_dry_run_finds_what_a_start_would_find():
    cases.use(inputs)
    for overrides, text in DRY:
        with cases.part(f"{overrides}"):
            _, err = train(1, "good.json", "--dry-run", *overrides, expect=2)
            check(text in messages(err)[-1] and not os.path.exists("ckpt"), f"{overrides}: {err}")


def test_a_file_that_holds_no_configuration_is_named():
    cases.use(inputs)
    with open("model.json", "w") as f:
        json.dump(MODEL, f)
    _, err = train(1, "model.json", "data.path=text", expect=2)
    check("model.json: describes a model, not a training" in err, err)
    _, err = train(1, "broken.json", expect=2)
    check("broken.json:1:" in err, err)
    _, err = train(1, "nowhere.json", expect=2)
    check("nowhere.json: cannot read" in err, err)
    _, err = train(1, expect=2)
    check("CONFIG.json is missing" in err, err)


def test_several_ranks_refuse_together():
    cases.use(inputs)
    # One line as well, and no rank waits for another.
    for overrides in (["max_step=1"], ["data.path=nowhere"], ["gradient_accumulation_steps=1"]):
        with cases.part(f"{overrides}"):
            _, err = train(3, "good.json", *overrides, expect=2)
            told = [m for m in messages(err) if " ranks" not in m or "accumulation" in m]
            check(len(told) <= 2 and overrides[0].split("=")[0] in told[-1], f"{overrides}: {err}")


@cases.shared
def two_steps():
    cases.use(inputs)
    train(1, "good.json", "gradient_accumulation_steps=7", "max_steps=1")
    _, err = train(2, "good.json", "gradient_accumulation_steps=7", "max_steps=2")
    return err


def test_a_resume_ignores_the_accumulation():
    err = cases.use(two_steps)
    check("ignored, since the run is resumed" in err, err)


def test_print_config_shows_defaults_and_overrides():
    cases.use(two_steps)
    out, err = train(1, "good.json", "--print-config", "seed=9")
    check(not messages(err), err)
    shown = json.loads(out)
    check(shown["seed"] == 9 and shown["fsdp"]["prefetch"] == 1 and shown["device"] == "auto", out)


def test_a_warm_up_longer_than_the_run_is_a_warning():
    cases.use(two_steps)
    # It may be intended, since the run may be continued later.
    for args in (["--print-config"], ["--dry-run", "checkpoint.dir=dry", "metrics=null"]):
        with cases.part(f"{args}"):
            _, err = train(1, "good.json", "scheduler.params.warmup_steps=13", *args)
            check("a warm-up of 13 steps is not over when the run ends with step 12" in messages(err)[0], err)


def test_a_dry_run_describes_a_start_and_makes_nothing():
    cases.use(two_steps)
    _, err = train(2, "good.json", "--dry-run", "checkpoint.dir=dry", "metrics=dry.jsonl")
    check("7 micro-batches per step, at most 4 per rank" in err, err)
    check("would start at random, with seed 7" in messages(err)[-1], err)
    check("nothing to compute" not in err, err)
    _, err = train(2, "good.json", "--dry-run", "checkpoint.dir=dry", "train_micro_batch_size_per_gpu=14")
    check("warning: 1 of 2 ranks have nothing to compute" in err, err)
    check_dry_run_made_nothing()


def test_a_dry_run_describes_a_resume():
    cases.use(two_steps)
    for ranks, override, status, text in (
            (2, "checkpoint.resume=auto", 0,
             "would continue from step 2: ckpt/step-00000002, whose tensors are the model's;"),
            (1, "checkpoint.resume=ckpt/step-00000001", 0, "would continue from step 1: "),
            (1, "checkpoint.resume=nowhere", 2, "checkpoint.resume: cannot find nowhere"),
            (1, "init=nowhere", 0, "step 2"),
            (1, "model.intermediate_size=120", 2, "is [112,64] there, [120,64] here")):
        with cases.part(f"{override}"):
            _, err = train(ranks, "good.json", "--dry-run", override, expect=status)
            check(text in messages(err)[-1], f"{override}: {err}")
    _, err = train(2, "good.json", "--dry-run", "train_batch_size=12")
    check("warning: the checkpoint was saved with train_batch_size 14, but the run continues with 12" in err, err)


def test_a_dry_run_checks_init():
    cases.use(two_steps)
    for init, status, text in (("nowhere", 2, "init: "), ("ckpt", 0, "weights from ckpt")):
        with cases.part(f"{init}"):
            _, err = train(1, "good.json", "--dry-run", "checkpoint.dir=dry", f"init={init}", expect=status)
            check(text in messages(err)[-1], err)
    check_dry_run_made_nothing()


def test_a_dry_run_of_a_finished_run_says_so():
    cases.use(two_steps)
    _, err = train(1, "good.json", "--dry-run", "max_steps=2")
    check("step 2 of max_steps 2 is reached: the run is done, and nothing would be trained: ckpt/" in messages(err)[-1] and
          "would continue" not in err, err)


def test_a_dry_run_reports_the_next_learning_rate():
    cases.use(two_steps)
    _, err = train(1, "good.json", "--dry-run", "max_steps=40", "scheduler.type=linear",
                   "scheduler.params.warmup_steps=0",
                   "scheduler.params.min_lr_ratio=0", "optimizer.params.lr=0.04")
    check("; the next learning rate is 0.037" in messages(err)[-1], err)


def test_an_unwritable_checkpoint_directory_is_refused():
    cases.use(two_steps)
    for place in "/proc/x", "/sys/x/y":
        for more in ["--dry-run"], []:
            _, err = train(1, "good.json", f"checkpoint.dir={place}", "metrics=null", *more, expect=2)
            check(f"checkpoint.dir: cannot write to {place}: " in messages(err)[-1], err)


def test_keys_without_effect_are_named():
    cases.use(two_steps)
    idle = ["fsdp.min_num_params=7", "scheduler.type=constant", "scheduler.params.min_lr_ratio=0.5",
            "checkpoint.dir=dry"]
    _, err = train(1, "good.json", "--dry-run", *idle)
    check("warning: good.json: without effect because of other keys: scheduler.params.min_lr_ratio "
          "(scheduler.type is constant), fsdp.min_num_params (fsdp.wrap_policy is transformer)\n" in err, err)
    shown, _ = train(1, "good.json", *idle, "--print-config")
    with open("shown.json", "w") as f:
        f.write(shown)
    for file, overrides in (("shown.json", ["fsdp.wrap_policy=size", "scheduler.type=linear"]),
                            ("good.json", ["fsdp.min_num_params=100000000"])):  # which is the default
        _, err = train(1, file, "--dry-run", "checkpoint.dir=dry", *overrides)
        check("without effect" not in err, err)
    check_dry_run_made_nothing()


def test_an_unknown_key_gets_a_suggestion():
    cases.use(two_steps)
    for given, meant in (("logging_steps", "log_every"), ("warmup_ratio", "scheduler.params.warmup_steps"),
                         ("scheduler.params.warmup_ratio", "scheduler.params.warmup_steps")):
        with cases.part(f"{given}"):
            _, err = train(1, "good.json", f"{given}=1", "--dry-run", expect=2)
            check(f"{given}: unknown key; did you mean {meant}?" in err, err)
    check_dry_run_made_nothing()


def test_a_run_that_diverges_ends_and_is_not_restarted_twice():
    cases.use(two_steps)
    _, err = train(2, "good.json", "optimizer.params.lr=1e30", "scheduler.type=constant",
                   "scheduler.params.warmup_steps=0", "checkpoint.dir=diverged", expect=3)
    check("the run has diverged" in messages(err)[-1], err)
    check(steps("diverged") == [len(metrics())], "more or less is saved than was computed")
    done = subprocess.run([f"{BIN}/dcp-run", "-n", "1", "--", TRAINER, "good.json", "optimizer.params.lr=1e30",
                           "scheduler.type=constant", "scheduler.params.warmup_steps=0", "checkpoint.dir=diverged"],
                          capture_output=True, text=True)
    check(done.returncode == 3 and done.stderr.count("dcp-run: start 2") and "dcp-run: start 3" not in done.stderr
          and "giving up: restart 1 failed like the start before it" in done.stderr, done.stderr)


cases.main()
