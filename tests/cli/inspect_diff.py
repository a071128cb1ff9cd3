#!/usr/bin/env -S python3 -B
"""dcp-inspect diff finds what numpy finds between two states, whatever their layouts and the number of ranks that
compare them; equal tensors are found by the tables' checksums alone."""
import functools
import os
import re

import h5py
import numpy as np

from states import cases, flip, inspect, run, save

LAYOUTS = ("global", "sharded:3:0", "sharded:4:1")
META = {"lr": 0.1, "model": {"layers": 2, "name": "m"}}
META_B = {"lr": 0.2, "model": {"layers": 2, "name": "m", "act": "silu"}}
STATUS = {"/model/big": "changed", "/model/bits": "same", "/model/dtype": "dtype",
          "/model/empty": "same", "/model/gone": "only_a", "/model/half": "changed",
          "/model/many": "changed", "/model/nan": "changed", "/model/new": "only_b",
          "/model/same": "same", "/model/scalar": "changed", "/model/shape": "shape",
          "/model/whole": "changed", "/model/zeros": "changed", "/files/text": "changed"}


@functools.cache
def states():
    """Returns the states a and b."""
    rng = np.random.default_rng(3)

    def f32(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    a = {"/model/big": f32(1500, 1000), "/model/bits": rng.integers(0, 2**16, (40, 8)).astype(np.uint16),
         "/model/dtype": f32(6, 8), "/model/empty": np.zeros((0, 4), np.float32), "/model/gone": f32(3, 4),
         "/model/half": f32(9, 12).astype(np.float16), "/model/many": f32(70, 100),
         "/model/nan": f32(5, 8), "/model/same": f32(100, 130), "/model/scalar": np.float32(1.5),
         "/model/shape": f32(4, 6), "/model/whole": rng.integers(-9, 9, (7, 11)),
         "/model/zeros": np.zeros((6, 6), np.float32), "/files/text": np.frombuffer(b"hello", np.uint8)}
    a["/model/nan"][0, :4] = np.nan, np.inf, -np.inf, np.nan
    b = {path: array.copy() for path, array in a.items()}
    b["/model/big"][1400, 7] += 0.5  # in its second block
    b["/model/dtype"] = a["/model/dtype"].astype(np.float64)
    b["/model/dtype"][2, 3] += 1
    del b["/model/gone"]
    b["/model/new"] = f32(2, 4)
    b["/model/half"][3] *= np.float16(1.25)
    b["/model/many"] *= np.float32(1 + 1e-3)
    b["/model/nan"][0, :5] = np.nan, np.inf, np.inf, 1, np.nan  # three elements whose difference is not finite
    b["/model/scalar"] = np.float32(2)
    b["/model/shape"] = f32(6, 4)
    b["/model/whole"][6, 10] += 3
    a["/model/whole"][0, :2] = 2**53, -2**63
    b["/model/whole"][0, :2] = 2**53 + 1, -2**63  # fp64 cannot represent the difference
    b["/model/zeros"][1, 1] = -0.0
    b["/model/zeros"][2, 2] = 1e-3
    b["/files/text"][4] = ord("p")
    return a, b


@cases.shared
def steps():
    """Makes steps of a, of b, and of a again, in each layout, by name and layout."""
    a, b = states()
    found = {}
    for layout in LAYOUTS:
        for name, state, meta in ("a", a, META), ("b", b, META_B), ("again", a, META):
            found[name, layout] = os.path.abspath(save(f"{name}-{layout}", 7, state, meta, layout))
    return found


def pair():
    """Returns steps of a and b, in different layouts."""
    return steps()["a", "global"], steps()["b", "sharded:4:1"]


def check_amounts(t):
    """The amounts of one tensor are equal to numpy's."""
    a, b = (state[t["path"]] for state in states())
    x, y = a.astype(np.float64), b.astype(np.float64)
    bits = a.dtype == b.dtype and a.dtype.kind == "f"
    kind = f"u{a.itemsize}"
    whole = a.dtype.kind in "iu"
    differs = a.view(kind) != b.view(kind) if bits else a != b
    assert t["differing"] == np.count_nonzero(differs), t
    finite = np.isfinite(x) & np.isfinite(y)
    odd = ~finite & ~((x == y) | (np.isnan(x) & np.isnan(y)))
    assert t["nonfinite"] == np.count_nonzero(odd), t
    d = np.abs(y[finite] - x[finite])
    if whole:  # Python's integers are exact
        d = np.array([abs(int(q) - int(p)) for p, q in zip(a.flat, b.flat)], float)
    assert t["max"] == d.max() and np.isclose(t["mean"], d.mean(), rtol=1e-12), t
    assert t.get("bits_only") == {"/model/zeros": 1}.get(t["path"], 0), t
    norm = np.linalg.norm(x[finite])
    if norm:
        assert np.isclose(t["relative"], np.linalg.norm(d) / norm, rtol=1e-12), t
    else:
        assert t["relative"] is None, t


def check(found):
    assert not found["same"]
    assert {t["path"]: t["status"] for t in found["tensors"]} == STATUS
    for t in found["tensors"]:
        assert ("max" in t) == (t["status"] in ("changed", "dtype")), t
        if "max" in t:
            check_amounts(t)
    by_path = {t["path"]: t for t in found["tensors"]}
    assert by_path["/model/shape"]["shape_b"] == [6, 4] and by_path["/model/dtype"]["dtype_b"] == "F64"
    assert found["counts"] == {k: list(STATUS.values()).count(k) for k in
                               ("same", "close", "changed", "dtype", "shape", "only_a", "only_b")}
    assert sorted(found["meta"], key=lambda m: m["key"]) == [
        {"key": "lr", "a": 0.1, "b": 0.2}, {"key": "model.act", "b": "silu"}]


def test_differences_in_each_pair_of_layouts():
    for of_a in LAYOUTS:
        for of_b in LAYOUTS:
            with cases.part(f"{of_a} and {of_b}"):
                found = inspect("diff", steps()["a", of_a], steps()["b", of_b], status=1)
                check(found)
                assert found["a"]["layout"] == of_a.split(":")[0] and found["a"]["step"] == 7


def test_equal_states_are_the_same_in_each_pair_of_layouts():
    for of_a in LAYOUTS:
        for of_b in LAYOUTS:
            with cases.part(f"{of_a} and {of_b}"):
                assert inspect("diff", steps()["a", of_a], steps()["again", of_b])["same"]


def test_the_text_is_one_for_any_ranks():
    assert run("diff", *pair(), status=1, ranks=3) == run("diff", *pair(), status=1)  # to the last digit


def test_the_text_lists_differences_only():
    text = run("diff", *pair(), status=1)
    assert "same" not in re.sub("[0-9]+ same", "", text), text
    for words in ("changed       /model/big F32 [1500, 1000]: 1 of 1,500,000 elements, max 0.5",
                  "dtype differs /model/dtype F32 [6, 8] against F64 [6, 8]",
                  "shape differs /model/shape F32 [4, 6] against F32 [6, 4]", "only in A     /model/gone",
                  "only in B     /model/new", "3 to or from NaN or infinity",
                  "/model/zeros F32 [6, 6]: 2 of 36 elements, max 0.001",
                  "1 only in their bits (0 and -0, or NaNs)", "/model/whole I64 [7, 11]: 2 of 77",
                  "meta          lr: 0.1 against 0.2", "meta          model.act: nothing against",
                  "15 tensors: 3 same, 8 changed, 1 dtype differs", "meta differs"):
        assert words in text, (words, text)


def test_all_lists_what_is_equal():
    assert "same          /model/same F32" in run("diff", *pair(), "--all", status=1)


def test_the_text_of_equal_states():
    assert run("diff", steps()["a", "global"], steps()["again", "sharded:4:1"]) == \
        "14 tensors: 14 same; meta the same\n"


def test_patterns_choose_tensors():
    assert inspect("diff", *pair(), "same", "/model/b[i]ts")["counts"]["same"] == 2
    assert inspect("diff", *pair(), "/model/many", status=1)["meta"] is None
    run("diff", *pair(), "nothing*", status=2)


def test_quick_measures_no_values():
    quick = inspect("diff", steps()["a", "global"], steps()["b", "global"], "--quick", status=1)
    assert {t["path"]: t["status"] for t in quick["tensors"]} == STATUS
    assert not any("max" in t for t in quick["tensors"])


def test_tolerances_are_numpys():
    a, b = (state["/model/many"].astype(float) for state in states())
    for rtol, atol in (1.1e-3, 0), (0, 1e-2), (1e-3, 1e-4), (0, 0), (0.9e-3, 1e-9):
        with cases.part(f"{rtol} {atol}"):
            args = ["--rtol", str(rtol), "--atol", str(atol)]
            close = np.allclose(a, b, rtol, atol)
            t = inspect("diff", *pair(), "many", *args, status=0 if close else 1)["tensors"][0]
            assert t["status"] == ("close" if close else "changed") and (t["beyond"] == 0) == close, t


def test_no_tolerance_covers_nan_and_infinity():
    assert inspect("diff", *pair(), "nan", "--atol", "100", status=1)["tensors"][0]["beyond"] == 3


def test_wrong_arguments_are_refused():
    for args in (["--rtol", "x"], ["--atol", "-1"], ["--rtol", "nan"], ["--rtol"],
                 ["--quick", "--rtol", "1"], ["--frob"]):
        with cases.part(" ".join(args)):
            run("diff", *pair(), *args, status=2)
    run("diff", pair()[0], status=2)
    run("diff", pair()[0], "nowhere", status=2)
    assert "nowhere" in run.said


def test_meta_may_be_all_that_differs():
    a = steps()["a", "global"]
    other = save("meta", 8, states()[0], META)
    found = inspect("diff", a, other, status=1)
    assert found["meta"] == [{"key": "step", "a": 7, "b": 8}] and found["counts"]["same"] == 14
    assert inspect("diff", a, other, "--ignore-meta")["meta"] is None
    assert inspect("diff", os.path.dirname(a), "meta", "model/*")["same"]  # directories of steps


@functools.cache
def complex_states():
    """Returns two arrays of complex numbers, equal if both parts are, and NaN where one part is; and the real
    parts of the first."""
    rng = np.random.default_rng(4)
    z = (rng.standard_normal((50, 6)) + 1j * rng.standard_normal((50, 6))).astype(np.complex64)
    z[0, :4] = complex(np.nan, 1), complex(np.inf, 1), complex(0, 0), complex(np.inf, 1)
    y = z.copy()
    y[0, :4] = complex(2, np.nan), complex(np.inf, 1), complex(-0.0, 0), complex(1, np.inf)
    y[1:] *= np.complex64(1j)  # with the same absolute values
    return z, y, z.real.astype(np.float32)


@cases.shared
def complex_steps():
    """Returns pairs of steps, by the second one's layout."""
    z, y, w = complex_states()
    one = os.path.abspath(save("z", 1, {"/model/z": z, "/model/w": z}, {}, "global"))
    return {layout: (one, os.path.abspath(save(f"y-{layout}", 1, {"/model/z": y, "/model/w": w}, {}, layout)))
            for layout in ("global", "sharded:3:0")}


def test_complex_numbers_differ_by_their_distance():
    z, y, _ = complex_states()
    finite = np.isfinite(z) & np.isfinite(y)
    d = np.abs(y[finite].astype(complex) - z[finite])
    for layout, both in complex_steps().items():
        with cases.part(layout):
            found = {t["path"]: t for t in inspect("diff", *both, status=1)["tensors"]}["/model/z"]
            assert (found["differing"], found["bits_only"], found["nonfinite"]) == (49 * 6 + 3, 2, 1), found
            assert np.isclose(found["max"], d.max(), rtol=1e-12) and np.isclose(found["mean"], d.mean(), rtol=1e-12)
            norm = np.linalg.norm(z[finite].astype(complex))
            assert np.isclose(found["relative"], np.linalg.norm(d) / norm, rtol=1e-12)


def test_complex_beside_real_numbers_whose_imaginary_parts_are_0():
    z = complex_states()[0]
    for layout, both in complex_steps().items():
        with cases.part(layout):
            found = {t["path"]: t for t in inspect("diff", *both, status=1)["tensors"]}["/model/w"]
            assert found["status"] == "dtype", found
            assert np.isclose(found["max"], np.abs(z[np.isfinite(z)].imag).max(), rtol=1e-6), found


def test_tolerances_of_complex_numbers():
    for layout, both in complex_steps().items():
        with cases.part(layout):
            far = inspect("diff", *both, "z", "--rtol", "1.4143", status=1)["tensors"][0]
            near = inspect("diff", *both, "z", "--rtol", "1.4142", status=1)["tensors"][0]
            assert far["beyond"] == 1 and near["beyond"] == 49 * 6 + 1, (far, near)


def own_pair():
    """Makes copies of the steps of a and b, each one file, which the case may change."""
    cases.use(steps)
    return "a-global/step-00000007", "b-global/step-00000007"


def offset(step, path):
    with h5py.File(f"{step}/state.h5") as f:
        return {row["path"].decode(): int(row["offset"]) for row in f["dcp/index"][:]}[path]


def test_the_tables_decide_what_is_equal():
    a, b = own_pair()
    flip(f"{b}/state.h5", offset(b, "/model/same"))
    check(inspect("diff", a, b, status=1))


def test_damage_in_what_is_read_is_found():
    a, b = own_pair()
    flip(f"{b}/state.h5", offset(b, "/model/many"))
    assert run("diff", a, b, status=1) == ""
    assert "/model/many, block 0" in run.said, run.said
    assert "before it" not in run.said, run.said  # both are named


def test_damage_in_the_newest_step_names_the_older_one():
    a, b = own_pair()
    flip(f"{b}/state.h5", offset(b, "/model/many"))
    older = save("b-global", 6, {"/model/same": states()[0]["/model/same"]}, META)
    assert run("diff", a, "b-global", status=1) == ""
    assert f"to use that one, give {older}" in run.said, run.said


cases.main()
