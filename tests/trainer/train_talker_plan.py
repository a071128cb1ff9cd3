#!/usr/bin/env python3
"""--plan of both published sizes of talkers: as many parameters as they have, with and without the code predictor, and
as much memory for the frames as are asked for."""
import re

from train_lib import *

sys.path.append(f"{SOURCE}/tests/data")
from talker_sizes import PUBLISHED


def activations(frames, **over):
    config(model="model.json", data={"type": "speech", "path": "none", "sequence_length": 512, "frames": frames},
           fsdp={"activation_checkpointing": True}, bf16={"enabled": True}, train_batch_size=16, **over)
    out = tool(f"{BIN}/dcp-train", "--plan", "--ranks", 4, "config.json")
    return out, float(re.search(r"activations +([0-9.]+)", out).group(1))


for (model, all_of_them, without), root in zip(PUBLISHED.values(), (429466624, 386469888)):
    with open("model.json", "w") as f:
        json.dump(model, f)
    out, few = activations(80)
    check(f"{all_of_them} parameters, {all_of_them} of them trained, in 34 units" in out, out)
    check(f"\n{without} parameters without the code predictor\n" in out, out)
    found = int(re.search(r"root +([0-9]+)", out).group(1))
    check(abs(found - root) < 1e6, f"the root has {found} parameters")
    check("talker.model.layers.27" in out and "talker.code_predictor.model.layers.4" in out, out)
    out, many = activations(320, frozen=["talker.model.text_embedding.*", "talker.text_projection.*"])
    check(many > few, f"{many} MiB for 320 frames, {few} for 80")
    check(f"{all_of_them} parameters, {all_of_them} of them" not in out, out)
