#!/usr/bin/env python3
"""Configurations, folders and files of token ids as people have them, the second list after deepspeed/: each one of
public/sources.json, made after the source that it names, is understood as intended, or refused in one message."""
import json, os, random, struct, subprocess, sys
from train_lib import (BIN, cases, check, config, json_at, make_text, messages, MODEL, SOURCE,
                       TIMEOUT)

sys.path.insert(0, f"{SOURCE}/tests/cli")
here = os.getcwd()
from hf_folder import folder, values, write  # noqa: E402
import st_read  # noqa: E402
os.chdir(here)

FILES = f"{SOURCE}/tests/trainer/public"
SOURCES = json.load(open(f"{FILES}/sources.json"))
GIVEN = ["model=model.json", "data.path=text", "data.sequence_length=128"]


def call(program, *args, status=0):
    done = subprocess.run([f"{BIN}/{program}", *args], capture_output=True, text=True, timeout=TIMEOUT)
    check(done.returncode == status, f"{args}: exit {done.returncode}, not {status}: {done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def configuration(name, entry):
    path = f"{FILES}/{name}"
    if "refused" in entry:
        _, err = call("dcp-train", path, *GIVEN, "--dry-run", status=2)
        check(len(messages(err)) == 1, f"{name}: not one message: {err}")
        check(len(err.splitlines()) == (1 if len(entry["refused"]) == 1 else 1 + len(entry["refused"])),
              f"{name}: {err}")
        return [check(err.count(text) == 1, f"{name}: {text}: {err}") for text in entry["refused"]]
    overrides = entry.get("overrides", [])
    out, err = call("dcp-train", path, *GIVEN, *overrides, "--print-config")
    shown = json.loads(out)
    for key, value in entry["shows"].items():
        check(json_at(shown, key) == value, f"{name}: {key} is {json_at(shown, key)}")
    for note in entry["notes"]:
        check(err.count(note) == 1, f"{name}: {note}: {err}")
    _, err = call("dcp-train", path, *GIVEN, *overrides, "--dry-run")
    check("would start at random" in messages(err)[-1], f"{name}: {err}")


def tensors_of(config):
    """Returns the tensors that config.json requires, with the names that the folder's own writer uses."""
    if config["model_type"] == "gpt2":
        n, v = config["n_embd"], config["vocab_size"]
        layer = {"ln_1.weight": (n,), "ln_1.bias": (n,), "ln_2.weight": (n,), "ln_2.bias": (n,),
                 "attn.bias": (1, 1, 16, 16),
                 "attn.c_attn.weight": (n, 3 * n), "attn.c_attn.bias": (3 * n,), "attn.c_proj.weight": (n, n),
                 "attn.c_proj.bias": (n,), "mlp.c_fc.weight": (n, 4 * n), "mlp.c_fc.bias": (4 * n,),
                 "mlp.c_proj.weight": (4 * n, n), "mlp.c_proj.bias": (n,)}
        shapes = {"wte.weight": (v, n), "wpe.weight": (16, n), "ln_f.weight": (n,), "ln_f.bias": (n,),
                  **{f"h.0.{name}": shape for name, shape in layer.items()}}
        return {name: values("F32", shape, seed=name) for name, shape in shapes.items()}
    h, v, m, heads = (config[key] for key in ("hidden_size", "vocab_size", "intermediate_size", "num_attention_heads"))
    rows = {"q": h, "k": h // heads, "v": h // heads}
    shapes = {"embed_tokens.weight": (v, h), "norm.weight": (h,)}
    layer = {"input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,), "self_attn.o_proj.weight": (h, h),
             "mlp.gate_proj.weight": (m, h), "mlp.up_proj.weight": (m, h), "mlp.down_proj.weight": (h, m),
             **{f"self_attn.{n}_proj.weight": (rows[n], h) for n in rows}}
    if config["model_type"] == "qwen2":
        layer.update({f"self_attn.{n}_proj.bias": (rows[n],) for n in rows})
    if config["model_type"] == "qwen3":
        layer.update({f"self_attn.{n}_norm.weight": (h // heads,) for n in "qk"})
    shapes.update({f"layers.0.{name}": shape for name, shape in layer.items()})
    shapes = {f"model.{name}": shape for name, shape in shapes.items()}
    if config.get("tie_word_embeddings") is False:
        shapes["lm_head.weight"] = (v, h)
    return {name: values("BF16", shape, seed=name) for name, shape in shapes.items()}


def make_folder(name, entry):
    """Makes a folder. Returns the tensors that a checkpoint made from it must have."""
    if "adapter" in entry:
        os.mkdir(name)
        with open(f"{name}/adapter_config.json", "w") as f:
            json.dump({"base_model_name_or_path": "Qwen/Qwen2.5-0.5B", "peft_type": "LORA", "r": 2}, f)
        write(f"{name}/adapter_model.safetensors", {"base_model.model.q_proj.lora_A.weight": values("F32", (2, 8))})
        return {}
    config = json.load(open(f"{FILES}/{entry.get('config', name)}.config.json"))
    tensors = tensors_of(config)
    wrapper, more = entry.get("wrapped", ""), entry.get("index", [])
    folder(name, {wrapper + n: t for n, t in tensors.items()}, config, parts=2 if more or "no_index" in entry else 1)
    index = f"{name}/model.safetensors.index.json"
    if "no_index" in entry:
        os.remove(index)
    if more:
        names = json.load(open(index))
        names["weight_map"].update({n: "model-00002-of-00002.safetensors" for n in more})
        with open(index, "w") as f:
            json.dump(names, f)
    if "pointer" in entry:
        with open(f"{name}/model.safetensors", "w") as f:
            f.write(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 2200119864\n")
    for file in entry.get("files", []) + entry.get("left", []):
        with open(f"{name}/{file}", "w") as f:
            f.write("{}")
    return tensors


def model_folder(name, entry):
    tensors = make_folder(name, entry)
    status = entry.get("status", 0)
    out, err = call("dcp-import", name, f"{name}-ckpt", status=status)
    lines = [line for line in err.splitlines() if line.startswith("dcp-import: ")]
    for said in entry["said"]:
        check(sum(said in line for line in lines) == 1, f"{name}: {said}: {err}")
    check(len(lines) == len(entry["said"]), f"{name}: {err}")
    if status:
        return check(not os.path.exists(f"{name}-ckpt"), f"{name}: something was written")
    check(("; with " + ", ".join(entry["files"]) in out) == bool(entry["files"]), f"{name}: {out}")
    call("dcp-export", f"{name}-ckpt", f"{name}-back")
    check(st_read.read(f"{name}-back") == tensors, f"{name}: another model comes back")
    check(all(os.path.exists(f"{name}-back/{file}") for file in entry["files"]), f"{name}: files are lost")
    if "trains" in entry:
        _, err = call("dcp-train", "run.json", f"model={name}/config.json", f"init={name}-ckpt", *entry["trains"],
                      "data.type=tokens", "data.path=ids", "data.sequence_length=8", "--dry-run")
        check(f"would start with weights from {name}-ckpt" in err, f"{name}: {err}")
        _, err = call("dcp-train", "run.json", f"model={name}/config.json", f"init={name}", *entry["trains"],
                      "data.type=tokens", "data.path=ids", "data.sequence_length=8", "--dry-run",
                      status=2 if "wrapped" in entry else 0)


def ids(name, entry):
    path, overrides = name, entry.get("overrides", [])
    tokens = [random.Random(name).randrange(259) for _ in range(20000)]
    with open(path, "wb") as f:
        f.write(bytes.fromhex(entry.get("begin", "")).ljust(1024, b"\0") if "begin" in entry else b"")
        f.write(struct.pack(f"<20000{entry.get('ids', '<H')[1]}", *tokens))
    with_ids = ["model=model.json", "data.type=tokens", f"data.path={path}", "data.sequence_length=128", *overrides,
                "--dry-run"]
    _, err = call("dcp-train", "run.json", *with_ids, status=2 if "refuses" in entry else 0)
    said = entry.get("refuses", f"{entry.get('samples')} samples per epoch")
    check(err.count(said) == 1 and ("refuses" not in entry or len(messages(err)) == 1), f"{name}: {err}")
    if "without" in entry:
        _, err = call("dcp-train", "run.json", *[o for o in with_ids if o not in overrides], status=2)
        check(entry["without"] in err, f"{name}: {err}")


@cases.shared
def inputs():
    make_text()
    with open("model.json", "w") as f:
        json.dump(MODEL, f)


@cases.shared
def run_inputs():
    cases.use(inputs)
    with open("run.json", "w") as f:
        json.dump({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "data": {"path": "text"}}, f)
    with open("ids", "wb") as f:
        f.write(struct.pack("<400H", *[i % 16 for i in range(400)]))


def test_sources_json_has_each_file():
    check(len(SOURCES) >= 20, "fewer than twenty")
    check(sorted(n for n in os.listdir(FILES) if n != "sources.json") ==
          sorted({n for n, e in SOURCES.items() if "shows" in e or "refused" in e} |
                 {f"{e.get('config', n)}.config.json" for n, e in SOURCES.items() if "said" in e and "adapter" not in e}),
          "sources.json has not each file")


def test_each_file_is_understood_or_refused():
    cases.use(run_inputs)
    for name, entry in SOURCES.items():
        with cases.part(f"{name}"):
            check("/" in entry["source"], f"{name} names no source")
            (model_folder if "said" in entry else configuration if "shows" in entry or "refused" in entry else ids)(name, entry)


def test_two_places_for_offload_are_refused():
    cases.use(inputs)
    # One of the two places would be lost.
    with open("twice.json", "w") as f:
        json.dump({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/a"},
                                         "offload_param": {"device": "nvme", "nvme_path": "/b"}}}, f)
    _, err = call("dcp-train", "twice.json", *GIVEN, "--print-config", status=2)
    check('zero_optimization.offload_param: "/b"; another nvme_path has been given' in err, err)


def test_an_overridden_key_of_the_command_line_is_a_warning():
    cases.use(run_inputs)
    _, err = call("dcp-train", "run.json", *GIVEN, "optimizer.params.lr=1", 'optimizer={"type": "AdamW"}', "seed=2",
                  "seed=2",
                  "--print-config")
    check(err.splitlines() == ["dcp-train: warning: run.json: ignored, because the command line sets the key again: "
                               "optimizer.params.lr=1"], err)


cases.main()
