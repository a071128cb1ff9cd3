#!/usr/bin/env -S python3 -B
"""dcp-inspect verify finds the same on one rank and on several: each damaged block by tensor, number and
bytes, each structure by name, in files of many chunks and in layouts whose shards are no runs of their
tensors."""
import os
import re
import sys
import tempfile

import h5py
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import flip, inspect, run, save  # noqa: E402

rng = np.random.default_rng(6)
scratch = tempfile.TemporaryDirectory(prefix="dcp_verify_ranks.")
tmp = scratch.name
state = {"/model/big": rng.standard_normal((3001, 2003), dtype=np.float32),  # 24 MB
         "/model/bytes": rng.integers(0, 255, 77, dtype=np.uint8), "/model/scalar": np.float32(1),
         "/model/empty": np.zeros((0, 3), np.float32), "/model/z": rng.standard_normal((40, 50))}
steps = {layout: save(f"{tmp}/c{i}", i, state, {}, layout)
         for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))}


def look(step, status=1):
    return run("verify", step, status=status).splitlines()


def places(file):
    with h5py.File(file) as f:
        return {row["path"].decode(): (int(row["offset"]), int(row["bytes"])) for row in f["dcp/index"][:]}


for step in steps.values():
    size = sum(os.path.getsize(f"{step}/{f}") for f in os.listdir(step) if f.endswith(".h5"))
    assert re.fullmatch(r".*: intact, [0-9.]+ MB checked", look(step, 0)[0])
    assert inspect("verify", step) == {"path": step, "intact": True, "bytes": size, "damage": []}
    assert inspect("verify", step, ranks=3) == inspect("verify", step)

for layout, step in steps.items():
    file = f"{step}/" + ("state.h5" if layout == "global" else "shard-00001-of-0000%s.h5" % layout[8])
    at = places(file)
    big, length = at["/model/big"]
    last = length // (4 << 20)
    flips = [big, big + (4 << 20) - 1, big + (4 << 20), big + length - 1, at["/model/z"][0] + 5,
             os.path.getsize(file) - 3]
    for f in flips:
        flip(file, f)
    # the last byte of a file is in a page of padding that belongs to meta
    lines = look(step)
    assert lines[-1] == f"{step}: DAMAGED, {len(lines) - 1} place" + "s" * (len(lines) > 2), lines
    if "meta: its checksum" in lines[0]:  # then nothing else in the file can be believed
        flip(file, flips.pop())
        lines = look(step)
    want = [f"{file}: tensor /model/big, block 0 (bytes 0 to 4194304): damaged",
            f"{file}: tensor /model/big, block 1 (bytes 4194304 to {min(length, 8 << 20)}): damaged",
            f"{file}: tensor /model/big, block {last} (bytes {last * (4 << 20)} to {length}): damaged",
            f"{file}: tensor /model/z, block 0 (bytes 0 to {at['/model/z'][1]}): damaged"]
    assert lines[:-1] == sorted(set(want), key=want.index), (lines, want)
    assert run("verify", step, status=1, ranks=3).splitlines() == lines
    assert inspect("verify", step, status=1)["damage"] == lines[:-1]
    for f in flips[:5]:
        flip(file, f)
    flip(file, 5000)  # HDF5's metadata
    assert "HDF5 metadata or padding" in look(step)[0]
    flip(file, 5000)
    assert "intact" in run("verify", step)

# shards of different states, each right by itself
state["/model/z"][20:] += 1
other = save(f"{tmp}/other", 2, state, {}, "sharded:2:1")
os.replace(f"{other}/shard-00001-of-00002.h5", f"{steps['sharded:2:1']}/shard-00001-of-00002.h5")
assert "of another state than" in look(steps["sharded:2:1"])[0]

# all steps of a directory
both = f"{tmp}/both"
os.mkdir(both)
for i, layout in enumerate(("global", "sharded:3:0")):
    os.rename(steps[layout], f"{both}/step-{i:08d}")
os.mkdir(f"{both}/.tmp-step-00000007")
for ranks in 0, 3:
    found = inspect("verify", both, "--all", ranks=ranks)
    assert found["intact"] and [s["intact"] for s in found["steps"]] == [True, True]
flip(f"{both}/step-00000000/state.h5", 4096)
for ranks in 0, 3:
    found = inspect("verify", both, "--all", ranks=ranks, status=1)
    assert [s["intact"] for s in found["steps"]] == [False, True]
    assert run("verify", f"{tmp}/nowhere", ranks=ranks, status=2) == ""
assert run("verify", both, "--all", status=1).count("intact") == 1
assert "state.h5 is missing" in run("verify", f"{both}/.tmp-step-00000007", status=1)
assert run("verify", f"{tmp}/other/..", "--all", status=2) == ""
scratch.cleanup()
