#!/usr/bin/env -S python3 -B
"""dcp-inspect layout: each rank's boxes are those of torch.chunk, or those that were written; the drawing is valid
XML whose size does not grow with the ranks."""
import functools
import os
import subprocess
import xml.etree.ElementTree as ET

import numpy as np

from states import cases, inspect, run, save


@functools.cache
def state():
    found = {"/model/embed_tokens.weight": np.ones((100, 6), np.float32),
             "/model/layers.0.self_attn.o_proj.weight": np.ones((8, 10), np.float32),
             "/model/layers.0.mlp.up_proj.weight": np.ones((10, 8), np.float32),
             "/model/empty": np.ones((0, 4), np.float32), "/model/scalar": np.float32(1),
             "/model/<norm>&\".weight": np.ones(5, np.float64),
             "/files/tokenizer.json": np.frombuffer(b"{}  ", np.uint8)}
    for path in [p for p in found if p.startswith("/model/")]:
        found["/optimizer/exp_avg/" + path[7:]] = found[path]
    return found


@cases.shared
def made():
    """Makes the step as one file."""
    return os.path.abspath(save("g", 3, state(), {}))


def chunk(n, rank, world):
    rows = -(-n // world)
    return min(n, rank * rows), min(n, (rank + 1) * rows)


def box(array, rank, world):
    """Returns torch.chunk's box on dimension 0; a scalar is on rank 0."""
    shape = list(np.shape(array))
    if not shape:
        return ([], []) if rank == 0 else None
    low, high = chunk(shape[0], rank, world)
    return ([low] + [0] * (len(shape) - 1), [high - low] + shape[1:]) if np.size(array) and high > low else None


def check(found, world, box_of):
    assert found["world"] == world == len(found["ranks"])
    held, tensors = np.zeros(world, int), np.zeros(world, int)
    by_path = {t["path"]: t["boxes"] for t in found["tensors"]}
    assert set(by_path) == set(state())
    for path, array in state().items():
        want = [(r, box_of(path, np.asarray(array), r)) for r in range(world)]
        want = [{"rank": r, "start": b[0], "count": b[1]} for r, b in want if b]
        assert by_path[path] == want, (path, by_path[path], want)
        for b in want:
            held[b["rank"]] += int(np.prod(b["count"])) * np.asarray(array).itemsize
            tensors[b["rank"]] += 1
    for r in range(world):
        assert found["ranks"][r] == {"rank": r, "bytes": held[r], "tensors": tensors[r]}
    assert list(np.sum([g["held"] for g in found["groups"]], axis=0)) == list(held)
    assert sum(g["bytes"] for g in found["groups"]) == sum(np.asarray(a).nbytes for a in state().values())


def test_boxes_of_fsdp_are_those_of_torch_chunk():
    for world in 1, 3, 4, 8, 200:
        with cases.part(f"{world} ranks"):
            found = inspect("layout", made(), "*", "--world", str(world))
            check(found, world, lambda path, array, r: box(array, r, world))
            assert found["mesh"] == f"fsdp={world}" and found["layout"] == "global"


# tensor parallelism cuts up_proj and embeddings by outputs and o_proj by inputs, and copies the rest
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


def test_boxes_of_a_mesh_with_tensor_parallelism():
    check(inspect("layout", made(), "*", "--mesh", "fsdp=3,tp=2"), 6, tp_box)


def test_a_rule_says_what_tensor_parallelism_cuts():
    rule = inspect("layout", made(), "*norm*", "--mesh", "fsdp=1,tp=2", "--tp-rule", "*norm*=0")
    assert [b["count"] for b in rule["tensors"][0]["boxes"]] == [[3], [2]]


def boxes_of(found):
    return {t["path"]: sorted((b["rank"], b["start"], b["count"]) for b in t["boxes"])
            for t in found["tensors"]}


@cases.shared
def fused():
    """Makes a step whose queries, keys and values are one tensor, with four heads."""
    heads = {"/model/h.0.attn.c_attn.weight": np.ones((8, 24), np.float32),
             "/model/h.0.attn.c_attn.bias": np.ones(24, np.float32)}
    return os.path.abspath(save("fused", 3, heads, {"model": {"n_head": 4, "n_embd": 8}}))


def fused_halves():
    """Returns the boxes of two ranks: queries, keys and values are cut separately."""
    halves = [[[s] for s in (0, 8, 16)], [[s] for s in (4, 12, 20)]]
    return {"/model/h.0.attn.c_attn.bias": [(r, s, [4]) for r in (0, 1) for s in halves[r]],
            "/model/h.0.attn.c_attn.weight": [(r, [0] + s, [8, 4]) for r in (0, 1) for s in halves[r]]}


def reshard(mesh, *options):
    command = ["dcp-reshard", "fused", "fused-tp", "--layout", "sharded", "--mesh", mesh, *options]
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_fused_heads_are_cut_each():
    found = inspect("layout", fused(), "*", "--mesh", "tp=2")
    assert boxes_of(found) == fused_halves(), boxes_of(found)
    assert [r["tensors"] for r in found["ranks"]] == [2, 2]


def test_reshard_cuts_fused_heads_the_same_way():
    cases.use(fused)
    done = reshard("tp=2")
    assert done.returncode == 0, done
    assert boxes_of(inspect("layout", "fused-tp", "*")) == fused_halves()
    run("verify", "fused-tp")
    run("diff", "fused", "fused-tp")


def test_a_cut_through_a_head_is_refused():
    cases.use(fused)
    run("layout", "fused", "--mesh", "tp=3", status=2)
    assert "tp=3 cuts through a head" in run.said and "has 4 heads" in run.said, run.said
    refused = reshard("tp=3", "--force")
    assert refused.returncode == 2 and "cuts through a head" in refused.stderr, refused


def test_key_and_value_heads_limit_tensor_parallelism():
    grouped = save("gqa", 3, {"/model/layers.0.self_attn.q_proj.weight": np.ones((32, 6), np.float32),
                              "/model/layers.0.self_attn.k_proj.weight": np.ones((16, 6), np.float32)},
                   {"model": {"num_attention_heads": 4, "num_key_value_heads": 2}})
    inspect("layout", grouped, "--mesh", "tp=2")
    run("layout", grouped, "--mesh", "tp=4", status=2)
    assert "k_proj.weight has 2 key and value heads" in run.said, run.said
    inspect("layout", grouped, "--mesh", "tp=4", "--tp-rule", "*[kv]_proj.weight=none")


def check_written(dim):
    """Shards have the boxes that were written, along one dimension, and any other number of ranks can be
    requested."""
    written = save("s", 3, state(), {}, f"sharded:4:{dim}")

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


def test_boxes_as_written_by_rows():
    check_written(0)


def test_boxes_as_written_by_columns():
    check_written(1)


def test_the_text_joins_ranks_that_are_alike():
    text = run("layout", made(), "--world", "64", "embed_tokens.weight")
    for words in ("on 64 ranks, fsdp=64", "\n1-3  ", "  rank 49     [98:100, 0:6]", "embed_tokens "):
        assert words in text, (words, text)


def test_boxes_are_listed_on_request_only():
    assert "boxes" not in str(inspect("layout", made(), "--world", "2"))


def test_the_drawing_does_not_grow_with_the_ranks():
    """Bands that are drawn as one count as one; labels appear if there is space."""
    sizes = {}
    for world in 4, 8, 512, 1024:
        run("layout", made(), "--world", str(world), "--svg", f"{world}.svg")
        root = ET.parse(f"{world}.svg").getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert f"on {world} ranks" in " ".join(texts) and "exp_avg" in texts
        assert '<norm>&"' in " ".join(texts), texts
        assert str(world // 2) in texts
        sizes[world] = len(list(root.iter()))
    assert max(sizes[512], sizes[1024]) < 600, sizes


def test_the_same_drawing_is_written_again():
    run("layout", made(), "--world", "4", "--svg", "4.svg")
    with open("4.svg") as f:
        before = f.read()
    assert inspect("layout", made(), "--world", "4", "--svg", "4.svg")["world"] == 4
    with open("4.svg") as f:
        assert f.read() == before


def test_a_drawing_that_cannot_be_written_fails():
    run("layout", made(), "--world", "4", "--svg", "no/such/folder.svg", status=2)


def test_one_file_needs_a_number_of_ranks():
    run("layout", made(), status=2)
    assert "the same for any number of ranks; specify the ranks by --world N or --mesh" in run.said


def test_wrong_arguments_are_refused():
    for args in (["--world", "0"], ["--world", "x"], ["--world", "100000"], ["--mesh", "tp"],
                 ["--mesh", "fsdp=2", "--world", "3"], ["--world", "2", "--tp-rule", "*=0"],
                 ["--mesh", "tp=2", "--tp-rule", "x"], ["--world", "2", "nothing*"], ["--svg"]):
        with cases.part(" ".join(args)):
            run("layout", made(), *args, status=2)
    run("layout", "nowhere", "--world", "2", status=2)


cases.main()
