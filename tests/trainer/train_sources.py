#!/usr/bin/env python3
"""data.sources: a run on several sources is the same on any number of ranks and through a kill, other weights are told,
and what is wrong with the list is refused in one line."""
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

for entry, why in (({"path": "more", "wight": 1}, "data.sources[0].wight: unknown key; a source has path and weight"),
                   ({"weight": 1}, "data.sources[0].path: missing"),
                   ({"path": "more", "weight": 0}, "data.sources[0].weight is not a number above 0"),
                   ({"path": "nowhere"}, "data.sources[0].path: cannot read nowhere"),
                   ({"path": "more", "weight": 1e-5}, "more has a weight of less than one sample in 1000"),
                   ("more", "data.sources[0]: an object with keys is asked for")):
    mixed("refused", sources=[entry])
    _, err = train(1, "config.json", expect=2)
    check(why in err and err.count("\n") == 1 and not os.path.exists("refused"), f"{err}, not {why}")
mixed("refused", type="safetensors")
_, err = train(1, "config.json", expect=2)
check("data.sources: of data.type safetensors there is one fixed batch" in err, err)
