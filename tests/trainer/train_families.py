#!/usr/bin/env python3
"""Images and vectors train like tokens: from a random start, with the same bits on any number of ranks and after a
resume. Files of base models, without the family's prefix and with what old versions saved beside the weights, start the
same run as those of whole models."""
import json, os, shutil, struct
from train_lib import (cases, check, config, losses, make_text, messages, metrics, SOURCE, state,
                       step_path, tool, train)

GOLDEN = f"{SOURCE}/tests/data/golden"


def read(path):
    """Returns name to (dtype, shape, bytes) of a safetensors file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for n, t in header.items()}


def write(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def start(ranks, name, **over):
    c = config(checkpoint={"dir": name}, metrics=f"{name}.jsonl", scheduler={"type": "constant"},
               optimizer={"params": {"lr": 3e-3}}, train_batch_size=4,
               train_micro_batch_size_per_gpu=1, **over)
    train(ranks, c)
    return losses(f"{name}.jsonl"), state(over["max_steps"], name)


BATCH = {"type": "safetensors", "path": f"{GOLDEN}/vit/golden.safetensors"}
VIT = json.load(open(f"{GOLDEN}/vit/config.json"))
MODELS = {"vit": {**VIT, "qkv_bias": False, "num_hidden_layers": 1},
          "mlp": {"model_type": "mlp", "sizes": [768, 33, 20, 10]},
          "linear": {"model_type": "mlp", "sizes": [768, 10]}}
MASK = ("F32", [1, 1, 2, 2], bytes(16))
SURPLUS = {
    "gpt2": ("transformer.", {"h.0.attn.bias": MASK, "h.1.attn.masked_bias": ("F32", [], bytes(4)),
                              "lm_head.weight": None}),
    "vit": ("vit.", {"pooler.dense.weight": MASK, "pooler.dense.bias": MASK,
                     "embeddings.mask_token": MASK}),
    "qwen3": ("model.", {"layers.0.self_attn.rotary_emb.inv_freq": MASK})}


def test_images_and_vectors_train_with_the_same_bits():
    for name, model in MODELS.items():
        with cases.part(f"{name}"):
            results = [start(ranks, f"{name}{ranks}", model=model, data=BATCH, max_steps=4,
                             fsdp={"activation_checkpointing": ranks in (2, 5)})
                       for ranks in (1, 2, 3, 5)]
            check(all(r == results[0] for r in results), f"{name}: ranks leave a trace: {results[0][0]}")
            start(3, f"{name}cut", model=model, data=BATCH, max_steps=2)
            check(start(2, f"{name}cut", model=model, data=BATCH, max_steps=4) == results[0],
                  f"{name}: a resume leaves a trace")
            lines = metrics(f"{name}1.jsonl")
            check(lines[-1]["loss"] < lines[0]["loss"], f"{name}: nothing learned: {lines}")
            check(lines[-1]["tokens"] == 16, f"{name}: an image counts as one: {lines[-1]}")


def test_files_of_base_models_start_the_same_run():
    for family, (prefix, surplus) in SURPLUS.items():
        with cases.part(f"{family}"):
            whole = read(f"{GOLDEN}/{family}/model.safetensors")
            base = {name.removeprefix(prefix): t for name, t in whole.items()}
            check(len(set(base) - set(whole)) > 10, f"{family}: no prefix in {list(whole)}")
            surplus = {name: t or whole["transformer.wte.weight"] for name, t in surplus.items()}
            os.mkdir(family)
            shutil.copy(f"{GOLDEN}/{family}/config.json", family)
            write(f"{family}/model.safetensors", {**base, **surplus})
            data = {"type": "safetensors", "path": f"{GOLDEN}/{family}/golden.safetensors",
                    "sequence_length": None}  # that of the file
            results = [start(ranks, f"{family}from{ranks}", model=family, init=init, data=data, max_steps=1,
                             fsdp={"activation_checkpointing": ranks == 2})
                       for ranks, init in ((1, f"{GOLDEN}/{family}"), (2, family))]
            check(results[0] == results[1], f"{family}: names without {prefix} start another run")


def test_a_missing_classifier_starts_at_random():
    os.mkdir("vit")
    shutil.copy(f"{GOLDEN}/vit/config.json", "vit")
    # A base model's file has no classifier. The random numbers are the same from a folder and from its import.
    whole = read(f"{GOLDEN}/vit/model.safetensors")
    write("vit/model.safetensors", {n: t for n, t in whole.items() if not n.startswith("classifier")})
    tool("dcp-import", "vit", "vitckpt2")
    fresh = []
    for ranks, init in (1, "vit"), (2, "random"):
        c = config(model="vit", init=init, data=BATCH, max_steps=1, metrics=None, train_batch_size=4,
                   checkpoint={"dir": f"vitckpt{ranks}"}, optimizer={})
        _, err = train(ranks, c)
        check(err.count("newly initialized") == 2 and "has no classifier.weight" in err, err)
        fresh.append(state(1, f"vitckpt{ranks}"))
    check(fresh[0] == fresh[1], "a fresh classifier differs")
    with open(f"{step_path(1, 'vitckpt1')}/state.h5", "rb") as f:
        check(b"sequence_length" not in f.read(), "an image has no sequence")


def test_data_that_do_not_fit_the_model_are_refused():
    # They are refused before anything is made.
    make_text()
    c = config(model=MODELS["mlp"], checkpoint={"dir": "none"}, optimizer={})
    for overrides, text in (
            ([], "data.type: text gives tokens, but the model takes images or vectors"),
            (["data.type=safetensors", f"data.path={GOLDEN}/gpt2/golden.safetensors"],
             "has no tensor pixel_values"),
            (["model.sizes=[767,10]", "data.type=safetensors", f"data.path={BATCH['path']}",
              "train_batch_size=4"], "pixel_values is [4,3,16,16], but the model requires [4,767]"),
            (["model.sizes=[768,7]", "data.type=safetensors", f"data.path={BATCH['path']}",
              "train_batch_size=4"], "labels holds 7")):
        with cases.part(f"{overrides}"):
            _, err = train(2, c, *overrides, expect=2)
            check(text in messages(err)[-1], f"{overrides}: {err}")
    check(not os.path.exists("none"), "something is made")


cases.main()
