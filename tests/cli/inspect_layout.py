#!/usr/bin/env -S python3 -B
"""dcp-inspect layout: each rank's boxes are torch.chunk's, or those that were written; the drawing
is XML, which does not grow with the ranks."""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import inspect, run, save  # noqa: E402

scratch = tempfile.TemporaryDirectory(prefix="dcp_layout.")
tmp = scratch.name
state = {"/model/embed_tokens.weight": np.ones((100, 6), np.float32),
         "/model/layers.0.self_attn.o_proj.weight": np.ones((8, 10), np.float32),
         "/model/layers.0.mlp.up_proj.weight": np.ones((10, 8), np.float32),
         "/model/empty": np.ones((0, 4), np.float32), "/model/scalar": np.float32(1),
         "/model/<norm>&\".weight": np.ones(5, np.float64),
         "/files/tokenizer.json": np.frombuffer(b"{}  ", np.uint8)}
for path in [p for p in state if p.startswith("/model/")]:
    state["/optimizer/exp_avg/" + path[7:]] = state[path]
step = save(f"{tmp}/g", 3, state, {})


def chunk(n, rank, world):
    rows = -(-n // world)
    return min(n, rank * rows), min(n, (rank + 1) * rows)


def box(array, rank, world):  # torch.chunk on dimension 0; a scalar is on rank 0
    shape = list(np.shape(array))
    if not shape:
        return ([], []) if rank == 0 else None
    low, high = chunk(shape[0], rank, world)
    return ([low] + [0] * (len(shape) - 1), [high - low] + shape[1:]) if np.size(array) and high > low else None


def check(found, world, box_of):
    assert found["world"] == world == len(found["ranks"])
    held, tensors = np.zeros(world, int), np.zeros(world, int)
    by_path = {t["path"]: t["boxes"] for t in found["tensors"]}
    assert set(by_path) == set(state)
    for path, array in state.items():
        want = [(r, box_of(path, np.asarray(array), r)) for r in range(world)]
        want = [{"rank": r, "start": b[0], "count": b[1]} for r, b in want if b]
        assert by_path[path] == want, (path, by_path[path], want)
        for b in want:
            held[b["rank"]] += int(np.prod(b["count"])) * np.asarray(array).itemsize
            tensors[b["rank"]] += 1
    for r in range(world):
        assert found["ranks"][r] == {"rank": r, "bytes": held[r], "tensors": tensors[r]}
    assert list(np.sum([g["held"] for g in found["groups"]], axis=0)) == list(held)
    assert sum(g["bytes"] for g in found["groups"]) == sum(np.asarray(a).nbytes for a in state.values())


for world in 1, 3, 4, 8, 200:
    found = inspect("layout", step, "*", "--world", str(world))
    check(found, world, lambda path, array, r: box(array, r, world))
    assert found["mesh"] == f"fsdp={world}" and found["layout"] == "global"

# tensor parallelism: up_proj and embeddings by outputs, o_proj by inputs, the rest has copies
TP = {"embed": 0, "up_proj": 0, "o_proj": 1}


def tp_box(path, array, r):
    dim = [d for name, d in TP.items() if name in path]
    b = box(array, r // 2, 3)
    if not dim:
        return b
    low, high = chunk(array.shape[dim[0]], r % 2, 2)
    if dim[0] == 0:  # tp cuts first
        first, last = chunk(high - low, r // 2, 3)
        low, high = low + first, low + last
    else:
        first, last = b[0][0], b[0][0] + b[1][0]
    start, count = [0, 0], list(array.shape)
    if dim[0] == 1:
        start[0], count[0] = first, last - first
    start[dim[0]], count[dim[0]] = low, high - low
    return (start, count) if count[0] and count[1] else None


check(inspect("layout", step, "*", "--mesh", "fsdp=3,tp=2"), 6, tp_box)
rule = inspect("layout", step, "*norm*", "--mesh", "fsdp=1,tp=2", "--tp-rule", "*norm*=0")
assert [b["count"] for b in rule["tensors"][0]["boxes"]] == [[3], [2]]

# tensor parallelism cuts between heads: queries, keys and values that are one tensor are cut each
heads = {"/model/h.0.attn.c_attn.weight": np.ones((8, 24), np.float32),
         "/model/h.0.attn.c_attn.bias": np.ones(24, np.float32)}
fused = save(f"{tmp}/fused", 3, heads, {"model": {"n_head": 4, "n_embd": 8}})
found = inspect("layout", fused, "*", "--mesh", "tp=2")
halves = [[[s] for s in (0, 8, 16)], [[s] for s in (4, 12, 20)]]
want = {"/model/h.0.attn.c_attn.bias": [(r, s, [4]) for r in (0, 1) for s in halves[r]],
        "/model/h.0.attn.c_attn.weight": [(r, [0] + s, [8, 4]) for r in (0, 1) for s in halves[r]]}


def boxes_of(found):
    return {t["path"]: sorted((b["rank"], b["start"], b["count"]) for b in t["boxes"])
            for t in found["tensors"]}


assert boxes_of(found) == want, boxes_of(found)
assert [r["tensors"] for r in found["ranks"]] == [2, 2]
reshard = ["dcp-reshard", f"{tmp}/fused", f"{tmp}/fused-tp", "--layout", "sharded", "--mesh"]
subprocess.run(reshard + ["tp=2"], check=True, stdout=subprocess.DEVNULL)
assert boxes_of(inspect("layout", f"{tmp}/fused-tp", "*")) == want
run("verify", f"{tmp}/fused-tp")
run("diff", f"{tmp}/fused", f"{tmp}/fused-tp")
run("layout", fused, "--mesh", "tp=3", status=2)
assert "tp=3 cuts through a head" in run.said and "has 4 heads" in run.said, run.said
refused = subprocess.run(reshard + ["tp=3", "--force"], stderr=subprocess.PIPE, text=True)
assert refused.returncode == 2 and "cuts through a head" in refused.stderr, refused
grouped = save(f"{tmp}/gqa", 3, {"/model/layers.0.self_attn.q_proj.weight": np.ones((32, 6), np.float32),
                                 "/model/layers.0.self_attn.k_proj.weight": np.ones((16, 6), np.float32)},
               {"model": {"num_attention_heads": 4, "num_key_value_heads": 2}})
inspect("layout", grouped, "--mesh", "tp=2")
run("layout", grouped, "--mesh", "tp=4", status=2)
assert "k_proj.weight has 2 key and value heads" in run.said, run.said
inspect("layout", grouped, "--mesh", "tp=4", "--tp-rule", "*[kv]_proj.weight=none")

# as written, by rows and by columns
for dim in 0, 1:
    written = save(f"{tmp}/s{dim}", 3, state, {}, f"sharded:4:{dim}")

    def written_box(path, array, r):
        if array.ndim <= dim:
            return ([0] * array.ndim, list(array.shape)) if r == 0 else None
        low, high = chunk(array.shape[dim], r, 4)
        start, count = [0] * array.ndim, list(array.shape)
        start[dim], count[dim] = low, high - low
        return (start, count) if array.size and high > low else None

    found = inspect("layout", written, "*")
    check(found, 4, written_box)
    assert found["mesh"] is None and found["files"] == 4
    check(inspect("layout", written, "*", "--world", "3"), 3, lambda path, array, r: box(array, r, 3))

text = run("layout", step, "--world", "64", "embed_tokens.weight")
for words in ("on 64 ranks, fsdp=64", "\n1-3  ", "  rank 49     [98:100, 0:6]", "embed_tokens "):
    assert words in text, (words, text)
assert "boxes" not in str(inspect("layout", step, "--world", "2"))

# the drawing: what is drawn as one, is; labels are there where there is room
sizes = {}
for world in 4, 8, 512, 1024:
    svg = f"{tmp}/{world}.svg"
    run("layout", step, "--world", str(world), "--svg", svg)
    root = ET.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
    assert f"on {world} ranks" in " ".join(texts) and "exp_avg" in texts
    assert '<norm>&"' in " ".join(texts), texts
    assert str(world // 2) in texts
    sizes[world] = len(list(root.iter()))
assert max(sizes[512], sizes[1024]) < 600, sizes
with open(f"{tmp}/4.svg") as f:
    before = f.read()
assert inspect("layout", step, "--world", "4", "--svg", f"{tmp}/4.svg")["world"] == 4
with open(f"{tmp}/4.svg") as f:
    assert f.read() == before
run("layout", step, "--world", "4", "--svg", f"{tmp}/no/such/folder.svg", status=2)

run("layout", step, status=2)
assert "the same for any number of ranks: --world N is needed, or --mesh" in run.said
for args in (["--world", "0"], ["--world", "x"], ["--world", "100000"], ["--mesh", "tp"],
             ["--mesh", "fsdp=2", "--world", "3"], ["--world", "2", "--tp-rule", "*=0"],
             ["--mesh", "tp=2", "--tp-rule", "x"], ["--world", "2", "nothing*"], ["--svg"]):
    run("layout", step, *args, status=2)
run("layout", f"{tmp}/nowhere", "--world", "2", status=2)
scratch.cleanup()
