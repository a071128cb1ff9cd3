#!/usr/bin/env -S python3 -B
"""dcp-inspect show NAME[SLICE] means what numpy's basic slicing means, and prints as numpy does."""
import functools
import os

import numpy as np

from states import cases, inspect, run, save


@functools.cache
def state():
    rng = np.random.default_rng(5)
    return {"/model/x": rng.integers(-99, 99, (7, 6, 5)), "/model/row": np.arange(4000.0),
            "/model/wide": np.arange(6 * 600000, dtype=np.float32).reshape(6, 600000),  # rows of 2.4 MB
            "/model/odd": np.array([0, -0.0, np.nan, np.inf, -np.inf, 2]), "/model/scalar": np.float32(2),
            "/model/empty": np.zeros((0, 4)), "/model/names[0]": np.arange(5)}


@cases.shared
def steps():
    """Makes the step in three layouts."""
    return [os.path.abspath(save(f"{i}", 3, state(), {}, layout))
            for i, layout in enumerate(("global", "sharded:3:0", "sharded:2:1"))]


def sliced(name, index):
    """Returns the part of a tensor that numpy gives."""
    return eval(f"x[{index}]", {"x": np.asarray(state()[f"/model/{name}"])})


def check(name, index, step):
    want = sliced(name, index)
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


def test_slices_of_three_dimensions_in_each_layout():
    for index in ("0:2", "0:2,:", "0:2,:,:", "-1", "-1,-1,-1", "::2", "1::2,::3,1", "::-1", "5:1:-2,::-1",
                  "-2:,1:-1", ":,:,::-2", "100:", "-100:3", ":100:4", "4:2", "2:4:-1", "...", "...,0",
                  "0,...", "1,...,::2", "0,1,2,...", "::7", "::-7", "3:3", "-1:0:-1,2:3,-3::-1"):
        for step in steps():
            with cases.part(f"x[{index}] of {step}"):
                check("x", index, step)


def test_slices_of_a_long_row():
    for index in ("::1000", "::-999", "17", "3999:0:-1", "100:3000:7"):
        with cases.part(index):
            check("row", index, steps()[0])


def test_slices_of_wide_rows():
    for index in ("::5,::200000", "1::2,3:9", "::-3,-5:", "2,::-150000", "0:6:2,599999"):
        with cases.part(index):
            check("wide", index, steps()[0])


def test_a_name_may_have_brackets():
    assert inspect("show", steps()[0], "names[0]")["shown"] == [5]
    assert inspect("show", steps()[0], "names[0][-1]")["values"] == [4]


def test_scalars_and_empty_tensors():
    step = steps()[0]
    assert inspect("show", step, "scalar")["values"] == [2] and inspect("show", step, "empty")["values"] == []
    assert inspect("show", step, "empty[:,1::2]")["shown"] == [0, 2]


def test_zeros_nan_and_infinity_are_counted_apart():
    odd = inspect("show", steps()[0], "odd")
    assert (odd["zeros"], odd["nan"], odd["inf"], odd["min"], odd["max"]) == (2, 1, 2, 0, 2)
    assert odd["values"] == [0, 0, "nan", "inf", "-inf", 2], odd["values"]
    assert run("show", steps()[0], "odd").splitlines()[3] == "zeros 2  NaN 1  Inf 2"


def test_64_values_are_shown_by_default():
    assert len(inspect("show", steps()[0], "row")["values"]) == 64


def test_the_text_prints_as_numpy_does():
    step = steps()[0]
    for name, index, line in (("x", "0:2,:2,0", "[[{}, {}], [{}, {}]]"), ("x", "0,0,0", "{}")):
        assert line.format(*np.ravel(sliced(name, index))) == run("show", step, f"{name}[{index}]").splitlines()[-1]
    assert run("show", step, "row").splitlines()[-1] == "[0, 1, 2, ..., 3997, 3998, 3999]"
    assert run("show", step, "row[:5]", "--values", "5").splitlines()[-1] == "[0, 1, 2, 3, 4]"


def test_two_ranks_print_once():
    assert run("show", steps()[0], "x", ranks=2) == run("show", steps()[0], "x")


LAYOUTS = "global", "sharded:2:0"


def test_complex_numbers_are_measured_by_their_absolute_values():
    z = np.array([[1 + 2j, -0.5j, 3], [complex(np.nan, 1), complex(-np.inf, np.nan), 0], [-1e-3, 4 - 3j, 1 / 3]])
    for layout in LAYOUTS:
        step = save(layout, 3, {"/model/z": z, "/model/c": z.astype(np.complex64)}, {}, layout)
        for name, want in ("z", z), ("c", z.astype(np.complex64)):
            with cases.part(f"{layout} {name}"):
                got = inspect("show", step, name)
                values = [complex(v) for v in got["values"]]
                assert np.array_equal(np.array(values, want.dtype), want.ravel(), equal_nan=True), got
                assert (got["zeros"], got["nan"], got["inf"], got["min"], got["max"]) == (1, 2, 0, 0, 5), got
                assert np.isclose(got["mean"], np.abs(want[np.isfinite(want)].astype(complex)).mean(), rtol=1e-12), got
                assert run("show", step, f"{name}[2,:2]").splitlines()[-1] == {
                    "z": "[-0.001+0j, 4-3j]", "c": "[-0.00100000005+0j, 4-3j]"}[name], run("show", step, name)
                assert [complex(v) for v in inspect("show", step, f"{name}[0,::-2]")["values"]] == [3, 1 + 2j]


def test_bytes_of_e8m0_are_powers_of_two():
    powers = np.array([0, 1, 127, 128, 254, 255], np.uint8).view(np.int8)  # the last two: 2^127 and NaN
    for layout in LAYOUTS:
        with cases.part(layout):
            got = inspect("show", save(layout, 3, {"/model/e": powers}, {}, layout), "e")
            assert got["values"] == [5.877e-39, 1.175e-38, 1, 2, 1.701e+38, "nan"] and got["nan"] == 1, got
            assert got["min"] == 2.0**-127 and got["max"] == 2.0**127, got


def test_what_is_no_slice_is_refused():
    for index in ("0,0,0,0", "::0", "0:1:1:1", "1.5", ":,x", "None", "0]", "", "...,...", "0,1,2,..,"):
        with cases.part(index):
            run("show", steps()[0], f"x[{index}]", status=2)
            assert "is not a slice" in run.said, run.said


def test_an_index_out_of_range_is_refused():
    for index in ("7", "-8"):
        with cases.part(index):
            run("show", steps()[0], f"x[{index}]", status=2)
            assert "is out of range: /model/x has 7 indices in this dimension (-7 to 6)" in run.said, run.said


def test_values_takes_a_number_within_limits():
    for values in ("0", "-1", "x", "10000001"):
        with cases.part(values):
            run("show", steps()[0], "x", "--values", values, status=2)


cases.main()
