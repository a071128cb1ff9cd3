#!/usr/bin/env bash
# --format hdf5 makes one plain file with the same values, which h5py can read.
. "$(dirname "$0")/tools_lib.sh"
"$MAKE_CHECKPOINT" "$dir/c" 3
gives 0 dcp-export "$dir/c" "$dir/model.h5" --format hdf5
notes dcp-export "$dir/c" "$dir/bf16.h5" --format hdf5 --dtype bf16
gives 2 dcp-export "$dir/c" "$dir/model.h5" --format hdf5
says "already exists"
gives 0 $DCP_MPIRUN -n 2 dcp-export "$dir/c" "$dir/model.h5" --format hdf5 --force
state=$(echo "$dir"/c/step-*/state.h5)
cp "$state" "$dir/before.h5"
echo mine >"$dir/mine.txt"
gives 2 dcp-export "$dir/c" "$dir/mine.txt" --format hdf5 --force
gives 2 dcp-export "$dir/c" "$state" --format hdf5 --force
gives 2 dcp-inspect layout "$dir/c" --world 2 --svg "$state"
cmp "$state" "$dir/before.h5" || fail "the checkpoint was replaced"
"$DCP_PYTHON" - "$dir" <<'PY'
import json, sys
import h5py
import numpy as np
d = sys.argv[1]
stored, plain, rounded = (h5py.File(d + p) for p in ("/c/step-00000003/state.h5", "/model.h5", "/bf16.h5"))
names = sorted(stored["model"])
config = json.loads(plain.attrs["config"])
assert config["model_type"] == "qwen3" and config["architectures"] == ["Qwen3ForCausalLM"], config
assert json.loads(rounded.attrs["config"])["torch_dtype"] == "bfloat16"
assert sorted(plain) == names and sorted(rounded) == names
for name in names:
    assert h5py.h5g.get_objinfo(plain[name].id).mtime == 0, "two exports would differ"
    a, b, c = stored["model"][name], plain[name], rounded[name]
    assert a.shape == b.shape == c.shape and a.dtype == b.dtype, name
    assert np.asarray(a[()]).tobytes() == np.asarray(b[()]).tobytes(), name
    with np.errstate(all="ignore"):
        exact = np.asarray(a[()]).astype(np.float64), np.asarray(c[()]).astype(np.float64)
    if "bits" not in name and "big" not in name:
        assert np.array_equal(*exact), name
PY
# A file that cannot be written, starting at its first byte or at its end: one message, and no file
# stays.
blocks=$(($(stat -c %s "$dir/model.h5") / 1024))
for limit in 1 $((blocks / 8)) $((blocks - 1)); do
    (ulimit -f $limit && gives 3 dcp-export "$dir/c" "$dir/limited.h5" --format hdf5)
    says "cannot write .*: File too large"
    [ "$(wc -l <"$dir/err")" -eq 1 ] || fail "says more"
    [ ! -e "$dir/limited.h5" ] || fail "left over: limited.h5"
    no_leftovers "$dir"
done
no_leftovers "$dir"
