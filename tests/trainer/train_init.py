#!/usr/bin/env python3
"""`init` from a Hugging Face folder: any of its dtypes, tied weights saved twice, and many files are read; tensors that
are missing, surplus or of another shape are named."""
import json, math, os, shutil, struct
from train_lib import cases, check, config, make_text, messages, MODEL, SOURCE, state, tool, train

SOURCE_FOLDER = f"{SOURCE}/tests/data/golden/qwen3"


def read(path):
    """Returns header and data of a safetensors file."""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
            for name, t in header.items()}


def write(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def folder(name, tensors):
    os.mkdir(name)
    shutil.copy(f"{SOURCE_FOLDER}/config.json", name)
    if isinstance(tensors, dict):
        write(f"{name}/model.safetensors", tensors)
    else:
        files = {f"model-{i:05d}-of-{len(tensors):05d}.safetensors": part
                 for i, part in enumerate(tensors, 1)}
        for file, part in files.items():
            write(f"{name}/{file}", part)
        with open(f"{name}/model.safetensors.index.json", "w") as f:
            json.dump({"metadata": {}, "weight_map": {t: file for file, part in files.items()
                                                      for t in part}}, f)
    return name


def start(ranks, init, expect=0):
    c = config(model=SOURCE_FOLDER, init=init, max_steps=1, metrics=None,
               data={"sequence_length": 32}, checkpoint={"dir": f"{init}.{ranks}"})
    _, err = train(ranks, c, expect=expect)
    return err if expect else state(1, f"{init}.{ranks}")


whole = read(f"{SOURCE_FOLDER}/model.safetensors")
names = sorted(whole)
half = len(names) // 2
parts = [{n: whole[n] for n in names[:half]}, {n: whole[n] for n in names[half:]}]


def test_folders_of_all_dtypes_give_the_same_state():
    make_text()
    # Rounded to the 8 bits of bf16 and away from the limits of fp16, all dtypes hold the same values.
    coarse = {}
    for name, (dtype, shape, content) in whole.items():
        upper = [int(b, 16) for b in (content[i + 2:i + 4][::-1].hex() for i in range(0, len(content), 4))]
        values = [struct.unpack("<f", struct.pack("<I", bits << 16))[0] for bits in upper]
        values = [v if abs(v) > 1e-4 else 0.0 for v in values]
        coarse[name] = shape, values
    packed = {
        "F32": {n: ("F32", s, struct.pack(f"<{len(v)}f", *v)) for n, (s, v) in coarse.items()},
        "F16": {n: ("F16", s, struct.pack(f"<{len(v)}e", *v)) for n, (s, v) in coarse.items()},
        "BF16": {n: ("BF16", s, b"".join(struct.pack("<f", x)[2:] for x in v))
                 for n, (s, v) in coarse.items()},
    }
    results = [start(ranks, folder(dtype, tensors))
               for ranks, (dtype, tensors) in enumerate(packed.items(), 1)]
    check(results[0] == results[1] == results[2], "types that hold the same values give other states")


@cases.shared
def plain_folder():
    make_text()
    plain = start(1, folder("plain", whole))
    return plain


twice = {**whole, "lm_head.weight": whole["model.embed_tokens.weight"]}


def test_a_folder_of_several_files_gives_the_same_state():
    plain = cases.use(plain_folder)
    check(start(3, folder("parts", parts)) == plain, "a sharded folder gives another state")


def test_tied_weights_saved_twice_give_the_same_state():
    plain = cases.use(plain_folder)
    check(start(2, folder("twice", twice)) == plain, "tied weights saved twice give another state")


def test_different_weights_for_a_tied_head_are_refused():
    make_text()
    dtype, shape, content = whole["model.embed_tokens.weight"]
    folder("untied", {**twice, "lm_head.weight": (dtype, shape, content[:-4] + b"abcd")})
    for ranks in 1, 3:
        err = start(ranks, "untied", expect=2)
        check("lm_head.weight differs from model.embed_tokens.weight" in messages(err)[-1], err)
    tool("dcp-import", "untied", "untied.ckpt")
    for more in [], ["--dry-run"], ["init=untied.ckpt/step-00000000"]:
        _, err = train(1, config(model=SOURCE_FOLDER, data={"sequence_length": 32},
                                 checkpoint={"dir": "untied.ckpt"}), *more, expect=2)
        check("set model.tie_word_embeddings=false" in messages(err)[-1], err)


def test_tensors_that_do_not_fit_are_named():
    make_text()
    NORM = "model.layers.1.self_attn.q_norm.weight"
    MISSING = {n: t for n, t in whole.items() if n != NORM}
    dtype, shape, content = whole["model.norm.weight"]
    CASES = {
        "missing": (MISSING, [NORM, "[32] is missing there"]),
        "surplus": ({**whole, "model.extra.weight": ("F32", [1], b"1234")}, ["the model here has no tensor model.extra.weight"]),
        "shape": ({**whole, "model.norm.weight": (dtype, [32], content[:128])},
                  ["model.norm.weight is [32] there, [64] here"]),
        "type": ({**whole, "model.norm.weight": ("I32", shape, content)}, ["model.norm.weight is I32"]),
    }
    for name, (tensors, texts) in CASES.items():
        with cases.part(f"{name}"):
            folder(name, tensors)
            for ranks in (1, 3):
                err = start(ranks, name, expect=2)
                check(all(text in messages(err)[-1] for text in ["init: ", *texts]), f"{name}: {err}")


UNUSED = "plain holds weights, which are not used: set init=plain to start from them"
BYTES = "text feeds bytes as token ids, but {} has a tokenizer: make token ids with examples/tokenize_text.py"


def test_a_truncated_file_is_refused():
    make_text()
    folder("cut", whole)
    os.truncate("cut/model.safetensors", 100000)
    check("init: " in messages(start(2, "cut", expect=1))[-1], "a cut file")


def warnings(*args, ranks=1, **over):
    c = config(**{"model": "plain", "max_steps": 1, "metrics": None, "data": {"sequence_length": 32},
                  "scheduler": {"type": "constant", "params": {"warmup_steps": 0}},
                  "checkpoint": {"dir": "unused"}, **over})
    shutil.rmtree("unused", True)
    return [m for m in messages(train(ranks, c, *args)[1]) if "warning" in m]


@cases.shared
def folders():
    cases.use(plain_folder)
    folder("parts", parts)
    os.mkdir("words")
    with open("words/tokenizer.json", "w") as f:
        f.write("{}")
    with open("words/config.json", "w") as f:
        json.dump(MODEL, f)
    os.mkdir("indexed")
    for file in "config.json", "model.safetensors.index.json":
        shutil.copy(f"parts/{file}", "indexed")


def test_unused_contents_of_a_folder_are_a_warning():
    cases.use(folders)
    for more in [], ["--dry-run"]:
        told = warnings(*more, ranks=2)
        check(len(told) == 1 and UNUSED in told[0], told)
        told = warnings("init=plain", *more)
        check(not told, told)
        for over in {"model": "words"}, {"model": MODEL, "data": {"sequence_length": 32, "tokenizer": "words"}}:
            told = warnings(*more, ranks=2, **over)
            check(len(told) == 1 and BYTES.format("words") in told[0], told)
    check(UNUSED.replace("plain", "indexed") in warnings(model="indexed")[0], "weights of an index")


def test_an_export_of_bytes_with_a_tokenizer_is_a_warning():
    cases.use(folders)
    warnings(data={"sequence_length": 32, "tokenizer": "words"}, model=MODEL)
    tool("dcp-export", "unused", "tuned")
    told = warnings(model="tuned", init="tuned")
    check(len(told) == 1 and BYTES.format("tuned") in told[0], told)


def test_a_resumed_run_does_not_repeat_the_warning():
    cases.use(folders)
    warnings("init=plain", checkpoint={"dir": "goes-on"})
    check(not warnings("max_steps=2", checkpoint={"dir": "goes-on"}), "a run that goes on")


def go_on(*overrides, expect=0):
    """Runs or resumes config.json, and returns its messages about `init`, which a resumed run does not use."""
    _, err = train(1, "config.json", *overrides, expect=expect)
    return [line for line in messages(err) if "init:" in line]


def test_a_vocabulary_of_bytes_is_no_warning():
    cases.use(folders)
    shutil.copy("words/tokenizer.json", "plain")
    check(not warnings("init=plain"), "a vocabulary of bytes")


def test_another_init_on_a_resume_is_reported():
    make_text()
    for name in "first", "second":
        folder(name, whole)
    os.symlink("first", "linked")
    config(model=SOURCE_FOLDER, init="first", max_steps=1, data={"sequence_length": 32}, checkpoint={"dir": "stays"})
    said = go_on()
    check(said == [], said)
    for step, init, told in ((2, "first", 0), (3, "linked", 0), (4, os.path.abspath("first"), 0), (5, "random", 0),
                             (6, "second", 1),
                             (7, "second", 1), (8, "first", 0)):  # only weights that the run did not begin with are reported
        said = go_on(f"max_steps={step}", f"init={init}")
        why = "init: second is not used, because the run continues from its step, and began with first"
        check(len(said) == told and all(why in line for line in said), f"step {step}, {init}: {said}")
    check(len(go_on("max_steps=9", "init=second", "--dry-run")) == 1, "--dry-run")
    check(go_on("max_steps=1", "init=second", "checkpoint.resume=never", "checkpoint.overwrite=true") == [],
          "a new start")
    check(go_on("max_steps=2", "init=second") == [], "the new start's")
    tool("dcp-import", "first", "imported-first")
    said = go_on("max_steps=1", "init=second", "checkpoint.dir=imported-first")
    check(len(said) == 1 and "continues from its step; to start with these weights" in said[0], said)


def test_weights_that_are_not_finite_are_blamed_and_not_the_learning_rate():
    make_text()
    dtype, shape, content = whole[names[0]]
    size = len(content) // math.prod(shape)
    folder("no-number", {**whole, names[0]: (dtype, shape, b"\xff" * size + content[size:])})
    c = config(model=SOURCE_FOLDER, init="no-number", max_steps=2, data={"sequence_length": 32},
               checkpoint={"dir": "no-ckpt"})
    _, err = train(1, c, expect=3)
    check("before any update was made" in messages(err)[-1] and "look for them in no-number" in messages(err)[-1] and
          "optimizer.params.lr" not in messages(err)[-1], err)


cases.main()
