"""Reads an exported folder with numpy and the checkpoint with h5py, without this project's code, and
compares every tensor bit for bit:  compare_export.py EXPORT_FOLDER STATE_H5"""
import glob
import json
import struct
import sys

try:
    import h5py
    import numpy as np
except ImportError as e:
    print(f"compare_export.py: {e}; Debian: python3-h5py", file=sys.stderr)
    sys.exit(3)


def safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            if entry["dtype"] != "F32":
                fail(2, f"{name} is {entry['dtype']}; only F32 is compared here")
            yield name, np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])


def fail(status, why):
    print(f"compare_export.py: {why}", file=sys.stderr)
    sys.exit(status)


def main():
    if len(sys.argv) != 3:
        fail(2, __doc__)
    exported = dict(t for path in glob.glob(glob.escape(sys.argv[1]) + "/*.safetensors")
                    for t in safetensors(path))
    if not exported:
        fail(2, f"{sys.argv[1]}: holds no safetensors")
    model = {}
    with h5py.File(sys.argv[2]) as file:
        file["model"].visititems(
            lambda name, item: model.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    if exported.keys() != model.keys():
        fail(1, f"names differ: {sorted(exported.keys() ^ model.keys())}")
    for name, tensor in model.items():
        if tensor.shape != exported[name].shape or tensor.tobytes() != exported[name].tobytes():
            fail(1, f"{name} differs")
    print(f"{len(model)} tensors, {sum(t.size for t in model.values()):,} parameters: the export's are "
          "the checkpoint's, bit for bit")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, struct.error) as e:
        fail(2, f"{type(e).__name__}: {e}")
