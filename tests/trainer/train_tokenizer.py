#!/usr/bin/env python3
"""data.tokenizer: the tokenizer's files of a folder, or one, are in every checkpoint, the same on any number of ranks, and
in the export, byte by byte; a resumed run keeps them; what is none is refused before anything is written."""
from train_lib import *

os.mkdir("hf")
FILES = {"tokenizer.json": b'{"model": "mine"}\n' * 1000, "tokenizer_config.json": b"{}\n", "vocab.txt": b"a"}
for name, content in {**FILES, "config.json": b"{}", "model.safetensors": b"no", "notes.txt": b"no"}.items():
    with open(f"hf/{name}", "wb") as f:
        f.write(content)


def check_export(directory, files):
    tool("dcp-export", directory, f"{directory}-export", "--force")
    there = {name for name in os.listdir(f"{directory}-export") if name not in ("config.json", "model.safetensors")}
    check(there == set(files), f"{directory}: {there}")
    for name, content in files.items():
        check(open(f"{directory}-export/{name}", "rb").read() == content, f"{directory}: {name} has changed")


def small(directory, **data):
    config(model={**MODEL, "vocab_size": 256}, max_steps=2, data={"sequence_length": 32, **data},
           checkpoint={"dir": directory}, metrics=None)


make_text()
for ranks in 1, 3:
    small(f"on-{ranks}", tokenizer="hf")
    train(ranks, "config.json")
    check_export(f"on-{ranks}", FILES)
check(state(2, "on-1") == state(2, "on-3"), "three ranks have saved other bytes")

# the files of a run stay, whatever the folder holds by now
shutil.move("hf", "moved")
small("on-3")
train(2, "config.json", "max_steps=3")
check_export("on-3", FILES)
os.mkdir("other")
with open("other/tokenizer.json", "w") as f:
    f.write("another one")
train(2, "config.json", "max_steps=4", "data.tokenizer=other")
check_export("on-3", FILES)

# a run that began without takes them, and one file will do
small("late")
train(1, "config.json")
train(1, "config.json", "max_steps=3", "data.tokenizer=other/tokenizer.json")
check_export("late", {"tokenizer.json": b"another one"})

open("other/vocab.json", "w").close()
os.mkdir("none")
for path, why in (("nowhere", "cannot read nowhere: No such file"), ("none", "none holds no file of a tokenizer"),
                  ("text", "text has not the name of a tokenizer's file"), ("other", "other/vocab.json is empty")):
    for more in (), ("--dry-run",):
        _, err = train(1, "config.json", "checkpoint.dir=refused", f"data.tokenizer={path}", *more, expect=2)
        check(f"data.tokenizer: {why}" in err and not os.path.exists("refused"), err)
