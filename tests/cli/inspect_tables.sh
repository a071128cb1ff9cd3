#!/usr/bin/env bash
# The output of dcp-inspect ls and show, as text and as JSON, agrees with what was saved.
. "$(dirname "$0")/tools_lib.sh"
"$MAKE_CHECKPOINT" "$dir/c" 3
"$MAKE_CHECKPOINT" "$dir/c" 4 sharded
mkdir "$dir/c/.tmp-step-00000005" "$dir/c/step-00000006"
cp -r "$dir/c/step-00000003" "$dir/c/.abandoned-step-00000009"
echo junk >"$dir/c/step-00000006/state.h5"

gives 0 dcp-inspect ls "$dir/c"
prints "^step-00000003 .*complete .*global"
prints "^step-00000004 .*complete .*sharded"
prints "^step-00000006 .*damaged"
dcp-inspect ls "$dir/c" --json >"$dir/ls.json"
gives 0 dcp-inspect show "$dir/c/step-00000004"
prints "/model/layer.0.bf16"
dcp-inspect show "$dir/c/step-00000004" --json >"$dir/show.json"
for slice in "" "[1:3,:,0]" "[-1]" "[:, 9:]" "[2:1]"; do
    dcp-inspect show "$dir/c/step-00000003" "/model/layer.0.f32${slice// /}" --json
done >"$dir/slices.json"
dcp-inspect show "$dir/c/step-00000003" model/scalar.bits --json >"$dir/scalar.json"
dcp-inspect show "$dir/c/step-00000003" bits.f32 --json >"$dir/bits.json"
dcp-inspect show "$dir/c/step-00000003" whole.u64 --json >"$dir/whole.json"
gives 0 dcp-inspect show "$dir/c/step-00000003" bits.f64 # squares beyond the largest double
prints "std nan"
dcp-inspect show "$dir/c/step-00000003" bits.f64 --json >"$dir/squares.json"
gives 0 dcp-inspect show "$dir/c/step-00000003" boolean
prints "false, true"
gives 0 dcp-inspect show "$dir/c/step-00000003" empty
gives 2 dcp-inspect show "$dir/c/step-00000003" nothing
says "has no tensor 'nothing'; without a name, all tensors are listed"
gives 2 dcp-inspect show "$dir/c/step-00000003" "/model/layer.0.f23[1]"
says "has no tensor '/model/layer.0.f23\[1\]'; did you mean layer.0.f[0-9]*"
gives 2 dcp-inspect show "$dir/c/step-00000003" bits
says "did you mean bits.[a-z0-9]*, [a-z.]*bits.*, "
gives 0 dcp-inspect show "$dir/c/step-00000003" "layer.?.f*[0]" --values 1
for shown in "layer.0.f16: F16 \[5, 3, 2\]" "layer.0.f32: F32 \[5, 3, 2, 2\]" "layer.0.f64: F64 \[11\]"; do
    prints "^/model/$shown"
done
prints "^shown: \[3, 2, 2\], 12 elements"
dcp-inspect show "$dir/c/step-00000003" "*layer.0.f32[0,0,0]" --json >"$dir/glob.json"
gives 2 dcp-inspect show "$dir/c/step-00000003" "no*match"
says "no tensor matches 'no\*match'"
for slice in "[" "[]" "[0:1" "[0,0,0,0,0]" "[x]" "[::0]" "[0:1:2:3]" "[...,...]" "[99999999999999999999]"; do
    gives 2 dcp-inspect show "$dir/c/step-00000003" "layer.0.f32$slice"
    says "is not a slice"
done
gives 1 dcp-inspect show "$dir/c/step-00000006"
mkdir "$dir/empty"
"$DCP_BIN/dcp-inspect" ls "$dir/empty" 2>"$dir/err" || fail "an empty directory is not an error"
says "no steps"

"$DCP_PYTHON" - "$dir" <<'PY'
import json, re, sys
import numpy as np
d = sys.argv[1]
rows = {r["name"]: r for r in json.load(open(d + "/ls.json"))["steps"]}
assert rows["step-00000003"]["state"] == "complete" and rows["step-00000003"]["layout"] == "global"
assert rows["step-00000003"]["tensors"] == 27 and rows["step-00000003"]["ranks"] == 1
assert 0 <= rows["step-00000003"]["age_s"] < 600 and rows["step-00000003"]["bytes"] > 4400000
assert rows["step-00000004"]["layout"] == "sharded" and rows["step-00000004"]["tensors"] == 27
assert rows[".tmp-step-00000005"]["state"] == "partial"
assert rows["step-00000006"]["state"] == "damaged" and rows["step-00000006"]["tensors"] is None
assert rows[".abandoned-step-00000009"]["state"] == "abandoned"

show = json.load(open(d + "/show.json"))
assert show["step"] == 4 and show["layout"] == "sharded" and show["files"] == 1
assert show["meta"]["model"]["model_type"] == "qwen3" and show["meta"]["lr"] == 0.1
tensors = {t["path"]: t for t in show["tensors"]}
matched = json.load(open(d + "/glob.json"))["tensors"]
assert {t["path"] for t in matched} == {p for p in tensors if p.endswith("layer.0.f32")} and matched[0]["shown"] == [2]
assert tensors["/model/layer.0.f32"] == {"path": "/model/layer.0.f32", "dtype": "F32",
                                         "shape": [5, 3, 2, 2], "bytes": 240}
assert tensors["/model/scalar.bits"]["shape"] == [] and tensors["/model/empty"]["bytes"] == 0

x = ((21 * np.arange(60) + 9) % 251 - 125).reshape(5, 3, 2, 2) / 8
decoder, text = json.JSONDecoder(), open(d + "/slices.json").read()
for index in (np.s_[:], np.s_[1:3, :, 0:1], np.s_[-1:], np.s_[:, 9:], np.s_[2:1]):
    got, end = decoder.raw_decode(text)
    text = text[end:].lstrip()
    want = x[index]
    assert got["count"] == list(want.shape), (got, want.shape)
    assert got["values"] == list(want.flat)[:64], (got["values"], list(want.flat)[:64])
    if want.size:
        for key, value in (("min", want.min()), ("max", want.max()), ("mean", want.mean()),
                           ("std", want.std())):
            assert abs(got[key] - value) < 1e-12, (key, got[key], value)
    else:
        assert "min" not in got
state, data = 13, bytearray()
for _ in range(4):
    state = (state * 1664525 + 1013904223) % 2**32
    data.append(state >> 24)
got = json.load(open(d + "/scalar.json"))
assert np.float32(got["values"][0]) == np.frombuffer(data, np.float32)[0] and got["count"] == []
bits = json.load(open(d + "/bits.json"))
assert bits["nan"] > 0
squares = json.load(open(d + "/squares.json"))
assert squares["std"] is None and np.isfinite(squares["mean"]), squares
for step in ("3", "4"):
    about = open(d + "/c/step-0000000" + step + "/about.json").read()
    for key in ("seconds", "gb_per_s"):
        number = re.search('"%s": ([^,]*),' % key, about).group(1)
        assert len(number) <= 12, about
assert json.load(open(d + "/whole.json"))["values"] == [(41 * i + 19) % 100 for i in range(13)]
PY
