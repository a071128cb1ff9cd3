#!/usr/bin/env python3
"""data.tokenizer: the files of the tokenizer in a folder, or one file, are in every checkpoint, the same on any number of
ranks, and in the export, byte by byte. A resumed run keeps them. What is no tokenizer is refused before anything is
written."""
import os, shutil, subprocess
from train_lib import cases, check, config, make_text, MODEL, MPIRUN, state, TIMEOUT, tool, train, TRAINER

FILES = {"tokenizer.json": b'{"model": "mine"}\n' * 1000, "tokenizer_config.json": b"{}\n", "vocab.txt": b"a"}


def check_export(directory, files):
    tool("dcp-export", directory, f"{directory}-export", "--force")
    there = {name for name in os.listdir(f"{directory}-export") if name not in ("config.json", "model.safetensors")}
    check(there == set(files), f"{directory}: {there}")
    for name, content in files.items():
        check(open(f"{directory}-export/{name}", "rb").read() == content, f"{directory}: {name} has changed")


def small(directory, **data):
    config(model={**MODEL, "vocab_size": 256}, max_steps=2, data={"sequence_length": 32, **data},
           checkpoint={"dir": directory}, metrics=None)


@cases.shared
def inputs():
    make_text()
    os.mkdir("other")
    open("other/tokenizer.json", "w").write("another one")
    os.mkdir("hf")
    for name, content in {**FILES, "config.json": b"{}", "model.safetensors": b"no", "notes.txt": b"no"}.items():
        with open(f"hf/{name}", "wb") as f:
            f.write(content)


@cases.shared
def trained():
    cases.use(inputs)
    for ranks in 1, 3:
        small(f"on-{ranks}", tokenizer="hf")
        train(ranks, "config.json")
        check_export(f"on-{ranks}", FILES)


def test_ranks_do_not_change_the_state():
    cases.use(trained)
    check(state(2, "on-1") == state(2, "on-3"), "three ranks have saved other bytes")


def test_a_resumed_run_keeps_the_files():
    cases.use(trained)
    # The files do not depend on what the folder contains by then.
    shutil.move("hf", "moved")
    small("on-3")
    train(2, "config.json", "max_steps=3")
    check_export("on-3", FILES)
    train(2, "config.json", "max_steps=4", "data.tokenizer=other")
    check_export("on-3", FILES)


def test_a_run_that_began_without_takes_the_files():
    cases.use(inputs)
    # One file is enough.
    small("late")
    train(1, "config.json")
    train(1, "config.json", "max_steps=3", "data.tokenizer=other/tokenizer.json")
    check_export("late", {"tokenizer.json": b"another one"})


def test_what_is_no_tokenizer_is_refused():
    cases.use(inputs)
    small("late")
    open("other/vocab.json", "w").close()
    os.mkdir("none")
    for path, why in (("nowhere", "cannot read nowhere: No such file"), ("none", "none holds no file of a tokenizer"),
                      ("text", "text does not have the name of a tokenizer's file"),
                      ("other", "other/vocab.json is empty")):
        with cases.part(f"{path}"):
            for more in (), ("--dry-run",):
                _, err = train(1, "config.json", "checkpoint.dir=refused", f"data.tokenizer={path}", *more, expect=2)
                check(f"data.tokenizer: {why}" in err and not os.path.exists("refused"), err)


def test_a_tokenizer_that_one_rank_does_not_see_is_refused():
    cases.use(inputs)
    here = os.getcwd()
    os.mkdir("elsewhere")
    small(f"{here}/apart", path=f"{here}/text", tokenizer="hf")
    part = ["-n", "1", TRAINER, f"{here}/config.json"]
    done = subprocess.run([*MPIRUN, *part, ":", "-wdir", f"{here}/elsewhere", *part], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=TIMEOUT)
    check(done.returncode == 2 and "rank 1: data.tokenizer: cannot read hf: No such file" in done.stderr,
          f"exit {done.returncode}: {done.stderr}")


cases.main()
