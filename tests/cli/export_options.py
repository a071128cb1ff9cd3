#!/usr/bin/env python3
"""dcp-export's options: optimizer state, files of a given size, types, tied weights, one HDF5 file; with one rank
and with several; and combinations that are not valid."""
import functools, json, os, struct, subprocess
import h5py
from hf_folder import BIN, cases, check, datasets, folder, run, stored, values
import st_read

BYTES = bytes(range(256))
E, H = values("F32", (6, 4)), values("F32", (6, 4), seed=1)


@cases.shared
def saved():
    """Makes step 3 of make_checkpoint in the directory "c"."""
    subprocess.run([os.environ["MAKE_CHECKPOINT"], "c", "3"], check=True)


@functools.cache
def state():
    """Returns {path: (dtype, bytes)} of saved()."""
    saved()
    return stored(f"{saved.folder}/c/step-00000003/state.h5")


def moments():
    found = {name[len("/optimizer/"):].replace("/", "."): data for name, (_, data) in state().items()
             if name.startswith("/optimizer/")}
    check(found and all(n.startswith("exp_avg") for n in found), sorted(found))
    return found


@cases.shared
def exported():
    """Makes saved() and exports with the optimizer's state, in one file each ("opt") and in small ones
    ("opt-small")."""
    cases.use(saved)
    run("dcp-export", "c", "opt", "--with-optimizer", "--dtype", "bf16")
    run("dcp-export", "c", "opt-small", "--with-optimizer", "--dtype", "bf16", "--max-shard-size", "0.9765625KiB", ranks=3)
    check_nothing_left()


def index_of(path):
    with open(f"{path}.safetensors.index.json") as f:
        return json.load(f)


def configuration(path):
    with open(f"{path}/config.json") as f:
        return json.load(f)


def test_the_optimizer_is_exported_as_stored_whatever_the_models_type():
    cases.use(exported)
    got = {n: b for n, (_, _, b) in st_read.read("opt/optimizer.safetensors").items()}
    check(got == moments(), sorted(got))


def test_the_optimizer_in_small_files():
    cases.use(exported)
    small = {}
    for file in set(index_of("opt-small/optimizer")["weight_map"].values()):
        small.update({n: b for n, (_, _, b) in st_read.read(f"opt-small/{file}").items()})
    check(small == moments(), "the optimizer in parts")
    check(not os.path.exists("opt-small/optimizer.safetensors"), "both forms")


def test_the_model_in_small_files():
    cases.use(exported)
    check(st_read.read("opt") == st_read.read("opt-small"), "the model in parts")
    index = index_of("opt-small/model")
    check(list(index["weight_map"]) == sorted(index["weight_map"]), "order")
    total = sum(len(b) for _, _, b in st_read.read("opt").values())
    check(index["metadata"]["total_size"] == total, index["metadata"])
    for file in set(index["weight_map"].values()):
        part = st_read.read(f"opt-small/{file}")
        check(len(part) == 1 or sum(len(b) for _, _, b in part.values()) <= 1000, f"{file} is too large")


def test_a_voice_needs_a_talker():  # train_talker_folder.py tests one
    cases.use(exported)
    said = run("dcp-export", "c", "voiced", "--voice", "anna", "--voice-from", "opt/model.safetensors", expect=2)
    check("has no talker.model.codec_embedding.weight" in said, said)
    check_nothing_left()


def test_one_hdf5_file_by_one_rank_and_three():
    cases.use(saved)
    run("dcp-export", "c", "one.h5", "--format", "hdf5", "--with-optimizer")
    run("dcp-export", "c", "three.h5", "--format", "hdf5", "--with-optimizer", ranks=3)
    want = {name[len("/model/"):] if name.startswith("/model/") else name[1:]: data
            for name, (_, data) in state().items() if name.startswith(("/model/", "/optimizer/"))}
    for path in "one.h5", "three.h5":
        check(datasets(path) == want, path)
    check_nothing_left()


def check_tied(tensors, config, n, ranks=0):
    """An export to a Hugging Face folder has n of these tensors; one to HDF5 has all of them."""
    folder("tied", tensors, {"model_type": "llama", **config})
    run("dcp-import", "tied", "ckpt", "--allow-mismatch")
    run("dcp-export", "ckpt", "hf", "--allow-mismatch", ranks=ranks)
    found = st_read.read("hf")
    check(len(found) == n and all(found[t] == tensors[t] for t in found), sorted(found))
    run("dcp-export", "ckpt", "all.h5", "--format", "hdf5", "--allow-mismatch")
    check(len(datasets("all.h5")) == 2, "HDF5 is whole")
    check_nothing_left()


def test_a_copy_of_tied_weights_is_left_out():
    check_tied({"model.embed_tokens.weight": E, "lm_head.weight": E}, {"tie_word_embeddings": True}, 1, ranks=2)


def test_tied_weights_that_differ_are_both_exported():
    check_tied({"model.embed_tokens.weight": E, "lm_head.weight": H}, {"tie_word_embeddings": True}, 2)


def test_equal_weights_that_are_not_tied_are_both_exported():
    check_tied({"model.embed_tokens.weight": E, "lm_head.weight": E}, {"tie_word_embeddings": False}, 2)


def test_gpt2_ties_weights_by_default():
    check_tied({"transformer.wte.weight": E, "lm_head.weight": E}, {"model_type": "gpt2"}, 1)


def test_llama_does_not_tie_weights_by_default():
    check_tied({"model.embed_tokens.weight": E, "lm_head.weight": E}, {}, 2)


def test_what_is_too_large_for_a_type_is_counted():
    folder("large", {"a": ("F32", [4], struct.pack("<4f", 65519, 65520, -1e38, float("inf"))),
                     "b": ("F32", [1], struct.pack("<f", 3.4e38)), "c": values("I64", (9,)),
                     "d": ("BF16", [1], b"\x00\x60"), "e": ("F64", [1], struct.pack("<d", 1e300))})
    run("dcp-import", "large", "large-ckpt")
    for ranks in 0, 3:
        for dtype, lines in ("f16", ["5 elements of 4 tensors are too large", "  a: 2", "  b: 1", "  d: 1", "  e: 1"]), \
                ("bf16", ["2 elements of 2 tensors", "  b: 1", "  e: 1"]), ("f32", ["1 elements of 1 ", "  e: 1"]):
            with cases.part(f"{dtype} {ranks}"):
                said = run("dcp-export", "large-ckpt", f"large{ranks}-{dtype}", "--dtype", dtype, ranks=ranks, err=True)
                said = [line for line in said.splitlines() if line.startswith("dcp-export: ")]
                check(len(said) == len(lines) and all(map(lambda a, b: a.startswith("dcp-export: " + b), said, lines)), said)
    check_nothing_left()


@cases.shared
def small_floats():
    """Makes a folder of 8-bit floats ("eight") and its checkpoint ("eight-ckpt")."""
    folder("eight", {"e4m3": ("F8_E4M3", [256], BYTES), "e5m2": ("F8_E5M2", [16, 16], BYTES), "w": values("BF16", (2,)),
                     "e8m0": ("F8_E8M0", [256], BYTES), "z": values("C64", (5, 2))})
    run("dcp-import", "eight", "eight-ckpt")


def test_8_bit_floats_stay_as_stored_and_are_not_the_type_in_config_json():
    cases.use(small_floats)
    run("dcp-export", "eight-ckpt", "eight-stored")
    check(st_read.read("eight-stored") == st_read.read("eight"), "8-bit floats as stored")
    check(configuration("eight-stored")["dtype"] == "bfloat16", "the type of 8-bit floats")
    check_nothing_left()


def test_8_bit_floats_in_hdf5():
    """They have the types of state.h5, and an attribute with the name of a type that HDF5 lacks."""
    cases.use(small_floats)
    run("dcp-export", "eight-ckpt", "eight.h5", "--format", "hdf5")
    with h5py.File("eight.h5") as plain, h5py.File("eight-ckpt/step-00000000/state.h5") as kept:
        for name in "e4m3", "e5m2", "e8m0", "w", "z":
            mine, theirs = plain[name], kept[f"model/{name}"]
            check(mine.id.get_type() == theirs.id.get_type() and dict(mine.attrs) == dict(theirs.attrs), f"HDF5: {name}")
        check(plain["z"].dtype == "complex64" and plain["z"][()].tobytes() == st_read.read("eight")["z"][2], "complex")
        check(plain["e8m0"].attrs["dtype"] in (b"F8_E8M0", "F8_E8M0"), "HDF5: what the bytes of e8m0 are")
        check(plain["e4m3"].attrs["dtype"] in (b"F8_E4M3", "F8_E4M3"), "HDF5: what the bytes of e4m3 are")
    check_nothing_left()


def test_8_bit_floats_are_cast_exactly():
    cases.use(small_floats)
    run("dcp-export", "eight-ckpt", "eight-f16", "--dtype", "f16", ranks=2)
    eight = st_read.read("eight-f16")
    upper = bytes(b for byte in BYTES for b in (0, byte))  # an E5M2 is the upper half of an F16; NaNs become quiet
    check(eight["e5m2"][0] == "F16" and all(eight["e5m2"][2][i:i + 2] == upper[i:i + 2] for i in range(0, 512, 2)
                                            if upper[i + 1] & 0x7f <= 0x7c), "E5M2")
    e4m3 = struct.unpack("<256e", eight["e4m3"][2])
    e8m0 = struct.unpack("<256e", eight["e8m0"][2])
    check([e8m0[i] for i in (0, 102, 103, 127, 142, 143, 254)] == [0, 0, 2**-24, 1, 2**15, float("inf"), float("inf")] and
          e8m0[255] != e8m0[255], e8m0)
    check([e4m3[i] for i in (0, 1, 0x38, 0x7e, 0xc0)] == [0, 2**-9, 1, 448, -2] and e4m3[0x7f] != e4m3[0x7f], e4m3)
    check(eight["z"] == st_read.read("eight")["z"], "no cast of complex numbers")
    check_nothing_left()


def test_types_of_safetensors_that_stay_out():
    cases.use(small_floats)
    for dtype, size, said in (("F8_E4M3FNUZ", 2, "not support; convert"), ("F8_E5M2FNUZ", 2, "not support"), ("F4", 1, "not support"),
                              ("F6_E2M3", 3, "not support"), ("F6_E3M2", 3, "not support"), ("C128", 32, "unknown dtype 'C128'")):
        with cases.part(dtype):
            text = json.dumps({"t": {"dtype": dtype, "shape": [2], "data_offsets": [0, size]}}).encode()
            folder(f"foreign-{dtype}", {"t": values("F32", (2,))})
            with open(f"foreign-{dtype}/model.safetensors", "wb") as f:
                f.write(struct.pack("<Q", len(text)) + text + bytes(size))
            found = run("dcp-import", f"foreign-{dtype}", "foreign-ckpt", expect=2)
            check("tensor 't'" in found and dtype in found and said in found, found)
            check(dtype.lower() in run("dcp-export", "eight-ckpt", "x", "--dtype", dtype.lower(), expect=2), dtype)
    check_nothing_left()


def test_a_type_that_safetensors_has_no_name_for():
    double = os.path.abspath("double")
    with open("c128", "wb") as f:
        f.write(struct.pack("<4d", 1, -2, 0.1, 1e300))
    subprocess.run([os.environ["MAKE_STATE"], double, "3", "global", "{}"], input="/model/z C128 2 c128\n", text=True, check=True)
    found = run("dcp-export", "double", "double-hf", expect=2)
    check("no type for C128, the type of 'z': write HDF5 (dcp-export --format hdf5)" in found, found)
    check(not os.path.exists("double-hf"), "nothing is left")
    run("dcp-export", "double", "double.h5", "--format", "hdf5")
    with h5py.File("double.h5") as plain:
        check(plain["z"].dtype == "complex128" and list(plain["z"]) == [1 - 2j, 0.1 + 1e300j], plain["z"][()])
    check_nothing_left()


def test_config_json_has_the_tensors_type_under_the_key_that_it_came_with():
    for key in "dtype", "torch_dtype", None:
        with cases.part(f"key {key}"):
            name = f"key-{key}"
            folder(name, {"w": values("BF16", (3,)), "ids": values("I64", (9,))},
                   {"model_type": "sample", **({key: "float16"} if key else {})})
            run("dcp-import", name, f"{name}-ckpt")
            for option, text in (None, "bfloat16"), ("f32", "float32"), ("f16", "float16"):
                run("dcp-export", f"{name}-ckpt", f"{name}-{option}", *(["--dtype", option] if option else []))
                config = configuration(f"{name}-{option}")
                check(config[key or "torch_dtype"] == text, config)
    check_nothing_left()


LARGE = {"model_type": "sample", "seed": 2**64 - 1, "list": [2**63, 2**63 - 1, -2**63], "text": str(2**64 - 1)}


@cases.shared
def integers():
    """Makes a checkpoint whose configuration has unsigned integers of 64 bits."""
    folder("integers", {"w": values("F32", (3,))}, LARGE)
    run("dcp-import", "integers", "integers-ckpt")


def test_64_bit_integers_are_shown():
    cases.use(integers)
    check(json.loads(run("dcp-inspect", "show", "integers-ckpt", "--json"))["meta"]["model"] == LARGE, "dcp-inspect show")


def test_64_bit_integers_survive_reshard_and_export():
    cases.use(integers)
    run("dcp-reshard", "integers-ckpt", "integers-two", "--layout", "sharded", "--world", "2")
    run("dcp-inspect", "diff", "integers-ckpt", "integers-two")
    run("dcp-export", "integers-two", "integers-hf")
    config = configuration("integers-hf")
    check({key: config[key] for key in LARGE} == LARGE, config)
    check_nothing_left()


def test_64_bit_integers_in_hdf5():
    cases.use(integers)
    run("dcp-export", "integers-ckpt", "integers.h5", "--format", "hdf5")
    with h5py.File("integers.h5") as plain:
        check({key: value for key, value in json.loads(plain.attrs["config"]).items() if key in LARGE} == LARGE, "HDF5")
    check_nothing_left()


def test_64_bit_integers_that_differ_by_one_differ():
    cases.use(integers)
    folder("other-seed", {"w": values("F32", (3,))}, {**LARGE, "seed": 2**64 - 2})
    run("dcp-import", "other-seed", "other-seed-ckpt")
    found = subprocess.run([f"{BIN}/dcp-inspect", "diff", "integers-ckpt", "other-seed-ckpt"], capture_output=True, text=True)
    check("model.seed: 18446744073709551615 against 18446744073709551614" in found.stdout, "dcp-inspect diff")


def test_larger_integers_are_refused():
    folder("beyond", {"w": values("F32", (3,))}, {**LARGE, "seed": 2**64})
    check("18446744073709551616 is outside -2^63 to 2^64 - 1" in run("dcp-import", "beyond", "x", expect=1), "beyond")


def test_wrong_options_are_refused():
    cases.use(saved)
    for args, said in ((["--format", "hdf5", "--max-shard-size", "1GB"], "--format hdf5 is one file"),
                       (["--max-shard-size", "0"], "must be a size of at least 1 byte"), (["--dtype", "f64"], "is none of"),
                       (["--format", "zip"], "is none of")):
        with cases.part(" ".join(args)):
            err = run("dcp-export", "c", "bad", *args, expect=2)
            check(said in err, err)
    check_nothing_left()


def test_an_optimizer_that_is_not_stored_is_refused():
    folder("hf", {"model.embed_tokens.weight": E, "lm_head.weight": E}, {"model_type": "llama", "tie_word_embeddings": True})
    run("dcp-import", "hf", "ckpt", "--allow-mismatch")
    err = run("dcp-export", "ckpt", "bad", "--with-optimizer", expect=2)
    check("/optimizer/" in err and "leave out --with-optimizer" in err and not os.path.exists("bad"), err)
    err = run("dcp-export", "ckpt", "bad", "--with-optimizer", expect=2, ranks=2)
    check(err.count("nothing to export") == 1, err)
    check_nothing_left()


def check_nothing_left():
    check(not [n for n in os.listdir(".") if "tmp" in n], os.listdir("."))


cases.main()
