#!/usr/bin/env -S python3 -B
"""dcp-inspect diff --sort, --top, --depth: which tensors differ most, and which modules."""
import functools
import os

import numpy as np

from states import cases, inspect, run, save

KEYS = "relative", "max", "mean", "differing"
STEPS = {"/model/model.layers.3.mlp.up.weight": 0.5, "/model/model.layers.3.attn.q.weight": 0.1,
         "/model/model.layers.10.mlp.down.weight": 0.3, "/model/lm_head.weight": 0.01,
         "/optimizer/exp_avg/lm_head.weight": 0.02}


@functools.cache
def states():
    """Returns the states a and b, which differ in the tensors of STEPS."""
    rng = np.random.default_rng(5)
    a = {f"/model/model.layers.{l}.{part}.weight": rng.standard_normal((20, 30), dtype=np.float32)
         for l in range(12) for part in ("mlp.up", "mlp.down", "attn.q")}
    a |= {"/model/model.norm.weight": np.ones(30, np.float32), "/model/lm_head.weight": np.ones((4, 30), np.float32)}
    a |= {path.replace("/model/", "/optimizer/exp_avg/", 1): array / 10 for path, array in a.items()}
    b = {path: array.copy() for path, array in a.items()}
    for path, step in STEPS.items():
        b[path][:2] += np.float32(step)
    b["/model/lm_head.weight"] += np.float32(0.01)  # many elements, small differences
    return a, b


@cases.shared
def pair():
    return [os.path.abspath(save(name, 1, state, {})) for name, state in zip("ab", states())]


@cases.shared
def odd_pair():
    """Like pair(), but the second step also has a NaN and a tensor of another shape."""
    a, b = states()
    c = {**b, "/model/model.norm.weight": np.ones(31, np.float32)}
    name = "/model/model.layers.0.attn.q.weight"
    c[name] = c[name].copy()
    c[name][0, 0] = np.nan
    return [os.path.abspath(save(name, 1, state, {})) for name, state in (("a", a), ("c", c))]


def moved(path):
    x, y = (s[path].astype(float) for s in states())
    d = np.abs(y - x)
    return {"relative": np.linalg.norm(d) / np.linalg.norm(x), "max": d.max(), "mean": d.mean(),
            "differing": np.count_nonzero(d)}


def by(key):
    """Returns the tensors that differ, sorted by the key."""
    return sorted(STEPS, key=lambda p: (-moved(p)[key], p))


def test_sort_orders_tensors():
    for key in KEYS:
        for ranks in (0, 3) if key == "max" else (0,):
            with cases.part(f"{key} {ranks}"):
                found = [t["path"] for t in inspect("diff", *pair(), "--sort", key, status=1, ranks=ranks)["tensors"]]
                assert found[:5] == by(key) and len(found) == len(states()[0]), (key, found[:6])


def test_top_limits_the_lines():
    for key in KEYS:
        for ranks in (0, 3) if key == "max" else (0,):
            with cases.part(f"{key} {ranks}"):
                lines = run("diff", *pair(), "--sort", key, "--top", "2", status=1, ranks=ranks).splitlines()
                assert all(p.replace("/model/", "") in line for p, line in zip(by(key)[:2], lines)), (key, lines)
                assert lines[2] == "and 3 more tensors", lines
                assert lines[-1].startswith("76 tensors: 71 same, 5 changed"), lines


def test_top_sorts_by_the_relative_difference():
    found = inspect("diff", *pair(), "--top", "3", status=1)
    assert [t["path"] for t in found["tensors"]] == by("relative")[:3], found
    assert found["counts"]["changed"] == 5 and "modules" not in found


def test_modules_are_sorted_and_summed():
    modules = inspect("diff", *pair(), "--depth", "3", "--sort", "max", status=1)["modules"]
    assert [(m["kind"], m["module"]) for m in modules[:2]] == [
        ("model", "model.layers.3"), ("model", "model.layers.10")], modules
    third = modules[0]
    assert (third["tensors"], third["unlike"], third["unmeasured"], third["differing"]) == (3, 2, 0, 120), third
    xs = [np.concatenate([s[f"/model/model.layers.3.{p}.weight"].astype(float).ravel() for p in ("attn.q", "mlp.up")])
          for s in states()]
    assert np.isclose(third["relative"], np.linalg.norm(xs[1] - xs[0]) / np.linalg.norm(xs[0])), third
    assert len(modules) == 2 * (12 + 2) and sum(m["unlike"] for m in modules) == 5, len(modules)


def test_the_text_of_modules():
    lines = run("diff", *pair(), "--depth", "2", "--top", "1", "--sort", "differing", status=1).splitlines()
    assert "model.layers: 3 of 36 tensors: 180 of 1,800 elements" in lines[0], lines
    assert lines[1] == "and 2 more modules", lines
    lines = run("diff", *pair(), "--depth", "3", "--all", status=1).splitlines()
    assert sum(line.startswith("same ") for line in lines) == 24, lines


def test_what_differs_by_more_than_numbers_comes_first():
    lines = run("diff", *odd_pair(), "--sort", "mean", status=1).splitlines()
    assert "model.layers.0.attn.q.weight" in lines[0] and "model.norm.weight" in lines[1], lines
    lines = run("diff", *odd_pair(), "--depth", "2", status=1).splitlines()
    assert any("model.norm: 1 of 1 tensors, 1 of them in dtype or shape, or only on one side" in line for line in lines), lines


def test_wrong_arguments_are_refused():
    for args, said in ((["--sort", "size"], "'size' is none of relative, max, mean, differing"), (["--top", "0"], "--top"),
                       (["--depth", "17"], "--depth"),
                       (["--quick", "--top", "3"], "--quick does not measure all differences, which --sort, ")):
        with cases.part(" ".join(args)):
            run("diff", *odd_pair(), *args, status=2)
            assert said in run.said, run.said


cases.main()
