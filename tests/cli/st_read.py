"""Reads safetensors according to the format's description only: {name: (dtype, shape, bytes)}."""
import json, os, struct


def read(path):
    if os.path.isdir(path):
        index = os.path.join(path, "model.safetensors.index.json")
        if not os.path.exists(index):
            return read(os.path.join(path, "model.safetensors"))
        weight_map = json.load(open(index))["weight_map"]
        files = {f: read(os.path.join(path, f)) for f in set(weight_map.values())}
        assert sorted(weight_map) == sorted(n for f in files.values() for n in f)
        return {name: files[f][name] for name, f in weight_map.items()}
    data = open(path, "rb").read()
    (length,) = struct.unpack("<Q", data[:8])
    header, data = json.loads(data[8:8 + length]), data[8 + length:]
    assert length % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    ranges = sorted(t["data_offsets"] for t in header.values())
    assert [b for b, _ in ranges] == [0] + [e for _, e in ranges[:-1]] and ranges[-1][1] == len(data)
    return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}
