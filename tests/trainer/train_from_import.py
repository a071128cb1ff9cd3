#!/usr/bin/env python3
"""A run that starts from the output of dcp-import: with zero moments, which it reports, on any number of ranks, and with
the state of `init` from the same folder. Files of the import are in every later step and in its export."""
import json, os, shutil, struct
from train_lib import cases, check, config, make_text, messages, SOURCE, state, steps, tool, train

SOURCE_FOLDER = f"{SOURCE}/tests/data/golden/qwen3"
VOCAB = b"{\"a\": 0}\n"
GENERATION = b"{\"eos_token_id\": 0}\n"


def as_bf16():
    """The golden model with its values cut to bf16."""
    os.mkdir("hf")
    shutil.copy(f"{SOURCE_FOLDER}/config.json", "hf")
    with open(f"{SOURCE_FOLDER}/model.safetensors", "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    out = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))
    for name, t in header.items():
        if name != "__metadata__":
            t["dtype"], t["data_offsets"] = "BF16", [at // 2 for at in t["data_offsets"]]
    text = json.dumps(header).encode()
    with open("hf/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + out)
    with open("hf/vocab.json", "wb") as f:
        f.write(VOCAB)
    with open("hf/generation_config.json", "wb") as f:
        f.write(GENERATION)


def run_from(ranks, directory, **over):
    c = config(model="hf", max_steps=2, metrics=None, data={"sequence_length": 32},
               scheduler={"params": {"warmup_steps": 1}},
               checkpoint={"dir": directory, "keep": 0}, **over)
    return train(ranks, c)[1]


@cases.shared
def imported():
    make_text()
    as_bf16()
    tool("dcp-import", "hf", "ckpt")
    shutil.copytree("ckpt", "ckpt3", symlinks=True)


def test_a_dry_run_reports_moments_of_zero():
    cases.use(imported)
    _, err = train(1, config(model="hf", data={"sequence_length": 32}), "--dry-run")
    check("would continue from step 0: ckpt/step-00000000, whose tensors are the model's, with moments of zero" in err,
          err)


@cases.shared
def trained():
    cases.use(imported)
    for ranks, directory in (1, "ckpt"), (3, "ckpt3"):
        err = run_from(ranks, directory)
        check("continuing from step 0" in err and "the moments start at zero" in err, err)
        check("warning" not in err, err)


def test_ranks_do_not_change_the_state():
    cases.use(trained)
    check(state(2, "ckpt") == state(2, "ckpt3"), "other ranks, another state")
    check(steps("ckpt") == [0, 1, 2], steps("ckpt"))


def test_init_from_the_folder_gives_the_same_parameters():
    cases.use(trained)
    # It does not have the tokenizer, since data.tokenizer is the key for that.
    run_from(2, "from-folder", init="hf")
    for directory in "ckpt", "from-folder":
        tool("dcp-export", directory, f"{directory}.hf")
        with open(f"{directory}.hf/generation_config.json", "rb") as f:
            check(f.read() == GENERATION, f"{directory}: another generation_config.json")
    with open("ckpt.hf/model.safetensors", "rb") as a, open("from-folder.hf/model.safetensors", "rb") as b:
        check(a.read() == b.read(), "other parameters than from the folder")
    with open("ckpt.hf/vocab.json", "rb") as f:
        check(f.read() == VOCAB, "the vocabulary is lost")
    check(json.load(open("ckpt.hf/config.json"))["dtype"] == "float32", "the type in config.json")
    check(not os.path.exists("from-folder.hf/vocab.json"), "a file out of nowhere")


def test_another_dtype_in_config_json_is_no_other_model():
    cases.use(trained)
    tool("dcp-export", "ckpt", "half.hf", "--dtype", "bf16")
    err = train(1, config(model="half.hf", max_steps=3, metrics=None, data={"sequence_length": 32},
                          scheduler={"params": {"warmup_steps": 1}}, checkpoint={"dir": "ckpt", "keep": 0}))[1]
    told = [m for m in messages(err) if "was saved with" in m]
    check(len(told) == 1 and "max_steps" in told[0], err)


cases.main()
