#!/usr/bin/env -S python3 -B
"""dcp-inspect show NAME[SLICE] means what numpy's basic slicing means, and prints as numpy does."""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from states import inspect, run, save  # noqa: E402

rng = np.random.default_rng(5)
scratch = tempfile.TemporaryDirectory(prefix="dcp_slices.")
tmp = scratch.name
state = {"/model/x": rng.integers(-99, 99, (7, 6, 5)), "/model/row": np.arange(4000.0),
         "/model/wide": np.arange(6 * 600000, dtype=np.float32).reshape(6, 600000),  # rows of 2.4 MB
         "/model/odd": np.array([0, -0.0, np.nan, np.inf, -np.inf, 2]), "/model/scalar": np.float32(2),
         "/model/empty": np.zeros((0, 4)), "/model/names[0]": np.arange(5)}
steps = [save(f"{tmp}/{i}", 3, state, {}, layout)
         for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))]


def check(name, index, step):
    want = eval(f"x[{index}]", {"x": np.asarray(state[f"/model/{name}"])})
    got = inspect("show", step, f"{name}[{index}]", "--values", "10000")
    assert got["shown"] == list(np.shape(want)), (index, got["shown"], np.shape(want))
    flat = np.asarray(want, float).ravel()
    assert got["values"] == list(flat)[:10000], (index, got["values"][:9], flat[:9])
    assert got["zeros"] == np.count_nonzero(flat == 0) and got["nan"] == 0
    assert ("min" in got) == (flat.size > 0)
    if flat.size:
        assert (got["min"], got["max"]) == (flat.min(), flat.max()), index
        assert np.isclose(got["mean"], flat.mean(), rtol=1e-12, atol=1e-12), index
        assert np.isclose(got["std"], flat.std(), rtol=1e-12, atol=1e-12), index


for index in ("0:2", "0:2,:", "0:2,:,:", "-1", "-1,-1,-1", "::2", "1::2,::3,1", "::-1", "5:1:-2,::-1",
              "-2:,1:-1", ":,:,::-2", "100:", "-100:3", ":100:4", "4:2", "2:4:-1", "...", "...,0",
              "0,...", "1,...,::2", "0,1,2,...", "::7", "::-7", "3:3", "-1:0:-1,2:3,-3::-1"):
    for step in steps:
        check("x", index, step)
for index in ("::1000", "::-999", "17", "3999:0:-1", "100:3000:7"):
    check("row", index, steps[0])
for index in ("::5,::200000", "1::2,3:9", "::-3,-5:", "2,::-150000", "0:6:2,599999"):
    check("wide", index, steps[0])
assert inspect("show", steps[0], "names[0]")["shown"] == [5]  # a name with brackets
assert inspect("show", steps[0], "names[0][-1]")["values"] == [4]
assert inspect("show", steps[0], "scalar")["values"] == [2] and inspect("show", steps[0], "empty")["values"] == []
assert inspect("show", steps[0], "empty[:,1::2]")["shown"] == [0, 2]

odd = inspect("show", steps[0], "odd")
assert (odd["zeros"], odd["nan"], odd["inf"], odd["min"], odd["max"]) == (2, 1, 2, 0, 2)
assert odd["values"] == [0, 0, "nan", "inf", "-inf", 2], odd["values"]
assert len(inspect("show", steps[0], "row")["values"]) == 64
for name, index, line in (("x", "0:2,:2,0", "[[{}, {}], [{}, {}]]"), ("x", "0,0,0", "{}")):
    want = eval(f"x[{index}]", {"x": state["/model/x"]})
    assert line.format(*np.ravel(want)) == run("show", steps[0], f"{name}[{index}]").splitlines()[-1]
assert run("show", steps[0], "row").splitlines()[-1] == "[0, 1, 2, ..., 3997, 3998, 3999]"
assert run("show", steps[0], "row[:5]", "--values", "5").splitlines()[-1] == "[0, 1, 2, 3, 4]"
assert run("show", steps[0], "odd").splitlines()[3] == "zeros 2  NaN 1  Inf 2"
assert run("show", steps[0], "x", ranks=2) == run("show", steps[0], "x")  # once

# complex numbers, by their absolute values; powers of two
z = np.array([[1 + 2j, -0.5j, 3], [complex(np.nan, 1), complex(-np.inf, np.nan), 0], [-1e-3, 4 - 3j, 1 / 3]])
powers = np.array([0, 1, 127, 128, -2, -1], np.int8)  # bits 254 and 255: 2^127 and NaN
for layout in "global", "sharded:2:0":
    step = save(f"{tmp}/complex-{layout}", 3, {"/model/z": z, "/model/c": z.astype(np.complex64), "/model/e": powers},
                {}, layout)
    for name, want in ("z", z), ("c", z.astype(np.complex64)):
        got = inspect("show", step, name)
        values = [complex(v) for v in got["values"]]
        assert np.array_equal(np.array(values, want.dtype), want.ravel(), equal_nan=True), got
        assert (got["zeros"], got["nan"], got["inf"], got["min"], got["max"]) == (1, 2, 0, 0, 5), got
        assert np.isclose(got["mean"], np.abs(want[np.isfinite(want)].astype(complex)).mean(), rtol=1e-12), got
        assert run("show", step, f"{name}[2,:2]").splitlines()[-1] == {
            "z": "[-0.001+0j, 4-3j]", "c": "[-0.00100000005+0j, 4-3j]"}[name], run("show", step, name)
        assert [complex(v) for v in inspect("show", step, f"{name}[0,::-2]")["values"]] == [3, 1 + 2j]
    got = inspect("show", step, "e")
    assert got["values"] == [5.877e-39, 1.175e-38, 1, 2, 1.701e+38, "nan"] and got["nan"] == 1, got
    assert got["min"] == 2.0**-127 and got["max"] == 2.0**127, got

for index in ("7", "-8", "0,0,0,0", "::0", "0:1:1:1", "1.5", ":,x", "None", "0]", "", "...,...", "0,1,2,..,"):
    run("show", steps[0], f"x[{index}]", status=2)
    out_of_range = index in ("7", "-8")
    assert ("is out of range: /model/x has 7 there (-7 to 6)" if out_of_range else "is no slice") in run.said
for values in ("0", "-1", "x", "10000001"):
    run("show", steps[0], "x", "--values", values, status=2)
scratch.cleanup()
