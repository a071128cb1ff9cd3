#!/usr/bin/env python3
"""data.sources: a run on several sources is the same on any number of ranks and after a kill; a change of weights is
reported; and one fixed batch takes no sources."""
from train_lib import cases, check, config, make_records, make_text, state, train, train_killed

SOURCES = [{"path": "more", "weight": 0.5}, {"path": "digits"}]


def mixed(directory, sources=SOURCES, **data):
    config(max_steps=6, scheduler={"type": "constant"}, data={"sequence_length": 32, "sources": sources, **data},
           checkpoint={"dir": directory},
           metrics=None)  # a constant rate, which more steps do not change


@cases.shared
def inputs():
    make_text()
    make_text("more")
    with open("digits", "w") as f:
        f.write("".join(str(i * i % 10) for i in range(3000)))


@cases.shared
def on_ranks():
    cases.use(inputs)
    for ranks in 1, 3:
        mixed(f"on-{ranks}")
        train(ranks, "config.json")


def test_ranks_do_not_change_the_state():
    cases.use(on_ranks)
    check(state(6, "on-1") == state(6, "on-3"), "three ranks have saved other bytes")


def test_sources_change_the_state():
    cases.use(on_ranks)
    mixed("alone", sources=[])
    train(1, "config.json")
    check(state(6, "alone") != state(6, "on-1"), "the sources change nothing")


def test_a_killed_run_gives_the_same():
    cases.use(on_ranks)
    mixed("killed")
    train_killed("killed")
    check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")


def test_other_sources_on_a_resume_are_a_warning():
    cases.use(on_ranks)
    mixed("on-1", sources=[{"path": "more", "weight": 2}])
    _, err = train(1, "config.json", "max_steps=7")
    check("was saved with data.path, whose samples are" in err, err)


def test_a_wrong_source_is_named():
    make_records("right.safetensors", lambda i, n: 1)
    make_records("wrong.safetensors", lambda i, n: 2)
    config(data={"type": "records", "path": "right.safetensors",
                 "sources": [{"path": "wrong.safetensors", "weight": 1}]})
    _, err = train(1, "config.json", expect=2)
    check("data.sources[0].path: wrong.safetensors: token" in err, f"another source is blamed: {err}")


def test_a_fixed_batch_takes_no_sources():
    cases.use(inputs)
    mixed("refused", type="safetensors")
    _, err = train(1, "config.json", expect=2)
    check("data.sources: data.type safetensors has one fixed batch" in err, err)


cases.main()
