#!/usr/bin/env -S python3 -B
"""dcp-inspect stat: bytes by kind, parameters by module; numbers and histograms are equal to numpy's."""
import functools
import os
import re

import h5py
import numpy as np

from states import cases, flip, inspect, run, save


@functools.cache
def state():
    rng = np.random.default_rng(4)

    def f32(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    names = ["lm_head.weight", "model.embed_tokens.weight", "model.norm.weight", "w"] + [
        f"model.layers.{i}.{part}" for i in (0, 1, 10)
        for part in ("mlp.up_proj.weight", "self_attn.q_proj.weight", "self_attn.q_proj.bias")]
    found = {f"/model/{name}": f32(9, 13) for name in names}
    found["/model/lm_head.weight"] = f32(2100, 1001)  # two blocks, and more than one slice of 4 MiB
    found["/model/lm_head.weight"][5, 5:25] = 0
    found["/model/w"] = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 3, np.nan], np.float32)
    for moment in "exp_avg", "exp_avg_sq":
        for name in names:
            found[f"/optimizer/{moment}/{name}"] = (found[f"/model/{name}"] * 1e-6 if name != "w" else
                                                    np.full(7, 5, np.float32))
    found["/optimizer/exp_avg_sq/w"] = np.full(7, 1e-40, np.float32)  # subnormal numbers of fp32
    found["/optimizer/step"] = np.int64(3)
    found["/other/flags"] = np.array([True, False, True])
    found["/other/half"] = f32(50).astype(np.float16)
    found["/files/tokenizer.json"] = np.frombuffer(b"{}  ", np.uint8)
    return found


@cases.shared
def steps():
    """Makes the step in three layouts."""
    return [os.path.abspath(save(f"{i}", 3, state(), {"lr": 0.1}, layout))
            for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))]


def kind_of(path):
    parts = path.split("/")
    return parts[2] if parts[1] == "optimizer" and len(parts) > 3 else parts[1]


def check_numbers(found, arrays):
    x = np.concatenate([np.asarray(a, np.float64).ravel() for a in arrays])
    finite = x[np.isfinite(x)]
    assert found["zeros"] == np.count_nonzero(x == 0), found
    assert found["nan"] == np.count_nonzero(np.isnan(x)), found
    assert found["inf"] == np.count_nonzero(np.isinf(x)), found
    assert (found["min"], found["max"]) == (finite.min(), finite.max()), found
    assert np.isclose(found["mean"], finite.mean(), rtol=1e-12, atol=1e-15), found
    assert np.isclose(found["std"], finite.std(), rtol=1e-12, atol=1e-15), found
    if "histogram" not in found:
        return
    h = found["histogram"]
    for sign, key in ((1, "positive"), (-1, "negative")):
        n = finite[finite * sign > 0] * sign
        exponents = np.frexp(n)[1] - 1
        want = np.bincount(exponents - h["log2"], minlength=len(h[key]))
        assert list(want) == h[key], (key, h)


def check(found):
    kinds = {k["kind"]: k for k in found["kinds"]}
    assert list(kinds) == ["files", "model", "exp_avg", "exp_avg_sq", "optimizer", "other"]
    for kind, k in kinds.items():
        arrays = [a for path, a in state().items() if kind_of(path) == kind]
        assert k["tensors"] == len(arrays) and k["elements"] == sum(np.size(a) for a in arrays)
        assert k["bytes"] == sum(np.asarray(a).nbytes for a in arrays)
        assert ("zeros" in k) == (kind != "files")
        if kind != "files":
            check_numbers(k, arrays)
    for t in found["tensors"]:
        if not t["path"].startswith("/files"):
            check_numbers(t, [state()[t["path"]]])
    assert len(found["tensors"]) == len(state())
    parameters = {p: a for p, a in state().items() if p.split("/")[1] in ("model", "other")}
    assert found["parameters"] == sum(np.size(a) for a in parameters.values())
    modules = {m["module"]: m for m in found["modules"]}
    assert list(modules) == ["lm_head", "model", "model.embed_tokens", "model.layers",
                             "model.layers.0", "model.layers.1", "model.layers.10", "model.norm", "w",
                             "flags", "half"]
    assert modules["model.layers"]["parameters"] == 9 * 9 * 13 and modules["model"]["depth"] == 1
    assert modules["model.layers.10"] == {"module": "model.layers.10", "depth": 3, "tensors": 3,
                                          "parameters": 351, "bytes": 1404}
    assert modules["lm_head"]["parameters"] == 2100 * 1001 and modules["w"]["parameters"] == 7


def test_all_numbers_in_each_layout():
    for step in steps():
        with cases.part(step):
            found = inspect("stat", step)
            check(found)
            files = [f for f in os.listdir(step) if f.endswith(".h5")]
            assert found["bytes"] == sum(os.path.getsize(f"{step}/{f}") for f in files)
            assert found["table_bytes"] == found["bytes"] - sum(np.asarray(a).nbytes for a in state().values())
            assert found["files"] == len(files) and found["step"] == 3


def test_the_text_is_one_for_any_ranks():
    text = run("stat", steps()[0])
    assert run("stat", steps()[0], ranks=3) == text  # to the last digit


def test_the_text_has_modules_magnitudes_and_warnings():
    text = run("stat", steps()[0])
    assert re.search("\nlm_head +2,102,100 ", text) and re.search("\n  layers +1,053 ", text), text
    for words in ("/model/w: 2 NaN, 2 Inf", "magnitudes of exp_avg_sq", "tables ", "##|##"):
        assert words in text, (words, text)


def test_depth_limits_the_modules():
    assert [m["module"] for m in inspect("stat", steps()[0], "--depth", "1", "--quick")["modules"]] == \
        ["lm_head", "model", "w", "flags", "half"]


def test_quick_measures_no_values():
    quick = inspect("stat", steps()[0], "--quick")
    assert not any("zeros" in x for x in quick["kinds"] + quick["tensors"])
    assert "zeros" not in run("stat", steps()[0], "--quick")


def test_patterns_choose_tensors():
    some = inspect("stat", steps()[1], "*q_proj.bias", "/files/*")
    assert len(some["tensors"]) == 10 and some["kinds"][0]["kind"] == "files"
    check_numbers(some["kinds"][0], [state()["/files/tokenizer.json"]])


def test_wrong_arguments_are_refused():
    for args in (["nothing*"], ["--depth", "0"], ["--depth", "17"], ["--depth", "x"], ["--depth"]):
        with cases.part(" ".join(args)):
            run("stat", steps()[0], *args, status=2)
    run("stat", status=2)
    run("stat", "nowhere", status=2)


def test_damage_is_found_in_what_is_read():
    cases.use(steps)
    step = "0/step-00000003"
    with h5py.File(f"{step}/state.h5") as f:
        at = {row["path"].decode(): int(row["offset"]) for row in f["dcp/index"][:]}
    flip(f"{step}/state.h5", at["/model/lm_head.weight"] + (5 << 20))
    assert run("stat", step, status=1) == ""
    assert "/model/lm_head.weight, block 1" in run.said, run.said
    assert run("stat", step, status=1, ranks=2) == ""
    run("stat", step, "model.*")
    run("stat", step, "--quick")


cases.main()
