#!/usr/bin/env bash
# An exported folder, read by an independent parser, contains what h5py reads from state.h5: bit for
# bit as stored, or rounded to nearest even if a type is given.
. "$(dirname "$0")/tools_lib.sh"
"$MAKE_CHECKPOINT" "$dir/c" 3
gives 0 dcp-reshard "$dir/c" "$dir/s" --layout sharded --world 3

gives 0 dcp-export "$dir/c" "$dir/hf"
gives 0 dcp-export "$dir/s/step-00000003" "$dir/hf-s"
diff -r "$dir/hf" "$dir/hf-s" || fail "exports of the two layouts differ"
for dtype in f32 bf16 f16; do notes dcp-export "$dir/c" "$dir/hf-$dtype" --dtype $dtype; done
says "bits.f64: "
gives 0 dcp-export "$dir/c" "$dir/hf-small/" --max-shard-size 20KB
[ -e "$dir/hf-small/model.safetensors.index.json" ] || fail "no index"
gives 0 $DCP_MPIRUN -n 2 dcp-export "$dir/c" "$dir/hf-mpi" --max-shard-size 20KB
diff -r "$dir/hf-small" "$dir/hf-mpi" || fail "exports by one and two ranks differ"

"$DCP_PYTHON" - "$dir" "$(dirname "$0")" <<'PY'
import json, sys
import h5py
import numpy as np
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[2])
import st_read
d = sys.argv[1]
stored = {}
h5py.File(d + "/c/step-00000003/state.h5")["model"].visititems(
    lambda name, o: stored.__setitem__(name, o[()]) if hasattr(o, "shape") else None)
plain, small = st_read.read(d + "/hf"), st_read.read(d + "/hf-small")
assert sorted(plain) == sorted(stored) and len(stored) == 19
assert plain == small

def bf16(x):  # rounds by arithmetic on the bits of fp32
    b = x.astype(np.float32).view(np.uint32).astype(np.int64)
    r = ((b + 0x7fff + (b >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), (b >> 16 & 0x8000 | 0x7fc0).astype(np.uint16), r)

for name, value in stored.items():
    value = np.asarray(value)
    dtype, shape, data = plain[name]
    assert shape == list(value.shape), name
    if dtype == "BF16":
        assert np.array_equal(np.frombuffer(data, np.uint16), bf16(value).ravel()), name
    else:
        assert data == value.tobytes(), name
    for to, np_type in (("f32", np.float32), ("f16", np.float16), ("bf16", None)):
        got_dtype, got_shape, got = st_read.read(d + "/hf-" + to)[name]
        assert got_shape == shape
        if dtype not in ("F64", "F32", "F16", "BF16"):
            assert (got_dtype, got) == (dtype, data), name
            continue
        assert got_dtype == to.upper(), name
        if name == "bits.f64" and to != "f32":
            continue  # numpy rounds twice; tests/cli/convert_rounding.c tests these
        with np.errstate(all="ignore"):
            want = bf16(value) if to == "bf16" else value.astype(np_type)
        if got == want.tobytes():
            continue
        got = np.frombuffer(got, want.dtype).reshape(want.shape)  # the bits of NaNs may differ
        assert to != "bf16" and np.array_equal(got, want, equal_nan=True), (name, to)

for folder, dtype in (("hf", "float32"), ("hf-bf16", "bfloat16"), ("hf-f16", "float16")):
    text = open(f"{d}/{folder}/config.json").read()
    assert "1e-06" in text or "1e-6" in text, text
    config = json.loads(text)
    assert config.pop("torch_dtype") == dtype
    assert config.pop("architectures") == ["Qwen3ForCausalLM"]
    assert config == {"model_type": "qwen3", "hidden_size": 96, "rms_norm_eps": 1e-6}
vocab = bytes(3 * i % 100 for i in range(5000))
assert open(d + "/hf/sub/vocab.txt", "rb").read() == vocab
assert open(d + "/hf/tokenizer.json", "rb").read() == bytes((5 * i + 1) % 100 for i in range(77))
PY

# No incomplete folder appears, and nothing is overwritten without --force.
gives 2 dcp-export "$dir/c" "$dir/hf"
says "already exists"
mkdir "$dir/mine" "$dir/empty"
touch "$dir/mine/thesis.tex"
gives 2 dcp-export "$dir/c" "$dir/mine" --force
[ -e "$dir/mine/thesis.tex" ] || fail "--force removed a folder that is no export"
cp -r "$dir/hf" "$dir/hf-and-more"
touch "$dir/hf-and-more/README.md"
gives 2 dcp-export "$dir/c" "$dir/hf-and-more" --force
says "README.md"
[ -e "$dir/hf-and-more/README.md" ] || fail "--force removed what is no part of an export"
gives 2 dcp-export "$dir/c" "$dir/c/step-00000099"
says "in the checkpoint itself"
gives 0 dcp-export "$dir/c" "$dir/empty"
notes dcp-export "$dir/c" "$dir/hf" --dtype bf16 --force
diff -r "$dir/hf" "$dir/hf-bf16" || fail "--force did not replace"
gives 0 dcp-export "$dir/c" "$dir/plan" --dry-run --max-shard-size 20KB
prints "$dir/plan/model-00001-of-"
[ ! -e "$dir/plan" ] || fail "--dry-run wrote"
gives 2 dcp-export "$dir/c" "$dir/no/such/parent"

# A stopped export leaves a complete folder or none, and no incomplete one beside it.
dcp-export "$dir/c" "$dir/stopped" >"$dir/out" 2>"$dir/err" &
until [ -n "$(find "$dir" -maxdepth 1 -name 'stopped*')" ]; do :; done
kill -TERM $! 2>/dev/null || true
status=0
wait $! || status=$?
case $status in
0) [ -e "$dir/stopped/config.json" ] || fail "done, and yet incomplete" ;;
143) [ ! -e "$dir/stopped" ] || fail "stopped, and yet there" ;;
*) fail "a stopped export: exit $status" ;;
esac
no_leftovers "$dir"

# A damaged checkpoint.
size=$(stat -c %s "$dir/c/step-00000003/state.h5")
printf '\377' | dd of="$dir/c/step-00000003/state.h5" bs=1 seek=$((size / 2)) conv=notrunc status=none
gives 1 dcp-export "$dir/c" "$dir/bad"
says "big.weight"
[ ! -e "$dir/bad" ] || fail "a failed export appeared"
no_leftovers "$dir"
