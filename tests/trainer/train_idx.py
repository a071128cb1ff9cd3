#!/usr/bin/env python3
"""ViT and MLP learn from idx files, with the same bits on any number of ranks; wrong files are refused with exit status 2
and one line."""
import os, random, struct, subprocess, sys
from train_lib import cases, check, config, losses, messages, metrics, SOURCE, state, train

SIDE, CLASSES = 8, 4
rng = random.Random(5)


def put(path, dims, elements):
    with open(path, "wb") as f:
        f.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims) + bytes(elements))


def image(label):
    """Returns an image with one bright quarter, whose position is the class."""
    return [rng.randrange(160, 256) if (y >= SIDE // 2) * 2 + (x >= SIDE // 2) == label else rng.randrange(96)
            for y in range(SIDE) for x in range(SIDE)]


MODELS = {
    "vit": {"model_type": "vit", "image_size": SIDE, "patch_size": 4, "num_channels": 1, "hidden_size": 32,
            "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": CLASSES,
            "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    "mlp": {"model_type": "mlp", "sizes": [SIDE * SIDE, 24, CLASSES]},
}


@cases.shared
def images():
    labels = [rng.randrange(CLASSES) for _ in range(200)]
    os.mkdir("images")
    put("images/train-images-idx3-ubyte", [200, SIDE, SIDE], sum(map(image, labels), []))
    put("images/train-labels-idx1-ubyte", [200], labels)

    labels = [rng.randrange(CLASSES) for _ in range(31)]  # not a multiple of a micro-batch
    put("t10k-images-idx3-ubyte", [31, SIDE, SIDE], sum(map(image, labels), []))
    put("t10k-labels-idx1-ubyte", [31], labels)
    for name, model in MODELS.items():
        config(f"{name}.json", model=model, max_steps=150, metrics=None,
               data={"type": "idx", "path": "images", "eval_path": "t10k-images-idx3-ubyte"},
               optimizer={"params": {"lr": 3e-3}}, checkpoint={"every": 0, "keep": 0})


def test_models_learn_with_the_same_bits_on_any_ranks():
    cases.use(images)
    for name, model in MODELS.items():
        with cases.part(f"{name}"):
            for ranks in (1, 3):
                train(ranks, f"{name}.json", f"checkpoint.dir={name}{ranks}", f"metrics={name}{ranks}.jsonl")
            check(losses(f"{name}1.jsonl") == losses(f"{name}3.jsonl"), f"{name}: losses depend on the ranks")
            check(state(150, f"{name}1") == state(150, f"{name}3"), f"{name}: the state depends on the ranks")
            first, last = (metrics(f"{name}1.jsonl")[i]["loss"] for i in (0, -1))
            check(last < first / 2, f"{name} does not learn: loss {first} to {last}")
            found = [metrics(f"{name}{ranks}.jsonl")[-1] for ranks in (1, 3)]
            check(found[0]["eval_loss"] == found[1]["eval_loss"], f"{name}: evaluations differ: {found}")
            check(found[0]["eval_accuracy"] > 0.9 and "eval_loss" not in metrics(f"{name}1.jsonl")[0], f"{found}")


CASES = [
    ("vit.json", ["data.path=nowhere"], "data.path: cannot read nowhere"),
    ("vit.json", ["data.path=images/train-labels-idx1-ubyte"], "data.path: "),
    ("vit.json", ["model.image_size=16"], "is 8 x 8, but the model takes 1 x 16 x 16 (channels, height, width)"),
    ("vit.json", ["model.num_channels=3"], "the model takes 3 x 8 x 8"),
    ("vit.json", ["model.num_labels=2"], ", but the model has only 2 classes"),
    ("mlp.json", ["model.sizes=[63,4]"], "is 8 x 8, but the model takes 63"),
    ("mlp.json", ["data.eval_path=nowhere"], "data.eval_path: cannot read nowhere"),
    ("mlp.json", ["data.type=text"], "data.type: text gives"),
]


def test_digits_to_idx_writes_such_a_folder():
    cases.use(images)
    sys.path.insert(0, f"{SOURCE}/examples")
    sys.dont_write_bytecode = True
    from digits_to_idx import write_parts  # noqa: E402
    pixels = [image(i % CLASSES) for i in range(50)]
    write_parts("written", [[p[y * SIDE:(y + 1) * SIDE] for y in range(SIDE)] for p in pixels],
                [i % CLASSES for i in range(50)])
    _, err = train(1, "mlp.json", "--dry-run", "data.path=written", "train_batch_size=10",
                   "train_micro_batch_size_per_gpu=5", "checkpoint.dir=none")
    check("40 samples per epoch" in err, err)
    put("t10k", [10, SIDE, SIDE], sum(pixels[::5], []))
    with open("t10k", "rb") as a, open("written/t10k-images-idx3-ubyte", "rb") as b:
        check(a.read() == b.read(), "digits_to_idx.py writes other bytes")
    done = subprocess.run([sys.executable, "-B", f"{SOURCE}/examples/digits_to_idx.py"], capture_output=True, text=True)
    check(done.returncode == 2 and "OUT_FOLDER" in done.stderr, done)


def test_wrong_files_and_models_are_refused():
    cases.use(images)
    for file, overrides, says in CASES:
        with cases.part(f"{overrides}"):
            _, err = train(2, file, *overrides, "--dry-run", expect=2)
            check(says in messages(err)[-1] and len(messages(err)) == 1, f"{overrides}: {err}")


cases.main()
