#!/usr/bin/env -S python3 -B
"""dcp-inspect prove: checksums are CRC-64/XZ of the tensors' bytes, and they and the state id are equal for
both layouts, whatever the cut and however many ranks look; another bit is another id."""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import flip, inspect, run, save  # noqa: E402

TABLE = []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0xc96c5795d7870f42 if value & 1 else 0)
    TABLE.append(value)


def crc64(data):
    crc = 2**64 - 1
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return f"{crc ^ 2**64 - 1:016x}"


assert crc64(b"123456789") == "995dc9bbdf1939fa"
rng = np.random.default_rng(7)
scratch = tempfile.TemporaryDirectory(prefix="dcp_prove.")
tmp = scratch.name
state = {"/model/w": rng.standard_normal((37, 41), dtype=np.float32),
         "/model/b": rng.standard_normal(5).astype(np.float16),
         "/model/none": np.zeros((0, 3), np.float32),
         "/model/three": rng.integers(0, 255, (5, 7, 9)).astype(np.uint8),
         "/optimizer/step": np.int64(3)}
steps = [save(f"{tmp}/{i}", 3, state, {"lr": 0.1}, layout)
         for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))]
expected = {path: crc64(np.asarray(array).tobytes()) for path, array in state.items()}

proofs = [inspect("prove", step, ranks=ranks) for step in steps for ranks in (0, 3)]
for proof in proofs:
    assert proof["state_id"] == proofs[0]["state_id"], proofs
    assert {t["path"]: t["crc64"] for t in proof["tensors"]} == expected, (proof, expected)
for step in steps:
    text = run("prove", step, "model/w", "b").splitlines()
    assert text == [f"{expected['/model/b']}  /model/b", f"{expected['/model/w']}  /model/w",
                    f"step 3: state id {proofs[0]['state_id']}"], text
run("prove", steps[0], "nothing*", status=2)
run("prove", f"{tmp}/nowhere", status=2)

state["/model/w"][36, 40] *= -1
other = inspect("prove", save(f"{tmp}/other", 3, state, {"lr": 0.1}))
assert other["state_id"] != proofs[0]["state_id"]
differs = {a["path"] for a, b in zip(other["tensors"], proofs[0]["tensors"]) if a != b}
assert differs == {"/model/w"}, differs

# what is read is proven by its blocks' checksums; a table by its own
w = state["/model/w"]
shard = f"{steps[2]}/shard-00001-of-00002.h5"
data = open(shard, "rb").read()
flip(shard, data.index(np.ascontiguousarray(w[:, 21:]).tobytes()[:64]))
run("prove", steps[2], status=1)
assert "/model/w" in run.said, run.said
