#!/usr/bin/env python3
"""data.type records: a run is the same on any number of ranks and through a kill, only tokens with a mask of 1 are
learned, and what is wrong is refused in one line."""
import random
import struct

from train_lib import *


def records(path, mask_of):
    """64 records of bytes, 4 to 33 of them; mask_of(place in the record, length)."""
    generator = random.Random(3)
    lengths = [generator.randint(4, 33) for _ in range(64)]
    ids = [generator.choice(b"abcdefgh") for _ in range(sum(lengths))]
    mask = [mask_of(i, n) for n in lengths for i in range(n)]
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    data = struct.pack(f"<{len(starts)}q{len(ids)}I{len(mask)}B", *starts, *ids, *mask)
    ends = [0, 8 * len(starts), 8 * len(starts) + 4 * len(ids), len(data)]
    header = {name: {"dtype": dtype, "shape": [n], "data_offsets": [ends[i], ends[i + 1]]}
              for i, (name, dtype, n) in enumerate([("starts", "I64", len(starts)), ("input_ids", "U32", len(ids)),
                                                    ("loss_mask", "U8", len(mask))])}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def configured(directory, **data):
    config(max_steps=6, scheduler={"type": "constant"},
           data={"type": "records", "path": "all.safetensors", "sequence_length": 32, **data},
           checkpoint={"dir": directory}, metrics=f"{directory}.jsonl")


records("all.safetensors", lambda i, n: 1)
records("ends.safetensors", lambda i, n: i == n - 1)
for ranks in 1, 3:
    configured(f"on-{ranks}")
    train(ranks, "config.json")
check(state(6, "on-1") == state(6, "on-3"), "three ranks have saved other bytes")

configured("killed")
train_killed("killed")
check(state(6, "killed") == state(6, "on-1"), "a run that was killed has saved other bytes")

configured("ends", path="ends.safetensors", eval_path="all.safetensors")
train(2, "config.json")
check(state(6, "ends") != state(6, "on-1"), "the mask changes nothing")

configured("on-1", path="ends.safetensors")
_, err = train(1, "config.json", "max_steps=7")
check("was saved with data.path, whose samples have the checksum" in err, err)

configured("refused", sequence_length=16)
_, err = train(1, "config.json", expect=2)
check("all.safetensors: record" in err and "set it to" in err and err.count("\n") == 1, err)
configured("refused", eval_path="nowhere")
_, err = train(1, "config.json", expect=2)
check("data.eval_path: cannot read nowhere" in err and not os.path.exists("refused"), err)
