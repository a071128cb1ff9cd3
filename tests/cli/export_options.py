#!/usr/bin/env python3
"""dcp-export's options: optimizer state, files of a size, types, tied weights, one HDF5 file; by one rank
and by several; and what can't be combined."""
from hf_folder import *
import h5py
import st_read

make = os.environ["MAKE_CHECKPOINT"]
subprocess.run([make, "c", "3"], check=True)
state = stored("c/step-00000003/state.h5")
moments = {name[len("/optimizer/"):].replace("/", "."): data for name, (_, data) in state.items()
           if name.startswith("/optimizer/")}
check(moments and all(n.startswith("exp_avg") for n in moments), sorted(moments))

# optimizer state: as stored, whatever the model's type
run("dcp-export", "c", "opt", "--with-optimizer", "--dtype", "bf16")
run("dcp-export", "c", "opt-small", "--with-optimizer", "--dtype", "bf16", "--max-shard-size", "0.9765625KiB", ranks=3)
said = run("dcp-export", "c", "voiced", "--voice", "anna", "--voice-from", "opt/model.safetensors", expect=2)
check("has no talker.model.codec_embedding.weight" in said, said)  # train_talker_folder.py has a talker
got = {n: b for n, (_, _, b) in st_read.read("opt/optimizer.safetensors").items()}
check(got == moments, sorted(got))
index = json.load(open("opt-small/optimizer.safetensors.index.json"))
small = {}
for file in set(index["weight_map"].values()):
    small.update({n: b for n, (_, _, b) in st_read.read(f"opt-small/{file}").items()})
check(small == moments, "the optimizer in parts")
check(st_read.read("opt") == st_read.read("opt-small"), "the model in parts")
check(not os.path.exists("opt-small/optimizer.safetensors"), "both forms")

# files of a size, in transformers' form
index = json.load(open("opt-small/model.safetensors.index.json"))
check(list(index["weight_map"]) == sorted(index["weight_map"]), "order")
total = sum(len(b) for _, _, b in st_read.read("opt").values())
check(index["metadata"]["total_size"] == total, index["metadata"])
for file in set(index["weight_map"].values()):
    part = st_read.read(f"opt-small/{file}")
    check(len(part) == 1 or sum(len(b) for _, _, b in part.values()) <= 1000, f"{file} is too large")

# one HDF5 file, by one rank and three
run("dcp-export", "c", "one.h5", "--format", "hdf5", "--with-optimizer")
run("dcp-export", "c", "three.h5", "--format", "hdf5", "--with-optimizer", ranks=3)
want = {name[len("/model/"):] if name.startswith("/model/") else name[1:]: data
        for name, (_, data) in state.items() if name.startswith(("/model/", "/optimizer/"))}
for path in "one.h5", "three.h5":
    check(datasets(path) == want, path)

# tied weights: a copy is left out, what differs is not
E, H = values("F32", (6, 4)), values("F32", (6, 4), seed=1)
CASES = {
    "copy": ({"model.embed_tokens.weight": E, "lm_head.weight": E}, {"tie_word_embeddings": True}, 1),
    "other": ({"model.embed_tokens.weight": E, "lm_head.weight": H}, {"tie_word_embeddings": True}, 2),
    "untied": ({"model.embed_tokens.weight": E, "lm_head.weight": E}, {"tie_word_embeddings": False}, 2),
    "gpt2": ({"transformer.wte.weight": E, "lm_head.weight": E}, {"model_type": "gpt2"}, 1),
    "silent": ({"model.embed_tokens.weight": E, "lm_head.weight": E}, {}, 2),
}
for name, (tensors, config, n) in CASES.items():
    folder(name, tensors, {"model_type": "llama", **config})
    run("dcp-import", name, f"{name}-ckpt", "--allow-mismatch")
    run("dcp-export", f"{name}-ckpt", f"{name}-hf", "--allow-mismatch", ranks=2 if name == "copy" else 0)
    found = st_read.read(f"{name}-hf")
    check(len(found) == n and all(found[t] == tensors[t] for t in found), f"{name}: {sorted(found)}")
    run("dcp-export", f"{name}-ckpt", f"{name}.h5", "--format", "hdf5", "--allow-mismatch")
    check(len(datasets(f"{name}.h5")) == 2, f"{name}: HDF5 is whole")

# what is too large for a type is counted
folder("large", {"a": ("F32", [4], struct.pack("<4f", 65519, 65520, -1e38, float("inf"))),
                 "b": ("F32", [1], struct.pack("<f", 3.4e38)), "c": values("I64", (9,)),
                 "d": ("BF16", [1], b"\x00\x60"), "e": ("F64", [1], struct.pack("<d", 1e300))})
run("dcp-import", "large", "large-ckpt")
for ranks in 0, 3:
    for dtype, lines in ("f16", ["5 elements of 4 tensors are too large", "  a: 2", "  b: 1", "  d: 1", "  e: 1"]), \
            ("bf16", ["2 elements of 2 tensors", "  b: 1", "  e: 1"]), ("f32", ["1 elements of 1 ", "  e: 1"]):
        said = run("dcp-export", "large-ckpt", f"large{ranks}-{dtype}", "--dtype", dtype, ranks=ranks, err=True)
        said = [line for line in said.splitlines() if line.startswith("dcp-export: ")]
        check(len(said) == len(lines) and all(map(lambda a, b: a.startswith("dcp-export: " + b), said, lines)), said)

# 8-bit floats become the type that is asked for, exactly; their type is not config.json's
BYTES = bytes(range(256))
folder("eight", {"e4m3": ("F8_E4M3", [256], BYTES), "e5m2": ("F8_E5M2", [16, 16], BYTES), "w": values("BF16", (2,)),
                 "e8m0": ("F8_E8M0", [256], BYTES), "z": values("C64", (5, 2))})
run("dcp-import", "eight", "eight-ckpt")
run("dcp-export", "eight-ckpt", "eight-stored")
check(st_read.read("eight-stored") == st_read.read("eight"), "8-bit floats as stored")
check(json.load(open("eight-stored/config.json"))["dtype"] == "bfloat16", "the type of 8-bit floats")
run("dcp-export", "eight-ckpt", "eight.h5", "--format", "hdf5")
with h5py.File("eight.h5") as plain, h5py.File("eight-ckpt/step-00000000/state.h5") as kept:
    for name in "e4m3", "e5m2", "e8m0", "w", "z":  # the types, and the attribute of the one that HDF5 has no type for
        mine, theirs = plain[name], kept[f"model/{name}"]
        check(mine.id.get_type() == theirs.id.get_type() and dict(mine.attrs) == dict(theirs.attrs), f"HDF5: {name}")
    check(plain["z"].dtype == "complex64" and plain["z"][()].tobytes() == st_read.read("eight")["z"][2], "complex")
    check(plain["e8m0"].attrs["dtype"] in (b"F8_E8M0", "F8_E8M0"), "HDF5: what the bytes of e8m0 are")
    check(plain["e4m3"].attrs["dtype"] in (b"F8_E4M3", "F8_E4M3"), "HDF5: what the bytes of e4m3 are")
run("dcp-export", "eight-ckpt", "eight-f16", "--dtype", "f16", ranks=2)
eight = st_read.read("eight-f16")
upper = bytes(b for byte in BYTES for b in (0, byte))  # of an F16 an E5M2 is the upper half; NaNs become quiet
check(eight["e5m2"][0] == "F16" and all(eight["e5m2"][2][i:i + 2] == upper[i:i + 2] for i in range(0, 512, 2)
                                        if upper[i + 1] & 0x7f <= 0x7c), "E5M2")
e4m3 = struct.unpack("<256e", eight["e4m3"][2])
e8m0 = struct.unpack("<256e", eight["e8m0"][2])
check([e8m0[i] for i in (0, 102, 103, 127, 142, 143, 254)] == [0, 0, 2**-24, 1, 2**15, float("inf"), float("inf")] and
      e8m0[255] != e8m0[255], e8m0)
check(eight["z"] == st_read.read("eight")["z"], "no cast of complex numbers")
check([e4m3[i] for i in (0, 1, 0x38, 0x7e, 0xc0)] == [0, 2**-9, 1, 448, -2] and e4m3[0x7f] != e4m3[0x7f], e4m3)

# the types of safetensors that stay out; the one that safetensors has no name for
for dtype, size, said in (("F8_E4M3FNUZ", 2, "leaves out; convert"), ("F8_E5M2FNUZ", 2, "leaves out"), ("F4", 1, "leaves out"),
                          ("F6_E2M3", 3, "leaves out"), ("F6_E3M2", 3, "leaves out"), ("C128", 32, "unknown dtype 'C128'")):
    text = json.dumps({"t": {"dtype": dtype, "shape": [2], "data_offsets": [0, size]}}).encode()
    folder(f"foreign-{dtype}", {"t": values("F32", (2,))})
    with open(f"foreign-{dtype}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + bytes(size))
    found = run("dcp-import", f"foreign-{dtype}", "foreign-ckpt", expect=2)
    check("tensor 't'" in found and dtype in found and said in found, found)
    check(dtype.lower() in run("dcp-export", "eight-ckpt", "x", "--dtype", dtype.lower(), expect=2), dtype)
double = os.path.abspath("double")
with open("c128", "wb") as f:
    f.write(struct.pack("<4d", 1, -2, 0.1, 1e300))
subprocess.run([os.environ["MAKE_STATE"], double, "3", "global", "{}"], input="/model/z C128 2 c128\n", text=True, check=True)
found = run("dcp-export", "double", "double-hf", expect=2)
check("no type for C128, which 'z' is of: write HDF5 (dcp-export --format hdf5)" in found, found)
check(not os.path.exists("double-hf"), "nothing is left")
run("dcp-export", "double", "double.h5", "--format", "hdf5")
with h5py.File("double.h5") as plain:
    check(plain["z"].dtype == "complex128" and list(plain["z"]) == [1 - 2j, 0.1 + 1e300j], plain["z"][()])

# the type in config.json is the tensors', under the key that it came with
for key in "dtype", "torch_dtype", None:
    name = f"key-{key}"
    folder(name, {"w": values("BF16", (3,)), "ids": values("I64", (9,))},
           {"model_type": "sample", **({key: "float16"} if key else {})})
    run("dcp-import", name, f"{name}-ckpt")
    for option, text in (None, "bfloat16"), ("f32", "float32"), ("f16", "float16"):
        run("dcp-export", f"{name}-ckpt", f"{name}-{option}", *(["--dtype", option] if option else []))
        config = json.load(open(f"{name}-{option}/config.json"))
        check(config[key or "torch_dtype"] == text, config)

# integers of 64 bits without sign: through a save, dcp-inspect and an export
LARGE = {"model_type": "sample", "seed": 2**64 - 1, "list": [2**63, 2**63 - 1, -2**63], "text": str(2**64 - 1)}
folder("integers", {"w": values("F32", (3,))}, LARGE)
run("dcp-import", "integers", "integers-ckpt")
check(json.loads(run("dcp-inspect", "show", "integers-ckpt", "--json"))["meta"]["model"] == LARGE, "dcp-inspect show")
run("dcp-reshard", "integers-ckpt", "integers-two", "--layout", "sharded", "--world", "2")
run("dcp-inspect", "diff", "integers-ckpt", "integers-two")
run("dcp-export", "integers-two", "integers-hf")
config = json.load(open("integers-hf/config.json"))
check({key: config[key] for key in LARGE} == LARGE, config)
run("dcp-export", "integers-ckpt", "integers.h5", "--format", "hdf5")
with h5py.File("integers.h5") as plain:
    check({key: value for key, value in json.loads(plain.attrs["config"]).items() if key in LARGE} == LARGE, "HDF5")
folder("other-seed", {"w": values("F32", (3,))}, {**LARGE, "seed": 2**64 - 2})
run("dcp-import", "other-seed", "other-seed-ckpt")
check("model.seed: 18446744073709551615 against 18446744073709551614" in
      subprocess.run([f"{BIN}/dcp-inspect", "diff", "integers-ckpt", "other-seed-ckpt"], capture_output=True, text=True).stdout,
      "dcp-inspect diff")
folder("beyond", {"w": values("F32", (3,))}, {**LARGE, "seed": 2**64})
check("18446744073709551616 is outside -2^63 to 2^64 - 1" in run("dcp-import", "beyond", "x", expect=1), "beyond")

# what can't be
for args, said in ((["--format", "hdf5", "--max-shard-size", "1GB"], "--format hdf5 is one file"),
                   (["--max-shard-size", "0"], "is not a size"), (["--dtype", "f64"], "is none of"),
                   (["--format", "zip"], "is none of")):
    err = run("dcp-export", "c", "bad", *args, expect=2)
    check(said in err, err)
err = run("dcp-export", "copy-ckpt", "bad", "--with-optimizer", expect=2)
check("/optimizer/" in err and "leave out --with-optimizer" in err and not os.path.exists("bad"), err)
err = run("dcp-export", "copy-ckpt", "bad", "--with-optimizer", expect=2, ranks=2)
check(err.count("nothing to export") == 1, err)
check(not [n for n in os.listdir(".") if "tmp" in n], os.listdir("."))
