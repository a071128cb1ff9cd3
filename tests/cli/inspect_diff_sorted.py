#!/usr/bin/env -S python3 -B
"""dcp-inspect diff --sort, --top, --depth: which tensors moved most, and which modules."""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import inspect, run, save  # noqa: E402

rng = np.random.default_rng(5)
scratch = tempfile.TemporaryDirectory(prefix="dcp_sorted.")
a = {f"/model/model.layers.{l}.{part}.weight": rng.standard_normal((20, 30), dtype=np.float32)
     for l in range(12) for part in ("mlp.up", "mlp.down", "attn.q")}
a |= {"/model/model.norm.weight": np.ones(30, np.float32), "/model/lm_head.weight": np.ones((4, 30), np.float32)}
a |= {path.replace("/model/", "/optimizer/exp_avg/", 1): array / 10 for path, array in a.items()}
b = {path: array.copy() for path, array in a.items()}
STEPS = {"/model/model.layers.3.mlp.up.weight": 0.5, "/model/model.layers.3.attn.q.weight": 0.1,
         "/model/model.layers.10.mlp.down.weight": 0.3, "/model/lm_head.weight": 0.01,
         "/optimizer/exp_avg/lm_head.weight": 0.02}
for path, step in STEPS.items():
    b[path][:2] += np.float32(step)
b["/model/lm_head.weight"] += np.float32(0.01)  # many elements, little
pair = [save(f"{scratch.name}/{name}", 1, state, {}) for name, state in (("a", a), ("b", b))]


def moved(path):
    x, y = (s[path].astype(float) for s in (a, b))
    d = np.abs(y - x)
    return {"relative": np.linalg.norm(d) / np.linalg.norm(x), "max": d.max(), "mean": d.mean(),
            "differing": np.count_nonzero(d)}


for key in "relative", "max", "mean", "differing":
    want = sorted(STEPS, key=lambda p: (-moved(p)[key], p))
    for ranks in (0, 3) if key == "max" else (0,):
        found = [t["path"] for t in inspect("diff", *pair, "--sort", key, status=1, ranks=ranks)["tensors"]]
        assert found[:5] == want and len(found) == len(a), (key, found[:6])
        lines = run("diff", *pair, "--sort", key, "--top", "2", status=1, ranks=ranks).splitlines()
        assert all(p.replace("/model/", "") in line for p, line in zip(want[:2], lines)), (key, lines)
        assert lines[2] == "and 3 more tensors" and lines[-1].startswith("76 tensors: 71 same, 5 changed"), lines
found = inspect("diff", *pair, "--top", "3", status=1)
assert [t["path"] for t in found["tensors"]] == sorted(STEPS, key=lambda p: -moved(p)["relative"])[:3], found
assert found["counts"]["changed"] == 5 and "modules" not in found

# by module
modules = inspect("diff", *pair, "--depth", "3", "--sort", "max", status=1)["modules"]
assert [(m["kind"], m["module"]) for m in modules[:2]] == [("model", "model.layers.3"), ("model", "model.layers.10")], modules
third = modules[0]
assert (third["tensors"], third["unlike"], third["unmeasured"], third["differing"]) == (3, 2, 0, 120), third
xs = [np.concatenate([s[f"/model/model.layers.3.{p}.weight"].astype(float).ravel() for p in ("attn.q", "mlp.up")]) for s in (a, b)]
assert np.isclose(third["relative"], np.linalg.norm(xs[1] - xs[0]) / np.linalg.norm(xs[0])), third
assert len(modules) == 2 * (12 + 2) and sum(m["unlike"] for m in modules) == 5, len(modules)
lines = run("diff", *pair, "--depth", "2", "--top", "1", "--sort", "differing", status=1).splitlines()
assert "model.layers: 3 of 36 tensors: 180 of 1,800 elements" in lines[0] and lines[1] == "and 2 more modules", lines
lines = run("diff", *pair, "--depth", "3", "--all", status=1).splitlines()
assert sum(line.startswith("same ") for line in lines) == 24, lines

# first what differs by more than numbers; what can't be
b["/model/model.norm.weight"] = np.ones(31, np.float32)
b["/model/model.layers.0.attn.q.weight"][0, 0] = np.nan
pair[1] = save(f"{scratch.name}/c", 1, b, {})
lines = run("diff", *pair, "--sort", "mean", status=1).splitlines()
assert "model.layers.0.attn.q.weight" in lines[0] and "model.norm.weight" in lines[1], lines
lines = run("diff", *pair, "--depth", "2", status=1).splitlines()
assert any("model.norm: 1 of 1 tensors, 1 of them in dtype, shape or whole" in line for line in lines), lines
for args, said in ((["--sort", "size"], "'size' is none of relative, max, mean, differing"), (["--top", "0"], "--top"),
                   (["--depth", "17"], "--depth"), (["--quick", "--top", "3"], "--quick measures nothing")):
    run("diff", *pair, *args, status=2)
    assert said in run.said, run.said
