#!/usr/bin/env python3
"""Wrong inputs, each one change away from a good one: one message that names the key or file, the reason and the
remedy; an exit status that is not 0; nothing is made or lost. All run on one rank, some of them also on two."""
import array, json, math, os, shutil, struct
from concurrent.futures import ThreadPoolExecutor
from train_lib import (cases, check, config, make_text, messages, MODEL, SOURCE, step_path, tool,
                       train)

GOLDEN = f"{SOURCE}/tests/data/golden"
WIDE = "268435456"  # the maximum of a size in a model's configuration
VIT = {"model_type": "vit", "image_size": 8, "patch_size": 4, "num_channels": 1, "hidden_size": 32,
       "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 4,
       "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
MLP = {"model_type": "mlp", "sizes": [64, 8, 4]}
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 64, "n_layer": 1, "n_head": 4, "n_positions": 128}
rows = []  # of the current case: arguments, parts of the message, exit status


def row(args, *texts, status=2):
    rows.append((args, texts, status))


def dry(overrides, *texts, status=2):
    """Runs good.json with overrides, which are separated by spaces."""
    row(["good.json", "--dry-run", *overrides.split(" ")], *texts, status=status)


def put(path, content):
    """Writes a file: bytes and text unchanged, everything else as JSON."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    content = content if isinstance(content, (bytes, str)) else json.dumps(content)
    with open(path, "wb") as f:
        f.write(content if isinstance(content, bytes) else content.encode())
    return path


def read(path):
    with open(path, "rb") as f:
        return f.read()


@cases.shared
def inputs():
    make_text()
    good = json.load(open(config("good.json")))
    os.mkdir("folder")
    put("short", "too short")


def test_command_line():
    cases.use(inputs)
    row([], "CONFIG.json", "is missing", "try 'dcp-train --help'")
    row(["good.json", "--dryrun"], "--dryrun", "unknown option", "try 'dcp-train --help'")
    row(["good.json", "--dry-run=yes"], "--dry-run=yes", "this option takes no value", "try 'dcp-train --help'")
    row(["good.json", "--dry-run", "--plan"], "--plan, --dry-run", "one at a time", "try 'dcp-train --help'")
    row(["good.json", "--ranks", "4"], "--ranks", "goes with", "--plan")
    row(["good.json", "--plan", "--ranks", "0"], "--ranks", "'0' is not", "a whole number from 1 to 1048576")
    row(["good.json", "--plan", "--trace", "t.json"], "--trace", "goes with", "training")
    row(["good.json", "--plan", "fsdp.replicas=3", "--ranks", "4"], "fsdp.replicas: 3", "does not divide the number of "
        "ranks, 4", "choose a number that does")
    row(["good.json", "--dry-run", "--prove-every", "no"], "--prove-every", "'no' is not", "a whole number from 1 to")
    row(["good.json", "--tokens", "5"], "--tokens", "go with", "--sample")
    row(["good.json", "--ids"], "--ids", "go with", "--sample")
    row(["--print-keys", "good.json"], "--print-keys", "takes no CONFIG.json", "try 'dcp-train --help'")
    row(["--plot", "a.svg"], "--plot", "takes the drawing's name and one", "METRICS.jsonl")
    row(["--plot", "a.svg", "no.jsonl"], "no.jsonl", "cannot read", "give the metrics.jsonl of a run")
    row(["--plot", "a.svg", put("m.jsonl", "no\n")], "m.jsonl:1", "not a line of a metrics file",
        "that dcp-train has written")
    row(["--plot", "a.svg", put("m0.jsonl", "")], "m0.jsonl", "contains no step yet", "draw it after the first step")
    dry("max_steps", '"max_steps"', "is not of the form", "key.path=value")
    dry('data={"path":"a","path":"b"}', "data", "the value has a key twice", "drop one of the two")
    row(["good.json", "--dry-run", "data.path=\udcff"], "data.path", "is not UTF-8", "write it in UTF-8")
    dry("checkpoint.evry=1", "checkpoint.evry", "unknown key", "did you mean checkpoint.every?")
    dry("optimizer.lr=1", "optimizer.lr", "unknown key", "did you mean optimizer.params.lr?")
    dry("xyzzy=1", "xyzzy", "unknown key", "dcp-train.json(5) describes all keys")
    refuse_all(22)


def test_files_of_configurations():
    cases.use(inputs)
    good = json.load(open("good.json"))
    for name, content, *texts in (
            ("cut", '{"model": ', "cut.json:1:10", "not JSON: unexpected token near end of file", "correct it there"),
            ("comma", '{"seed": 1,}', "comma.json:1:12", "not JSON: string or '}' expected", "correct it there"),
            ("twice", '{"seed": 1, "seed": 2}', "twice.json:1:18", "duplicate object key", "correct it there"),
            ("latin", b'{"seed": "\xe9"}', "latin.json:1:10", "unable to decode byte 0xe9", "correct it there"),
            ("list", [1], "list.json", "does not contain a JSON object", 'such as {"key": "value"}'),
            ("kind", MODEL, "kind.json", "describes a model, not a training", "name it in a file such as"),
            ("no-model", {"data": good["data"]}, "no-model.json: model", "missing", "set it"),
            ("no-data", {"model": MODEL}, "no-data.json: data.path", "missing", "set it"),
            ("slip", {**good, "max_stpes": 3}, "slip.json: max_stpes", "unknown key", "did you mean max_steps?"),
            ("dots", {**good, "data.path": "text"}, "dots.json: data.path", "unknown key", "write nested objects"),
            ("group", {**good, "fsdp": 3}, "group.json: fsdp", "not an object", "an object with keys is required")):
        row([put(f"{name}.json", content), "--dry-run"], *texts)
    row(["nowhere.json", "--dry-run"], "nowhere.json", "cannot read: No such file", "give an existing JSON file")
    row(["folder", "--dry-run"], "folder", "is a directory", "a JSON file is required")
    dry("model=nowhere", "model: nowhere", "cannot read: No such file", "give an existing JSON file")
    dry("model=folder", "model: folder/config.json", "cannot read: No such file", "give an existing JSON file")
    put("long.json", '{"a": [' + "{}," * 1000000 + "0]}")
    dry("model=long.json", "long.json", "has more than 2097152 bytes", "the limit for a configuration")
    refuse_all(16)


def test_values_of_keys():
    cases.use(inputs)
    COUNT = "an integer from 1 to 2147483647"
    for override, *texts in (
            ("max_steps=many", '"many" is not', COUNT), ("max_steps=1.5", "1.5 is not", COUNT),
            ("train_batch_size=0", "0 is not", COUNT), ("seed=-1", "-1 is not",
                                                        "an integer from 0 to 9007199254740992"),
            ("data.type=txt", '"txt" is not', "one of text|tokens|records|speech|idx|safetensors"),
            ("data.dtype=int16", '"int16" is not', "one of uint16|uint32, or null"),
            ("data.path=", '"" is not', "a non-empty string"),
            ("gradient_clipping=-1", "-1 is not", "a number from 0 to"),
            ("optimizer.type=Lion", '"Lion" is not', "one of AdamW|SGD"),
            ("optimizer.params.lr=fast", '"fast" is not', "a number from 0 to"),
            ("optimizer.params.betas=[0.9,1]", "[0.9,1] is not", "two numbers from 0 to below 1"),
            ("optimizer.params.no_decay=bias", '"bias" is not', "a list of strings"),
            ("optimizer.params.momentum=0.9", "a key of SGD, which AdamW does not have", "leave it out"),
            ("scheduler.type=poly", '"poly" is not', "one of constant|linear|cosine|wsd"),
            ("bf16.enabled=1", "1 is not", "true or false"),
            ("zero_optimization.stage=4", "4 is not", "an integer from 0 to 3"),
            ("checkpoint.engine=cufile", "cufile was removed", "use auto"),
            ("checkpoint.stripe_bytes=70000", "70000 is not", "a multiple of 65536"),
            ("data.sources={}", "{} is not", "a list of objects"),
            ("metrics=folder", "cannot open folder: Is a directory", "name a file that can be written"),
            ("checkpoint.resume=atuo", "there is no atuo", "did you mean auto?"),
            ("checkpoint.dir=text/below", "Not a directory", "choose another folder"),
            ("checkpoint.domain={rack}", "{rack} is unknown", "only {rank}, {host} and {env:NAME}"),
            ("checkpoint.domain={env:NO_RACK}", "NO_RACK is not set in the environment", "export it on all hosts"),
            ("optimizer.params.no_decay=[\"bais\"]", "bais matches no parameter",
             "the model has, for example, model.embed_tokens"),
            ("frozen=[\"*\"]", "matches every parameter of the model", "nothing is left to train"),
            ("device=cuda", "cuda", "set device=cpu"),
            # keys that exclude each other
            ("gradient_accumulation_steps=3", "train_batch_size 14 is not micro-batch 2 x accumulation 3",
             "or leave gradient_accumulation_steps out"),
            ("eval_every=5", "there is no data.eval_path", "set data.eval_path, or leave eval_every out"),
            ("fsdp.offload_path=folder", "fsdp.cpu_offload is false", "set fsdp.cpu_offload to true"),
            ("fsdp.cpu_offload=true", "on the CPU everything is in the host's memory already",
             "set fsdp.offload_path to a folder"),
            ("fsdp.replicas=5", "does not divide the number of ranks", "choose a number that does"),
            ("data.sequence_length=null", "data.type text", "needs a number"),
            ("data.sequence_length=129", "129 is more than the model's max_position_embeddings 128",
             "use at most that")):
        dry(override, override.split("=")[0] + ": ", *texts)
    dry("train_micro_batch_size_per_gpu=4", "train_batch_size: 14",
        "is not a multiple of train_micro_batch_size_per_gpu 4",
        "change one of them")
    refuse_all(35)


def test_stores():
    cases.use(inputs)
    for entries, key, *texts in (
            ([1], "", "not an object", "an object with keys is required"), ([{"every": 1}], ".path", "missing", "set it"),
            ([{"path": "a", "evry": 1}], ".evry", "unknown key", "the keys of a store are path, every, keep"),
            ([{"path": "a", "every": 0}], ".every", "is not", "an integer from 1 to"),
            ([{"path": "a", "redundancy": "rs(0)"}], ".redundancy", "is not", "none, partner or rs(1) to rs(16)"),
            ([{"path": "a", "redundancy": "rs(+3)"}], ".redundancy", "is not", "none, partner or rs(1) to rs(16)"),
            ([{"path": "a", "redundancy": "rs(3)x"}], ".redundancy", "is not", "none, partner or rs(1) to rs(16)"),
            ([{"path": "ckpt"}], ".path", "ckpt is also checkpoint.dir", "its own directory"),
            ([{"path": "a"}, {"path": "a"}], ".path", "a is also checkpoint.stores[1].path", "its own directory"),
            ([{"path": "a-{env:NO_DISK}"}], ".path", "NO_DISK is not set in the environment",
             "export it on all hosts")):
        dry("checkpoint.stores=" + json.dumps(entries, separators=(",", ":")), f"checkpoint.stores[0]{key}", *texts)
    refuse_all(10)


def test_model_configurations():
    cases.use(inputs)
    for change, *texts in (
            ({"model_type": "gpt5"}, 'model_type "gpt5"', "is not supported", "(gpt2, llama, mistral"),
            ({"model_type": None}, "model_type", "is missing", "it must be one of gpt2, llama"),
            ({"hidden_size": None}, "hidden_size", "is missing", "set it to the model's value"),
            ({"hidden_size": 0}, "hidden_size", "is 0, not in", f"1..{WIDE}"),
            ({"hidden_size": "64"}, "hidden_size", "is not", f"an integer in 1..{WIDE}"),
            ({"num_hidden_layers": 100000}, "num_hidden_layers", "is 100000, not in", "1..16384"),
            ({"head_dim": 3}, "head_dim", "3 is odd", "require an even one"),
            ({"num_key_value_heads": 3}, "num_attention_heads 4", "is not a multiple of num_key_value_heads 3",
             "change one of them"),
            ({"rms_norm_eps": -1}, "rms_norm_eps", "is -1, which is too small", "at least 0"),
            ({"rms_norm_eps": "x"}, "rms_norm_eps", "is not", "a number"),
            ({"attention_bias": 3}, "attention_bias", "is neither true nor false", "the default is false"),
            ({"hidden_act": "mish"}, 'hidden_act "mish"', "is not supported", "add: model.hidden_act=silu"),
            ({"hidden_act": 3}, "hidden_act", "is not a name", "such as silu"),
            ({"attention_dropout": 0.1}, "attention_dropout 0.1", "is not supported", "add: model.attention_dropout=0"),
            ({"rope_scaling": 3}, "rope_scaling", "is not an object", 'such as {"rope_type": "default"}'),
            ({"rope_scaling": {"rope_type": "linear"}}, "rope_scaling.factor", "is missing", "this rope_type needs it"),
            ({"rope_theta": 0}, "rope_theta", "is 0, which is too small", "at least 1"),
            ({"num_experts": 8}, "num_experts 8", "experts are not supported", "add: model.num_experts=null"),
            ({"layer_types": ["full_attention"]}, "layer_types", "names 1 layers, but num_hidden_layers is 3",
             "or leave layer_types out"),
            ({"vocab_size": 100}, "vocabulary of 100", "is too small for data.type text", "set model.vocab_size")):
        dry(" ".join(f"model.{key}={json.dumps(value, separators=(',', ':'))}" for key, value in change.items()),
            *texts)
    for number, (model, *texts) in enumerate((
            ({**GPT2, "n_head": 5}, "n_embd 64", "is not a multiple of n_head 5", "change one of them"),
            ({**GPT2, "hidden_size": 32}, "n_embd and hidden_size", "two spellings of one key, and differ", "drop one"),
            ({**VIT, "patch_size": 9}, "patch_size 9", "is more than image_size 8", "set a smaller patch_size"),
            ({**VIT, "num_labels": 1}, "num_labels", "a regression is not supported",
             "(at least 2 labels are required)"),
            ({**VIT, "id2label": {"0": "a"}}, "num_labels is 4", "but id2label names 1 labels", "drop one of the two"),
            ({**MLP, "bias": False}, "bias", "an mlp has no such key", "add: model.bias=null"),
            ({**MLP, "sizes": [3]}, "sizes", "is not a list", "of 2 to 16384 sizes"),
            (MLP, "data.type", "text gives tokens, but the model takes images or vectors",
             "set data.type to idx or safetensors"))):
        row([config(f"model-{number}.json", model=model), "--dry-run"], *texts)
    refuse_all(28)


def safetensors(path, tensors):
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return put(path, struct.pack("<Q", len(text)) + text + data)


def records(name, starts=(0, 20, 60, 100), masked=100, token=5, mask=1, **over):
    """Returns three records of 100 tokens."""
    return safetensors(name, {"starts": ("I64", [len(starts)], struct.pack(f"<{len(starts)}q", *starts)),
                              "input_ids": ("U32", [100], struct.pack("<I", token) * 100),
                              "loss_mask": ("U8", [masked], bytes([mask]) * masked), **over})


ANEW = "make the file again with examples/chat_to_records.py"


def test_text_and_tokens():
    cases.use(inputs)
    put("odd", bytes(1001))
    put("few", array.array("H", [3] * 20).tobytes())
    put("foreign", array.array("H", [300] * 2000).tobytes())
    for path, *texts in (("nowhere", "cannot read nowhere: No such file", "give an existing path"),
                         ("no*match", "nothing matches no*match", "give an existing path"),
                         ("folder", "folder holds 0 bytes", "give more data, or set a smaller data.sequence_length"),
                         ("short", "short holds 9 bytes", "give more data, or set a smaller data.sequence_length")):
        dry(f"data.path={path}", "data.path", *texts)
    dry("data.eval_path=nowhere", "data.eval_path", "cannot read nowhere: No such file", "give an existing path")
    dry("data.type=tokens data.path=odd", "odd", "1001 bytes, which is not a multiple of the 2 bytes of a",
        "of another data.dtype")
    dry("data.type=tokens data.path=few", "few", "holds 20 tokens in 1 file",
        "give more data, or set a smaller data.sequence_length")
    dry("data.type=tokens data.path=foreign", "foreign", "300, but the model's vocabulary has only 259",
        "those of another tokenizer")
    for entry, key, *texts in (
            ("text", "[0]", "not an object", "an object with keys is required"),
            ({"path": "text", "wight": 1}, "[0].wight", "unknown key", "the keys of a source are path and weight"),
            ({"weight": 1}, "[0].path", "missing", "set it"),
            ({"path": "text", "weight": 0}, "[0].weight", "is not", "a number above 0"),
            ({"path": "nowhere"}, "[0].path", "cannot read nowhere", "give an existing path"),
            ({"path": "text", "weight": 1e-5}, "", "by its weight, text gets less than one sample in 1000",
             "give it more weight")):
        dry("data.sources=" + json.dumps([entry], separators=(",", ":")), f"data.sources{key}", *texts)
    put("empty/vocab.json", "")
    for path, *texts in (("nowhere", "cannot read nowhere: No such file", "give the folder of a tokenizer"),
                         ("folder", "folder holds no file of a tokenizer", "give a folder that does"),
                         ("text", "text does not have the name of a tokenizer's file",
                          "a folder that holds one is accepted"),
                         ("empty", "empty/vocab.json is empty", "get it again")):
        dry(f"data.tokenizer={path}", "data.tokenizer", *texts)
    refuse_all(18)


def test_records():
    cases.use(inputs)
    for name, over, *texts in (
            ("type", {"input_ids": ("I32", [100], bytes(400))}, "input_ids is I32", "must have input_ids U32"),
            ("matrix", {"input_ids": ("U32", [10, 10], bytes(400))}, "not of one dimension",
             "must have input_ids U32"),
            ("mask", {"masked": 99}, "100 input_ids, 99 loss_mask", ANEW),
            ("ends", {"starts": (0, 20, 90)}, "starts begins with 0 and ends with 90, but must begin with 0 and end with "
             "the length of input_ids, 100", ANEW),
            ("back", {"starts": (0, 60, 20, 100)}, "starts of record 1 is 60, and that of the next record is 20", ANEW),
            ("long", {"starts": (0, 20, 100)}, "record 1 has 80 tokens",
             "set data.sequence_length to 79, or make records with fewer tokens"),
            ("token", {"token": 300}, "is 300 with mask 1, but the model's vocabulary has only 259",
             "those of another tokenizer"),
            ("mask-2", {"mask": 2}, "with mask 2", "a mask must be 0 or 1")):
        dry(f"data.type=records data.sequence_length=64 data.path={records(f'records-{name}', **over)}",
            f"data.path: records-{name}", *texts)
    dry("data.type=records data.path=text", "data.path: text", "not a safetensors file?", ANEW, status=2)
    dry("data.type=records data.path=folder", "data.path: folder", "holds no .safetensors file with records", ANEW)
    refuse_all(10)


def images(name, shape=(20, 8, 8), labels=20, label=3, kind=8, cut=0, images="train-images-idx3-ubyte"):
    size = math.prod(shape) * (4 if kind == 13 else 1)
    content = struct.pack(f">HBB{len(shape)}I", 0, kind, len(shape), *shape) + (b"\x7f\xc0\0\0" * size)[:size]
    put(f"{name}/{images}", content[:len(content) - cut])
    if labels:
        put(f"{name}/train-labels-idx1-ubyte", struct.pack(">HBBI", 0, 8, 1, labels) + bytes([label]) * labels)
    return name


def test_batches_in_safetensors():
    cases.use(inputs)
    BATCH = struct.pack("<56q", *[3] * 56)
    for name, dtype, columns, *texts in (
            ("rows", "I64", 8, "has 7 rows, but train_batch_size is 14", "make the two equal"),
            ("length", "I64", 4, "is [14,4], but data.sequence_length requires [14,128]",
             "leave data.sequence_length out"),
            ("floats", "F64", 4, "input_ids is F64, but must be I64", "save it in this form"),
            ("cut", "I64", 5, "440 bytes according to its shape, but 448 according to its data_offsets", "give a safetensors file")):
        path = safetensors(f"batch-{name}", {"input_ids": (dtype, [56 // columns, columns], BATCH)})
        dry(f"data.type=safetensors data.path={path}", f"data.path: {path}", *texts)
    dry("data.type=safetensors data.path=" + safetensors("batch-none", {"ids": ("I64", [14, 4], BATCH[:448])}),
        "batch-none", "has no tensor input_ids", "save one under this name")
    refuse_all(5)


def test_images():
    cases.use(inputs)
    config("vit.json", model=VIT, train_batch_size=4, data={"type": "idx", "path": "nowhere"})
    put(images("gzip") + "/train-images-idx3-ubyte", b"\x1f\x8b\x08\0more")
    put(images("png") + "/train-images-idx3-ubyte", b"\x89PNG and more")
    for path, *texts in (
            (images("unlabeled", labels=0), "unlabeled/train-images-idx3-ubyte", "no labels beside",
             "put them into the same folder"),
            (images("fewer", labels=19), "fewer/train-images", "20 images", "19 labels; each image needs one label"),
            (images("class", label=4), "class/train-labels", "is 4, but the model has only 4 classes",
             "or correct the label"),
            (images("size", (20, 9, 8)), "size/train-images", "is 9 x 8, but the model takes 1 x 8 x 8",
             "change one of the two"),
            (images("tail", cut=3), "tail/train-images", "its header describes 20 x 8 x 8",
             "may be truncated; make it again"),
            (images("name", images="pictures"), "name", 'has "images" in its name', "as train-images-idx3-ubyte has"),
            (images("nan", kind=13), "nan/train-images", "is not finite as fp32", "correct it"),
            ("gzip", "gzip/train-images-idx3-ubyte", "is compressed", "unpack it with gunzip"),
            ("png", "png/train-images-idx3-ubyte", "is not an idx file", "give files in MNIST's format"),
            ("folder", "folder", "is empty", "give a folder with images")):
        row(["vit.json", "--dry-run", f"data.path={path}"], "data.path: ", *texts)
    refuse_all(10)


QWEN = f"{GOLDEN}/qwen3"


def test_deepspeed_configurations():
    cases.use(inputs)
    good = json.load(open("good.json"))
    for number, (change, *texts) in enumerate((
            ({"fp16": {"enabled": True}}, "fp16.enabled", "fp16 is not implemented", "set fp16.enabled=false"),
            ({"amp": {"enabled": True}}, "amp.enabled", "amp is not implemented", "set amp.enabled=false"),
            ({"optimizer": {"type": "Lamb"}}, "optimizer.type", '"Lamb" is not', "one of AdamW|SGD"),
            ({"scheduler": {"type": "OneCycle"}}, "scheduler.type", '"OneCycle" is not', "one of constant"),
            ({"tensor_parallel": {"autotp_size": 4}}, "tensor_parallel.autotp_size", "is not implemented", "drop it"),
            ({"elasticity": {"enabled": True}}, "elasticity", "is the same on any number of ranks", "drop it"),
            ({"zero_optimization": {"mics_shard_size": 4}}, "mics_shard_size", "4", "set fsdp.replicas to"),
            ({"zero_optimization": True}, "zero_optimization", "not an object", "an object with keys is required"),
            ({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}}, "optimizer.params.max_grad_norm",
             "1.0",
             "set gradient_clipping, and drop it"),
            ({"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
              "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 2e-3}}}, "scheduler.params.warmup_max_lr",
             "but optimizer.params.lr is 0.001", "drop one of them"))):
        plain = {"model": MODEL, "data": good["data"], "train_batch_size": 14, "train_micro_batch_size_per_gpu": 2}
        row([put(f"ds-{number}.json", {**plain, **change}), "--dry-run"], f"ds-{number}.json", *texts)
    refuse_all(10)


weights = read(f"{QWEN}/model.safetensors")
ends = 8 + struct.unpack("<Q", weights[:8])[0]
tensors = {name: (t["dtype"], t["shape"], weights[ends:][slice(*t["data_offsets"])])
           for name, t in json.loads(weights[8:ends]).items() if name != "__metadata__"}
NORM = "model.norm.weight"
dtype, shape, content = tensors[NORM]
OTHER = "set model to the config.json that belongs to it"
WHOLE = "give a Hugging Face folder, an intact checkpoint"


def init(name, held, *texts, status=2):
    put(f"{name}/config.json", read(f"{QWEN}/config.json"))
    if isinstance(held, dict):
        safetensors(f"{name}/model.safetensors", held)
    elif held is not None:
        put(f"{name}/model.safetensors", held)
    row(["init.json", "--dry-run", f"init={name}"], f"init: {name}", *texts, status=status)


def test_init_folders():
    cases.use(inputs)
    config("init.json", model=QWEN, data={"sequence_length": 32})

    init("missing", {n: t for n, t in tensors.items() if n != NORM}, f"{NORM} [64] is missing there", OTHER)
    for part in "_orig_mod.", "module.", "base_model.model.":
        init(f"wrapped-{part}", {part + n: t for n, t in tensors.items()}, " is missing there", f" {part}",
             "has a part that a wrapper of modules added: dcp-import makes a checkpoint without such parts")
    init("surplus", {**tensors, "model.extra": ("F32", [1], b"1234")}, "the model here has no tensor ", OTHER)
    init("shape", {**tensors, NORM: (dtype, [32], content[:128])}, f"{NORM} is [32] there, [64] here", OTHER)
    init("integers", {**tensors, NORM: ("I32", shape, content)}, f"{NORM} is I32 there", OTHER)
    init("cut", weights[:100000], "truncated?", WHOLE, status=1)
    init("pointer", "version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS", WHOLE, status=1)
    init("weightless", None, "holds neither model.safetensors nor", WHOLE)
    row(["init.json", "--dry-run", "init=nowhere"], "init: ", "cannot open nowhere", WHOLE)
    row(["init.json", "--dry-run", "init=folder"], "init: ", "no complete step (step-...) in folder", WHOLE)
    refuse_all(12)


STEP = step_path(1, "saved")


@cases.shared
def saved():
    cases.use(inputs)
    train(1, "good.json", "max_steps=1", "checkpoint.dir=saved", "metrics=null")


def test_checkpoints():
    cases.use(saved)
    for override, *texts in (
            ("model.intermediate_size=120", "gate_proj.weight is [112,64] there, [120,64] here", OTHER),
            ("model.num_hidden_layers=4", "is missing there", OTHER),
            ("model.num_hidden_layers=2", "the model here has no tensor ", OTHER)):
        dry(f"checkpoint.dir=saved metrics=null {override}", STEP, *texts)
    dry("checkpoint.dir=saved metrics=null checkpoint.resume=never", "checkpoint.resume",
        "never, but saved holds 1 step",
        "set checkpoint.overwrite=true")
    dry("checkpoint.resume=nowhere", "checkpoint.resume", "cannot find nowhere", "give an intact step, or auto")
    dry("checkpoint.resume=folder", "checkpoint.resume", "no complete step (step-...) in folder", "or auto")
    shutil.copytree("saved", "damaged")
    os.truncate(step_path(1, "damaged") + "/state.h5", 5000)
    shutil.copytree("saved", "emptied")
    os.remove(step_path(1, "emptied") + "/state.h5")
    for name, reason in ("damaged", "the file has 5000 bytes"), ("emptied", "state.h5 is missing"):
        step = step_path(1, name)
        dry(f"checkpoint.resume={step}", f"checkpoint.resume: {step}", reason, "give an intact step", status=1)
        dry(f"init={step}", f"init: {step}", reason, WHOLE, status=1)
        row(["--sample", "a", name], step, reason, "give an intact checkpoint", status=1)
    refuse_all(12)


def test_sample_arguments():
    cases.use(saved)
    for args, *texts in (
            (["a"], "--sample", "takes the text and one", "CKPT"),
            (["a", "saved", "--tokens=0"], "--tokens", "'0' is not", "a whole number from 1"),
            (["a", "saved", "--temperature=hot"], "--temperature", "'hot' is no", "number of at least 0"),
            (["a", "nowhere"], "nowhere", "cannot find", "give an intact checkpoint"),
            (["", "saved"], "--sample", "the text is empty", "give it a text"),
            (["a" * 128, "saved"], "--sample", "nothing can follow", "give it a shorter text"),
            (["abc", "saved", "--tokens=126"], "--tokens", "126 tokens after a text of 3 are more", "at most 125 fit"),
            (["a", "saved", "--ids"], "--ids", "'a' is not a token of the model", "give ids from 0 to 258"),
            (["259", "saved", "--ids"], "--ids", "'259' is not a token", "whose vocab_size is 259",
             "give ids from 0 to 258"),
            (["", "saved", "--ids"], "--sample", "the text is empty", "give it a text")):
        row(["--sample", *args], *texts)
    refuse_all(10)


def there():
    """Returns all files and folders, with attributes that change if one is written."""
    found = {}
    for folder, folders, files in os.walk("."):
        for path in (os.path.join(folder, name) for name in folders + files):
            about = os.lstat(path)
            found[path] = about.st_ino, about.st_size, about.st_mtime_ns
    return found


def refused(ranks, args, texts, status):
    _, err = train(ranks, *args, expect=status)
    told = [m for m in messages(err) if " parameters in " not in m]  # this file describes the model
    check(len(told) == 1, f"{args} on {ranks} ranks: not one message: {err}")
    line = told[0].replace("rank 0: ", "")
    for text in texts:
        check(text in line, f"{args} on {ranks} ranks: {text} is not in: {line}")


def refuse_all(count):
    """Runs all rows, of which there must be `count`, on one rank, and some of them on two ranks."""
    todo = rows[:]
    rows.clear()
    before = there()
    lacking = [args for args, texts, _ in todo if len(texts) < 3]
    check(len(todo) == count and not lacking, f"{len(todo)} rows, without key, reason and remedy: {lacking}")
    with ThreadPoolExecutor(2) as pool:
        runs = [(row, pool.submit(refused, 1, *row)) for row in todo]
        runs += [(row, pool.submit(refused, 2, *row)) for row in todo[::15]]
    for (args, _, _), run in runs:
        with cases.part(ascii(args)):
            run.result()
    check(before == there(), f"something was written: {set(before.items()) ^ set(there().items())}")


def test_sample_of_imported_models():
    cases.use(inputs)
    tool("dcp-import", f"{GOLDEN}/vit", "of-images")
    row(["--sample", "a", "of-images"], "of-images", "model_type vit takes no text", "is for language models")
    tool("dcp-import", QWEN, "imported")
    row(["--sample", "a", "imported"], "imported", "carries no tokenizer", "give token ids with --ids",
        "examples/sample.py CKPT TEXT --tokenizer FOLDER")
    for name in "tokenizer.json", "vocab.json", "tokenizer.model":
        folder = f"with-{name}"
        put(f"{folder}/config.json", read(f"{QWEN}/config.json"))
        put(f"{folder}/model.safetensors", weights)
        put(f"{folder}/{name}", "{")
        tool("dcp-import", folder, f"of-{name}")
        row(["--sample", "hello", f"of-{name}"], f"its tokens are those of a tokenizer ({name})", "does not apply",
            "run examples/sample.py CKPT TEXT", "--ids")
    refuse_all(5)


cases.main()
