#!/usr/bin/env -S python3 -B
"""dcp-inspect ls: the state of each step, by its files' sizes and user blocks, with --verify by every
byte; damage has a reason."""
import os
import re
import shutil
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import flip, inspect, run, save  # noqa: E402

scratch = tempfile.TemporaryDirectory(prefix="dcp_ls.")
tmp = scratch.name
ckpt = f"{tmp}/c"
state = {f"/model/w{i}": np.arange(3000.0) for i in range(3)}
for step, layout in ((1, "global"), (2, "sharded:3:0"), (3, "global"), (4, "sharded:2:0")):
    save(ckpt, step, state, {}, layout)
good = inspect("ls", ckpt)
assert good["dir"] == ckpt and [s["step"] for s in good["steps"]] == [1, 2, 3, 4]
for s, layout, files in zip(good["steps"], ("global", "sharded") * 2, (1, 3, 1, 2)):
    folder = f"{ckpt}/{s['name']}"
    assert set(s) == {"name", "step", "state", "layout", "files", "bytes", "tensors", "ranks", "age_s",
                      "survives", "domains", "damage"} and s["survives"] is s["domains"] is None
    assert (s["state"], s["layout"], s["files"], s["tensors"]) == ("complete", layout, files, 3), s
    assert s["ranks"] == files and 0 <= s["age_s"] < 600 and s["damage"] is None
    assert s["bytes"] == sum(os.path.getsize(f"{folder}/{f}") for f in os.listdir(folder))


def table(*args, **how):
    """The text without ages, which grow."""
    return re.sub(r" +\d+ s\b", "", run("ls", ckpt, *args, **how))


text = table()
assert text.splitlines()[2].split()[:3] == ["step-00000002", "complete", "sharded"]
assert table("--verify") == text
assert table(ranks=2) == text

one = f"{ckpt}/step-00000001"


def broken(step, change, state, reason, status=0):
    """What `change` does to a copy of the step's folder makes it so, for that reason."""
    folder = f"{ckpt}/{step}"
    shutil.copytree(folder, f"{tmp}/kept")
    change(folder)
    for args, expected in ([], 0), (["--verify"], 1):
        found = {s["name"]: s for s in inspect("ls", ckpt, *args, status=expected)["steps"]}[step]
        assert found["state"] == state and reason in found["damage"], (found, reason)
        assert reason in run("ls", ckpt, *args, status=expected)
    shutil.rmtree(folder)
    os.rename(f"{tmp}/kept", folder)


def put(name, data):
    def change(folder):
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
    return change


with open(f"{one}/state.h5", "rb") as f:
    bytes_1 = f.read()
with open(f"{ckpt}/step-00000004/shard-00001-of-00002.h5", "rb") as f:
    shard = f.read()
broken("step-00000001", put("state.h5", bytes_1[:-4096]), "damaged", "size")
broken("step-00000001", put("state.h5", bytes_1 + b"x"), "damaged", "size")
broken("step-00000001", put("state.h5", b""), "damaged", "less than a user block")
broken("step-00000001", put("state.h5", bytes(len(bytes_1))), "damaged", "wrong magic")
broken("step-00000001", put("state.h5", shard), "damaged", "of the other layout")
broken("step-00000001", lambda d: flip(f"{d}/state.h5", 100), "damaged", "user block: its checksum")
broken("step-00000001", lambda d: os.remove(f"{d}/state.h5"), "damaged", "state.h5 is missing")
broken("step-00000001", lambda d: os.remove(f"{d}/about.json"), "damaged", "about.json is missing")
broken("step-00000001", lambda d: flip(f"{d}/about.json", 20), "damaged", "about.json: the checksum")
broken("step-00000001", lambda d: shutil.copy(f"{ckpt}/step-00000003/about.json", d), "damaged",
       "about.json: of step 3, not 1")
broken("step-00000002", lambda d: os.remove(f"{d}/shard-00001-of-00003.h5"), "damaged",
       "shard-00001-of-00003.h5 is missing")
broken("step-00000002", lambda d: os.truncate(f"{d}/shard-00002-of-00003.h5", 8192), "damaged", "size")
os.mkdir(f"{tmp}/elsewhere")
broken("step-00000003", lambda d: [os.rename(f"{d}/state.h5", f"{tmp}/elsewhere/s"),
                                   os.symlink(f"{tmp}/elsewhere/s", f"{d}/state.h5")], "damaged",
       "a symbolic link")

# only --verify looks at tables and tensors
flip(f"{one}/state.h5", len(bytes_1) // 2)
assert table() == text
found = inspect("ls", ckpt, "--verify", status=1)["steps"]
assert [s["state"] for s in found] == ["damaged"] + ["complete"] * 3 and "state.h5" in found[0]["damage"]
flip(f"{one}/state.h5", len(bytes_1) // 2)

# steps that are none, or not any more
os.rename(f"{ckpt}/step-00000004", f"{ckpt}/.abandoned-step-00000004")
shutil.copytree(one, f"{ckpt}/.tmp-step-00000005")
os.remove(f"{ckpt}/.tmp-step-00000005/about.json")
os.mkdir(f"{ckpt}/step-12")
os.mkdir(f"{ckpt}/.trash-step-00000009")
os.utime(one + "/about.json", (0, 0))
states = {s["name"]: s for s in inspect("ls", ckpt)["steps"]}
assert {n: s["state"] for n, s in states.items()} == {
    "step-00000001": "complete", "step-00000002": "complete", "step-00000003": "complete",
    ".abandoned-step-00000004": "abandoned", ".tmp-step-00000005": "partial"}
assert states[".tmp-step-00000005"]["ranks"] is None and states[".tmp-step-00000005"]["age_s"] < 600
assert inspect("ls", ckpt, "--verify")["steps"][0]["age_s"] < 600  # about.json's time, not the file's
flip(f"{ckpt}/.abandoned-step-00000004/shard-00000-of-00002.h5", 8)
found = inspect("ls", ckpt)["steps"][-2]
assert found["state"] == "abandoned" and "format version" in found["damage"] or "checksum" in found["damage"]

os.mkdir(f"{tmp}/empty")
assert run("ls", f"{tmp}/empty") == "" and "holds no steps" in run.said
assert inspect("ls", f"{tmp}/empty") == {"dir": f"{tmp}/empty", "steps": []}
for args in ([], ["a", "b"], [f"{tmp}/nowhere"], [f"{one}/state.h5"], [ckpt, "--frob"]):
    run("ls", *args, status=2)
scratch.cleanup()
