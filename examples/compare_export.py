"""Reads an exported folder with numpy and the checkpoint with h5py, without this project's code, and
compares every tensor bit for bit:  compare_export.py EXPORT_FOLDER STATE_H5"""
import glob
import json
import struct
import sys

import h5py
import numpy as np


def safetensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            assert entry["dtype"] == "F32", f"{name} is {entry['dtype']}"
            yield name, np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])


exported = dict(t for path in glob.glob(sys.argv[1] + "/*.safetensors") for t in safetensors(path))
model = {}
with h5py.File(sys.argv[2]) as file:
    file["model"].visititems(
        lambda name, item: model.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)

if not exported or exported.keys() != model.keys():
    sys.exit(f"names differ: {sorted(exported.keys() ^ model.keys())}")
for name, tensor in model.items():
    if tensor.shape != exported[name].shape or tensor.tobytes() != exported[name].tobytes():
        sys.exit(f"{name} differs")
print(f"{len(model)} tensors, {sum(t.size for t in model.values()):,} parameters: the export's are the checkpoint's, bit for bit")
