#!/usr/bin/env python3
"""data.type records: a run is the same on any number of ranks and after a kill, only tokens with a mask of 1 are learned,
and errors are refused in one line."""
import os
from train_lib import cases, check, config, make_records, messages, state, train, train_killed


def configured(directory, **data):
    config(max_steps=6, scheduler={"type": "constant"},
           data={"type": "records", "path": "all.safetensors", "sequence_length": 32, **data},
           checkpoint={"dir": directory}, metrics=f"{directory}.jsonl")


@cases.shared
def records():
    make_records("all.safetensors", lambda i, n: 1)
    make_records("ends.safetensors", lambda i, n: i == n - 1)


@cases.shared
def trained():
    cases.use(records)
    for ranks in 1, 3:
        configured(f"on-{ranks}")
        train(ranks, "config.json")


def test_ranks_do_not_change_the_state():
    cases.use(trained)
    check(state(6, "on-1") == state(6, "on-3"), "three ranks have saved other bytes")


def test_a_killed_run_gives_the_same():
    cases.use(trained)
    configured("killed")
    train_killed("killed")
    check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")


def test_the_mask_changes_the_state():
    cases.use(trained)
    configured("ends", path="ends.safetensors", eval_path="all.safetensors")
    train(2, "config.json")
    check(state(6, "ends") != state(6, "on-1"), "the mask changes nothing")


def test_other_records_on_a_resume_are_a_warning():
    cases.use(trained)
    configured("on-1", path="ends.safetensors")
    _, err = train(1, "config.json", "max_steps=7")
    check("was saved with data.path, whose samples have the checksum" in err, err)


def test_records_that_are_too_long_or_missing_are_refused():
    cases.use(records)
    configured("refused", sequence_length=16)
    _, err = train(1, "config.json", expect=2)
    check("all.safetensors: record" in err and "set data.sequence_length to" in err and err.count("\n") == 1, err)
    configured("refused", eval_path="nowhere")
    _, err = train(1, "config.json", expect=2)
    check("data.eval_path: cannot read nowhere" in err and not os.path.exists("refused"), err)


def test_records_without_a_token_that_counts_are_refused():
    cases.use(records)
    make_records("masked.safetensors", lambda i, n: 0)
    for name, data, says in (("masked", {"path": "masked.safetensors"},
                              "data.path: no token of a whole epoch, 64 samples, "
                              "counts for the loss; unmask some"),
                             ("eval-masked", {"eval_path": "masked.safetensors"},
                              "data.eval_path: nothing in it counts for "
                              "the loss; unmask some targets, or leave the key out")):
        with cases.part(f"{name}"):
            configured(name, **data)
            for ranks in 1, 2:
                _, err = train(ranks, "config.json", "max_steps=1", expect=2)
                check(len([line for line in messages(err) if says in line]) == 1, err)


cases.main()
