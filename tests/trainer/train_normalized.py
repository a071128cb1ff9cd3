#!/usr/bin/env python3
"""Bytes of images are normalized as the preprocessor of the model's folder says: a run on them has the losses of a run on
the normalized numbers, on any number of ranks. A run that began without normalization continues without; wrong files
are refused."""
import json, os, random, struct, subprocess
from train_lib import cases, check, config, losses, state, step_path, tool, train

SIDE, CLASSES, CHANNELS, COUNT = 8, 4, 3, 28
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
VIT = {"model_type": "vit", "image_size": SIDE, "patch_size": 4, "num_channels": CHANNELS, "hidden_size": 32,
       "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": CLASSES,
       "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
rng = random.Random(5)


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def put(folder, kind, elements):
    """Writes images and labels. kind: 8 for bytes, 13 for floats."""
    os.makedirs(folder)
    with open(f"{folder}/images-idx4-ubyte", "wb") as f:
        f.write(struct.pack(">HBB4I", 0, kind, 4, COUNT, CHANNELS, SIDE, SIDE))
        f.write(bytes(elements) if kind == 8 else struct.pack(f">{len(elements)}f", *elements))
    with open(f"{folder}/labels-idx1-ubyte", "wb") as f:
        f.write(struct.pack(">HBBI", 0, 8, 1, COUNT) + bytes(i % CLASSES for i in range(COUNT)))


def channel(i):
    return i // (SIDE * SIDE) % CHANNELS


def configured(directory, path, **over):
    config(model=VIT, init=over.pop("init", "start"), max_steps=4, scheduler={"type": "constant"},
           metrics=f"{directory}.jsonl",
           data={"type": "idx", "path": path, "sequence_length": None}, checkpoint={"dir": directory}, **over)


def describe(**preprocessor):
    with open("start/preprocessor_config.json", "w") as f:
        json.dump(preprocessor, f)


pixels = [rng.randrange(256) for _ in range(COUNT * CHANNELS * SIDE * SIDE)]


@cases.shared
def start_folder():
    put("bytes", 8, pixels)
    put("raw", 13, [single(p / 255) for p in pixels])
    put("normalized", 13, [single(single(single(p * (1 / 255)) - single(MEAN[channel(i)])) / single(STD[channel(i)]))
                           for i, p in enumerate(pixels)])
    put("unscaled", 13, [single(single(p - 127.5) / 2) for p in pixels])

    config(model=VIT, max_steps=1, metrics=None, data={"type": "idx", "path": "bytes", "sequence_length": None},
           checkpoint={"dir": "first"})
    train(1, "config.json")
    tool("dcp-export", step_path(1, "first"), "start")


@cases.shared
def normalized():
    cases.use(start_folder)
    describe(do_normalize=True, do_rescale=True, rescale_factor=1 / 255, image_mean=MEAN, image_std=STD, do_resize=True)
    for ranks in 1, 3:
        configured(f"on-{ranks}", "bytes", init="start")
        _, err = train(ranks, "config.json", "max_steps=2")
        check("bytes of images are normalized" in err, err)
    os.rename("start", "elsewhere")  # the checkpoint has all that a resume needs
    for ranks in 1, 3:
        configured(f"on-{ranks}", "bytes")
        _, err = train(4 - ranks, "config.json")
        check("bytes of images are normalized" in err and "warning" not in err, err)
    os.rename("elsewhere", "start")


def test_normalized_bytes_are_the_numbers():
    cases.use(normalized)
    check(state(4, "on-1") == state(4, "on-3"), "three ranks have saved other bytes")
    configured("numbers", "normalized")
    train(1, "config.json")
    check(losses("numbers.jsonl") == losses("on-1.jsonl"), "bytes that are normalized are not the numbers")


def test_a_run_of_an_older_release_continues_without_normalization():
    cases.use(normalized)
    # The step is one of a release that did not normalize, with the preprocessor among its files.
    tool("dcp-export", step_path(4, "on-1"), "exported")
    data = state(4, "on-1")
    at, length = struct.unpack("<QQ", data[88:104])
    said = json.loads(data[at:at + length])
    check(said["data"].pop("normalized") is True, f"the step does not say it: {said}")
    with open("exported/model.safetensors", "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    header.pop("__metadata__", None)
    lines = [f"/files/preprocessor_config.json U8 {os.path.getsize('exported/preprocessor_config.json')} exported/preprocessor_config.json\n"]
    for i, (name, t) in enumerate(header.items()):
        with open(f"tensor-{i}", "wb") as f:
            f.write(data[slice(*t["data_offsets"])])
        lines.append(f"/model/{name} F32 {','.join(map(str, t['shape']))} tensor-{i}\n")
    for directory, path in ("older", "bytes"), ("older-raw", "raw"):
        os.mkdir(directory)
        subprocess.run([os.environ["MAKE_STATE"], directory, "4", "global", json.dumps(said)], input="".join(lines),
                       text=True, check=True)
        for last in 5, 6:
            configured(directory, path)
            _, err = train(1, "config.json", f"max_steps={last}")
            check("continuing from step" in err and "normalized" not in err, err)
    check(losses("older.jsonl") == losses("older-raw.jsonl"), "a run that began without normalization has changed")

    with open("exported/preprocessor_config.json") as f:
        check(json.load(f)["image_mean"] == MEAN, "the export lacks the preprocessor")


def test_one_number_for_all_channels_without_rescaling():
    cases.use(start_folder)
    describe(do_rescale=False, image_mean=127.5, image_std=[2, 2, 2])
    for directory, path in ("unscaled-bytes", "bytes"), ("unscaled-numbers", "unscaled"):
        configured(directory, path)
        train(1, "config.json")
    check(losses("unscaled-bytes.jsonl") == losses("unscaled-numbers.jsonl"),
          "one number for all channels, not rescaled")


def test_do_normalize_false_changes_nothing():
    cases.use(start_folder)
    describe(do_normalize=False, image_mean="none", image_std=0)
    for directory, path in ("off", "bytes"), ("off-raw", "raw"):
        configured(directory, path)
        _, err = train(1, "config.json")
        check("normalized" not in err, err)
    check(losses("off.jsonl") == losses("off-raw.jsonl"), "do_normalize false changes something")


def test_a_wrong_preprocessor_is_refused():
    cases.use(start_folder)
    for preprocessor, why in (({"image_mean": [0.5], "image_std": 0.5},
                               "image_mean is not a number for each of the model's 3 channels"),
                              ({"image_mean": 0.5, "image_std": [0.5, 0, 0.5]},
                               "image_std is not a number above 0 for each"),
                              ({"image_mean": 0.5, "image_std": "0.5"}, "image_std is not a number above 0 for each"),
                              ({"image_mean": 0.5, "image_std": 0.5, "rescale_factor": 0},
                               "rescale_factor is not a number above 0"),
                              ({"image_mean": 0.5, "image_std": 0.5, "rescale_factor": "x"},
                               "rescale_factor is not a number above 0")):
        with cases.part(f"{why}"):
            describe(**preprocessor)
            configured("refused", "bytes")
            _, err = train(2, "config.json", expect=2)
            check("preprocessor_config.json of the model" in err and why in err, f"{err}, not {why}")


def test_a_preprocessor_that_is_no_json_is_refused():
    cases.use(start_folder)
    configured("refused", "bytes")
    with open("start/preprocessor_config.json", "w") as f:
        f.write("[1")
    _, err = train(1, "config.json", expect=2)
    check("it is not a JSON object" in err, err)


cases.main()
