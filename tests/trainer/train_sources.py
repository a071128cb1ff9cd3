#!/usr/bin/env python3
"""data.sources: a run on several sources is the same on any number of ranks and through a kill, other weights are told,
and one fixed batch takes no sources."""
from train_lib import *

make_text()
make_text("more")
with open("digits", "w") as f:
    f.write("".join(str(i * i % 10) for i in range(3000)))
SOURCES = [{"path": "more", "weight": 0.5}, {"path": "digits"}]


def mixed(directory, sources=SOURCES, **data):
    config(max_steps=6, scheduler={"type": "constant"}, data={"sequence_length": 32, "sources": sources, **data}, checkpoint={"dir": directory},
           metrics=None)  # a constant rate, so that more steps change none


for ranks in 1, 3:
    mixed(f"on-{ranks}")
    train(ranks, "config.json")
check(state(6, "on-1") == state(6, "on-3"), "three ranks have saved other bytes")
mixed("alone", sources=[])
train(1, "config.json")
check(state(6, "alone") != state(6, "on-1"), "the sources change nothing")

mixed("killed")
train_killed("killed")
check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")

mixed("on-1", sources=[{"path": "more", "weight": 2}])
_, err = train(1, "config.json", "max_steps=7")
check("was saved with data.path, whose samples are" in err, err)

make_records("right.safetensors", lambda i, n: 1)
make_records("wrong.safetensors", lambda i, n: 2)
config(data={"type": "records", "path": "right.safetensors", "sources": [{"path": "wrong.safetensors", "weight": 1}]})
_, err = train(1, "config.json", expect=2)
check("data.sources[0].path: wrong.safetensors: token" in err, f"another source is blamed: {err}")
mixed("refused", type="safetensors")
_, err = train(1, "config.json", expect=2)
check("data.sources: of data.type safetensors there is one fixed batch" in err, err)
