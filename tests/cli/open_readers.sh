#!/usr/bin/env bash
# Other software opens a checkpoint: h5ls, h5dump and h5py read every tensor, including those of
# type bf16.
. "$(dirname "$0")/tools_lib.sh"
"$MAKE_CHECKPOINT" "$dir/g" 3
"$MAKE_CHECKPOINT" "$dir/s" 3 sharded
for file in "$dir/g/step-00000003/state.h5" "$dir/s/step-00000003/shard-00000-of-00001.h5"; do
    gives 0 h5ls -r "$file"
    prints "^/model/layer.0.bf16 *Dataset {7, 5}"
    prints "^/optimizer/exp_avg/f8.e5m2 *Dataset {9, 3}"
    prints "^/other/z.c128 *Dataset {5, 3}"
    gives 0 h5dump -H "$file"
    for name in /model/layer.0.bf16 /model/layer.0.f16 /model/scalar.bits /model/boolean /model/whole.i64; do
        gives 0 h5dump -d "$name" "$file"
        prints "(0"
    done
    gives 0 h5dump -d /model/layer.0.bf16 "$file"
    prints "(0,0): -14.75, -12.625, -10.5, -8.375, -6.25"
    gives 0 "$DCP_PYTHON" - "$file" <<'PY'
import json, sys
import h5py
import numpy as np
f = h5py.File(sys.argv[1])
index = f["dcp/index"][:]
paths = [row["path"].decode() for row in index]
assert len(paths) == 27 and paths == sorted(paths)
bits = {"F64": 8, "F32": 4}
for t, row in enumerate(index):
    path, dtype, shape = paths[t], row["dtype"].decode(), tuple(row["shape"][:row["ndim"]])
    value = np.asarray(f[path][()])
    n = int(np.prod(shape))
    assert value.shape == shape, path
    if "bits" in path or "big" in path:
        x, want = t + 1, bytearray(n * bits[dtype])
        if "big" not in path:
            for i in range(len(want)):
                x = (x * 1664525 + 1013904223) % 2**32
                want[i] = x >> 24
            assert value.tobytes() == bytes(want), path
        continue
    i = (2 * t + 3) * np.arange(n) + t
    if dtype in ("F64", "F32", "F16", "BF16"):
        want = (i % 251 - 125) / 8
    elif dtype in ("C64", "C128"):
        assert value.dtype == {"C64": np.complex64, "C128": np.complex128}[dtype], path
        want = (i % 251 - 125) / 8 + 1j * (i % 100)
    elif dtype == "BOOL":
        want = i % 2 == 1
    elif dtype == "F8_E5M2":
        b = i % 100
        want = np.where(b < 4, b * 2.0**-16, (4 + b % 4) * 2.0**((b >> 2) - 17.0))
    else:
        want = i % 100
    said = f[path].attrs.get("dtype")  # names the type of tensors stored as unsigned bytes
    assert said in ((dtype, dtype.encode()) if dtype in ("F8_E4M3", "F8_E8M0") else (None,)), path
    assert np.array_equal(value.ravel(), want), (path, value.ravel()[:5], want[:5])
meta = json.loads(f["dcp/meta"][()])
assert meta["step"] == 3 and meta["model"]["model_type"] == "qwen3" and meta["lr"] == 0.1
PY
done
