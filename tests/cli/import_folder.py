#!/usr/bin/env python3
"""dcp-import: the checkpoint holds the folder's tensors byte by byte in their types, its files and its
configuration, whatever the number of files and ranks; an export gives all of it back."""
import shutil
import sys
from hf_folder import *
import st_read

TENSORS = {f"layer.{i}.{dtype.lower()}": values(dtype, shape)
           for i, shape in enumerate([(7, 5), (3,), (), (0, 4), (2, 1, 3)]) for dtype in SIZES}
TENSORS["big.weight"] = values("BF16", (1500, 4099))  # several blocks of 4 MiB, and rows odd
VOCAB = "{\"é\": 0}\n".encode() * 1000
FILES = {"tokenizer__json": VOCAB, "merges__txt": b"", "generation_config__json": b"{}\n",
         "chat_template__jinja": b"{{ x }}", "notes__txt": b"not kept", "pytorch_model__bin": b"neither"}
KEPT = ["chat_template.jinja", "generation_config.json", "merges.txt", "tokenizer.json"]

folder("one", TENSORS, **FILES)
folder("many", TENSORS, parts=4, **FILES)

out = run("dcp-import", "one", "plan", "--dry-run")
check(out.startswith("write plan/step-00000000: 56 tensors, 12.3 MB; with " + ", ".join(KEPT)), out)
check(not os.path.exists("plan"), "--dry-run wrote")
out = run("dcp-import", "one", "ckpt")
check(out.startswith("ckpt/step-00000000: 56 tensors") and "zero moments" in out, out)
check(sorted(os.listdir("ckpt")) == [".lock", "latest", "step-00000000"], os.listdir("ckpt"))
run("dcp-import", "many", "new/ckpt3/", ranks=3)
state = content("ckpt/step-00000000/state.h5")
check(state == content("new/ckpt3/step-00000000/state.h5"), "other files and ranks give another state.h5")
run("dcp-inspect", "verify", "ckpt")

want = {f"/model/{name}": (dtype, data) for name, (dtype, _, data) in TENSORS.items()}
want.update({f"/files/{name}": ("U8", FILES[name.replace(".", "__")]) for name in KEPT})
found = stored("ckpt/step-00000000/state.h5")
check(found == want, [name for name in {*want, *found} if found.get(name) != want.get(name)])
import h5py  # noqa: E402
with h5py.File("ckpt/step-00000000/state.h5") as f:
    meta = json.loads(f["dcp/meta"][()])
    check(all(list(f["model"][name].shape) == TENSORS[name][1] for name in TENSORS), "shapes")
model = {k: v for k, v in CONFIG.items() if k[0] != "_" and k != "transformers_version"}
check(meta["model"] == model and meta["step"] == meta["samples"] == meta["tokens"] == 0, meta)

# files that the index does not name are told, and an index that names nothing is none
shutil.copytree("many", "surplus")
shutil.copy("one/model.safetensors", "surplus/model-00005-of-00005.safetensors")
said = run("dcp-import", "surplus", "surplus-ckpt", err=True)
check("surplus/model-00005-of-00005.safetensors: not a file of the model" in said and
      said.count("not imported") == 1, said)
check(content("surplus-ckpt/step-00000000/state.h5") == state, "surplus files change the state")
check("not imported" not in run("dcp-import", "many", "quiet-ckpt", err=True), "talk of nothing")
json.dump({"metadata": {}, "weight_map": {}}, open("surplus/model.safetensors.index.json", "w"))
err = run("dcp-import", "surplus", "none-ckpt", expect=1)
check("names no tensors" in err and not os.path.exists("none-ckpt"), err)

# what an export has besides, and what is pickled, is told with what to do
shutil.copytree("one", "moments")
for part in ("optimizer-00001-of-00002", "optimizer-00002-of-00002"):
    shutil.copy("one/model.safetensors", f"moments/{part}.safetensors")
said = run("dcp-import", "moments", "moments-ckpt", err=True)
check(said.count("not imported") == 1 and "moments/optimizer-00001-of-00002.safetensors: not imported; "
      "--with-optimizer takes" in said, said)

# moments that are asked for are those of the model's tensors, each with a count
W, ONE = values("F32", (2, 3)), ("F32", [], struct.pack("<f", 1))
folder("weights", {"w": W, "half": values("BF16", (2,))})
said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", expect=2)
check("weights: has no optimizer.safetensors" in said, said)


def moments(tensors):
    write("weights/optimizer.safetensors", tensors)


for told, expect, tensors in (
        ("exp_avg.v is of no tensor of the model", 1, {"exp_avg.v": W}),
        ("alone is of no tensor", 1, {"alone": W}),
        ("step.w, how many updates were made of a parameter, is missing", 1, {"exp_avg.w": W}),
        ("step.w, how many updates were made of a parameter, is no number", 1, {"exp_avg.w": W, "step.w": W}),
        ("exp_avg.w has another shape than w", 1, {"exp_avg.w": values("F32", (3, 2)), "step.w": ONE}),
        ("those of weights of type F32, half is BF16", 2, {"exp_avg.half": values("F32", (2,)), "step.half": ONE})):
    moments(tensors)
    for ranks in (0,) if expect == 1 else (0, 2):
        said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", expect=expect, ranks=ranks)
        check(said.count("dcp-import:") == 1 and f"optimizer.safetensors: {told}" in said.replace("moments are ", ""), said)
check(not os.path.exists("weights-ckpt"), "written")
moments({"exp_avg.w": W, "step.w": ONE, "exp_avg_sq.w": W})
said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", ranks=3)
check("5 tensors" in said and "with the optimizer's state" in said, said)
found = stored("weights-ckpt/step-00000000/state.h5")
check({name: data for name, (_, data) in found.items() if name.startswith("/optimizer/")} ==
      {"/optimizer/exp_avg/w": W[2], "/optimizer/exp_avg_sq/w": W[2], "/optimizer/step/w": ONE[2]}, list(found))
os.mkdir("pickled")
for name in ("config.json", "pytorch_model.bin"):
    shutil.copy(f"one/{name}", "pickled")
err = run("dcp-import", "pickled", "pickled-ckpt", expect=2)
check("holds neither model.safetensors" in err and "pickled/pytorch_model.bin: pickled weights" in err and
      "M.from_pretrained('pickled').save_pretrained('pickled-safetensors')" in err, err)

# the tensors are those of config.json, or it is told which are not
MODEL = {"model_type": "llama", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 8}
LAYER = "model.layers.0."
FITTING = {name: values("F64", shape) for name, shape in {
    "model.embed_tokens.weight": (6, 4), "model.norm.weight": (4,),
    **{f"{LAYER}{n}_layernorm.weight": (4,) for n in ("input", "post_attention")},
    **{f"{LAYER}self_attn.{n}_proj.weight": (4 if n in "qo" else 2, 4) for n in "qkvo"},
    **{f"{LAYER}mlp.{n}_proj.weight": (4, 3) if n == "down" else (3, 4) for n in ("gate", "up", "down")}}.items()}
FITTING["lm_head.weight"] = values("F64", (6, 4), seed=1)
OLD = {f"{LAYER}self_attn.rotary_emb.inv_freq": values("F32", (1,))}
WITHOUT = {n: t for n, t in FITTING.items() if n != "model.norm.weight"}
NARROW = {**FITTING, "lm_head.weight": values("F64", (4, 6))}
MANY = {**FITTING, **{f"more.{i}": values("U8", (1,)) for i in range(11)}}
FOURTEEN = {**FITTING, **{f"other{i:02}": values("U8", (1,)) for i in range(14)}}
FITS = [  # folder, exit status, and what is said of it
    (folder("fits", {**FITTING, **OLD}, MODEL), 0, []),
    (folder("base", {n.removeprefix("model."): t for n, t in WITHOUT.items()}, MODEL), 1,
     ["base: model.norm.weight [4] is missing, config.json asks for it"]),
    (folder("tied", {**FITTING, "x.y": values("U8", (2, 3))}, {**MODEL, "tie_word_embeddings": True}), 1,
     ["tied: x.y [2,3] is surplus, config.json asks for no such tensor"]),
    (folder("narrow", NARROW, MODEL), 1, ["narrow: lm_head.weight is [4,6], config.json asks for [6,4]"]),
    (folder("eleven", MANY, MODEL), 1, ["eleven: more.* [1] is surplus, config.json asks for no such tensor (11 tensors)"]),
    (folder("fourteen", FOURTEEN, MODEL), 1,
     [*(f"fourteen: other{i:02} [1] is surplus" for i in range(12)), "fourteen: and 2 more differences"]),
    (folder("escape", {**FITTING, "x\x1b[31m": values("U8", (1,))}, MODEL), 1, ["escape: x?[31m [1] is surplus"]),
    (folder("dropout", NARROW, {**MODEL, "attention_dropout": 0.1}), 1,
     ["dropout/config.json: attention_dropout 0.1", "dropout: lm_head.weight is [4,6]"]),
    (folder("scaled", FITTING, {**MODEL, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}), 0,
     ["scaled/config.json: rope_scaling"]),
    (folder("layers", FITTING, {**MODEL, "num_hidden_layers": "1"}), 0,
     ["layers/config.json: num_hidden_layers is not an integer in 1..16384: dcp-train would refuse it; the tensors are not"]),
    (folder("foreign", FITTING, {**MODEL, "model_type": "bert"}), 0,
     ["foreign/config.json: model_type \"bert\" is not supported"]),
    (folder("typeless", FITTING, {}), 0, ["typeless/config.json: model_type is missing"]),
]
VIT = f"{SOURCE}/tests/data/golden/vit"
BODY = {n: t for n, t in st_read.read(VIT).items() if not n.startswith("classifier.")}
FITS.append((folder("headless", BODY, json.load(open(f"{VIT}/config.json"))), 0,
             [f"headless: has no classifier.{part}: dcp-train will initialize it" for part in ("weight", "bias")]))
shutil.copy("fits/model.safetensors", "typeless/other.safetensors")
FITS[-2][2].insert(0, "typeless/other.safetensors: not a file of the model, which is model.safetensors alone")
for name, status, said in FITS:
    for ranks in (0, 2) if name == "narrow" else (0,):
        lines = run("dcp-import", name, f"{name}-ckpt", expect=status, ranks=ranks, err=True).splitlines()
        lines = [line for line in lines if line.startswith("dcp-import: ")]
        check(all(line.startswith(f"dcp-import: {text}") for line, text in zip(lines, said)) and
              len(lines) == len(said) + (status == 1), f"{name}: {lines}")
        check(status == 0 or "--allow-mismatch imports" in lines[-1], lines)
        check(os.path.exists(f"{name}-ckpt") == (status == 0), f"{name}: wrote, or did not")
    if status:
        lines = run("dcp-import", name, f"{name}-ckpt", "--allow-mismatch", err=True).splitlines()
        check(all(line.startswith(f"dcp-import: {text}") for line, text in zip(lines, said)) and
              len(lines) == len(said), f"{name}: {lines}")
    run("dcp-export", f"{name}-ckpt", f"{name}-back", *(["--allow-mismatch"] if status else []))
    check(st_read.read(f"{name}-back") == st_read.read(name), f"{name}: another model")
check(json.load(open("fits-back/config.json"))["architectures"] == ["LlamaForCausalLM"], "architectures")

# all that a tokenizer is made of is kept; code of the model's own is told
TOKENIZER = {"tekken.json": b"{}", "tokenization_own.py": b"pass\n", "additional_chat_templates/tool.jinja": b"{{ y }}"}
folder("spoken", FITTING, MODEL)
os.mkdir("spoken/additional_chat_templates")
for name, data in {**TOKENIZER, "modeling_own.py": b"pass\n", "configuration_own.py": b"pass\n", ".hidden.py": b""}.items():
    with open(f"spoken/{name}", "wb") as f:
        f.write(data)
said = run("dcp-import", "spoken", "spoken-ckpt", err=True)
check("spoken/configuration_own.py and others: the model's own code is not kept" in said and said.count("dcp-import:") == 1, said)
run("dcp-export", "spoken-ckpt", "spoken-back")
for name, data in TOKENIZER.items():
    check(content(f"spoken-back/{name}") == data, name)
check(not os.path.exists("spoken-back/modeling_own.py"), "code was kept")
run("dcp-export", "spoken-ckpt", "spoken-back", "--force")

# tied by config.json, and yet another tensor: told by both
TIED = {**MODEL, "tie_word_embeddings": True}
for name, head, told in ("twice", FITTING["model.embed_tokens.weight"], 0), ("untied", FITTING["lm_head.weight"], 1):
    folder(name, {**FITTING, "lm_head.weight": head}, TIED)
    said = run("dcp-import", name, f"{name}-ckpt", err=True)
    check(said.count("ties lm_head.weight to model.embed_tokens.weight, and they differ: transformers uses the latter "
                     "alone, and dcp-train takes neither") == told and bool(said) == bool(told), said)
    said = run("dcp-export", f"{name}-ckpt", f"{name}-back", err=True)
    check(said.count("and they differ: both are written, and transformers uses the latter") == told and bool(said) == bool(told), said)

# an index names the copy of tied weights, which transformers did not write: no other name may be without a file
def named(path, tensors, config, *more):
    folder(path, tensors, config, parts=2)
    index = json.load(open(f"{path}/model.safetensors.index.json"))
    index["weight_map"].update({name: "model-00002-of-00002.safetensors" for name in more})
    json.dump(index, open(f"{path}/model.safetensors.index.json", "w"))
    return path


ALONE = {n: t for n, t in FITTING.items() if n != "lm_head.weight"}
HEAD = "its index names tensor 'lm_head.weight', which no file holds"
for path, status, said in (
        (named("tied-index", ALONE, TIED, "lm_head.weight"), 0, []),
        (named("wrapped-index", {f"_orig_mod.{n}": t for n, t in ALONE.items()}, TIED, "_orig_mod.lm_head.weight"), 0,
         ["a wrapper's _orig_mod. is left out of the names of 11 tensors"]),
        (named("untied-index", ALONE, MODEL, "lm_head.weight"), 1, ["lm_head.weight [6,4] is missing", HEAD]),
        (named("foreign-index", ALONE, {"model_type": "gemma"}, "lm_head.weight"), 0,
         ['model_type "gemma"', f"{HEAD}: taken for tied weights"]),
        (named("own-index", ALONE, {"model_type": "gemma", "tie_word_embeddings": False}, "lm_head.weight"), 1,
         ['model_type "gemma"', HEAD]),
        (named("more-index", ALONE, TIED, "lm_head.weight", "more"), 1, ["names tensor 'more', which no file holds"])):
    lines = [line for line in run("dcp-import", path, f"{path}-ckpt", expect=status, err=True).splitlines()
             if line.startswith("dcp-import: ")]
    check(len(lines) == len(said) + status and all(s in line for s, line in zip(said, lines)), f"{path}: {lines}")
    if status:
        check("--allow-mismatch imports" in lines[-1], lines)
        lines = run("dcp-import", path, f"{path}-ckpt", "--allow-mismatch", err=True)
        check(all(s in lines for s in said), lines)
    run("dcp-export", f"{path}-ckpt", f"{path}-back", "--allow-mismatch")
    check(st_read.read(f"{path}-back") == ALONE, f"{path}: another model")

# what wrappers of PyTorch put into names is left out, of moments, too
F32 = {name: values("F32", shape) for name, (_, shape, _) in FITTING.items()}
for case, change, wrappers in (("compiled", lambda n: f"_orig_mod.{n}", ["_orig_mod."]),
                               ("ddp", lambda n: f"module._orig_mod.{n}", ["_orig_mod.", "module."]),
                               ("fsdp", lambda n: f"_fsdp_wrapped_module.{n}".replace("mlp.", "_checkpoint_wrapped_module.mlp."),
                                ["_fsdp_wrapped_module.", "_checkpoint_wrapped_module."]),
                               ("peft", lambda n: "base_model.model." + n.replace("q_proj.", "q_proj.base_layer."),
                                ["base_layer.", "base_model.model."])):
    folder(case, {change(n): t for n, t in F32.items()}, MODEL)
    write(f"{case}/optimizer.safetensors", {**{f"exp_avg.{change(n)}": t for n, t in F32.items()},
                                            **{f"step.{change(n)}": ONE for n in F32}})
    for ranks in (0, 2) if case == "fsdp" else (0,):
        said = run("dcp-import", case, f"{case}-ckpt{ranks}", "--with-optimizer", ranks=ranks, err=True)
        check(said.count(" is left out of the names of ") == len(wrappers) and
              all(f"{case}: a wrapper's {w} is left out" in said for w in wrappers), said)
        found = stored(f"{case}-ckpt{ranks}/step-00000000/state.h5")
        check({n.removeprefix("/model/"): data for n, (_, data) in found.items() if n.startswith("/model/")} ==
              {n: data for n, (_, _, data) in F32.items()}, f"{case}: other names")
        check({n for n in found if n.startswith("/optimizer/")} ==
              {f"/optimizer/{slot}/{n}" for slot in ("exp_avg", "step") for n in F32}, f"{case}: other moments")
folder("clash", {**F32, "_orig_mod.lm_head.weight": F32["lm_head.weight"]}, MODEL)
said = run("dcp-import", "clash", "clash-ckpt", expect=1)
check("would both be named lm_head.weight" in said and not os.path.exists("clash-ckpt"), said)

# a configuration as Python reads and writes it
for name, text, status, said in (("marked", "\ufeff" + json.dumps(MODEL), 0, ""),
                                 ("infinite", '{"model_type": "llama",\n "x": [0.0, Infinity]}', 1,
                                  "infinite/config.json: Infinity, which Python writes, is no number of JSON (line 2, column 13)")):
    folder(name, FITTING)
    with open(f"{name}/config.json", "w", encoding="utf-8") as f:
        f.write(text)
    found = run("dcp-import", name, f"{name}-ckpt", expect=status, err=True)
    check(said in found, found)

# and back
run("dcp-export", "ckpt", "back")
run("dcp-export", "new/ckpt3", "back3", ranks=3)
for back in "back", "back3":
    check(content(f"{back}/model.safetensors") == content("one/model.safetensors"), f"{back} differs")
    check(sorted(os.listdir(back)) == sorted(["config.json", "model.safetensors", *KEPT]), os.listdir(back))
    for name in KEPT:
        check(content(f"{back}/{name}") == content(f"one/{name}"), name)
    exported = json.load(open(f"{back}/config.json"))
    check(exported == model, exported)
run("dcp-export", "ckpt", "parts", "--max-shard-size", "10KB")
check(st_read.read("parts") == TENSORS, "an export in parts differs")
run("dcp-import", "parts", "again")
run("dcp-import", "back", "again-one")
check(content("again/step-00000000/state.h5") == content("again-one/step-00000000/state.h5"), "not the same again")

# what is there already
err = run("dcp-import", "one", "ckpt", expect=2)
check("ckpt/step-00000000: is there already; --force replaces it" in err, err)
folder("other", {"w": values("F32", (3,))})
run("dcp-import", "other", "ckpt", "--force", ranks=2)
run("dcp-export", "ckpt", "other-back")
check(content("other-back/model.safetensors") == content("other/model.safetensors"), "--force did not replace")
err = run("dcp-import", "other", "other", expect=2)
check("are the same folder" in err and os.listdir("other").count("step-00000000") == 0, err)
run("dcp-import", "other", "other", "--force")
check(os.path.exists("other/step-00000000/state.h5"), "--force into the folder itself")

# other writers, and steps that come later
holder = subprocess.Popen([sys.executable, "-c", """
import fcntl, os, struct, sys
fd = os.open("again/.lock", os.O_RDWR)
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
print("held", flush=True)
sys.stdin.read()
"""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
check(holder.stdout.readline() == b"held\n", "no lock")
err = run("dcp-import", "one", "again", "--force", expect=2)
check("is in use by another writer" in err, err)
holder.communicate()
os.rename("again/step-00000000", "again/step-00000007")
err = run("dcp-import", "one", "again", expect=2)
check("again holds a run, up to step 7" in err and not os.path.exists("again/step-00000000"), err)
done = subprocess.run([f"{BIN}/dcp-import", "one", "again", "--force"], capture_output=True, text=True)
check(done.returncode == 0 and "set checkpoint.resume=again/step-00000000" in done.stderr, done.stderr)
check(os.readlink("again/latest") == "step-00000007", os.readlink("again/latest"))


def lose_lock(directory):
    """As a writer leaves it whose lock does not tell any more that it runs: this process, say."""
    words = open(f"{directory}/.lock").read().split()
    start = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
    words[1], words[2], words[7], words[8] = str(os.getpid()), start, "held", str(os.getpid())
    open(f"{directory}/.lock", "w").write(" ".join(words) + "\n")


lose_lock("again")
err = run("dcp-import", "one", "again", "--force", expect=2)
check(f"process {os.getpid()} on host" in err and "take the store over" in err, err)
run("dcp-import", "one", "again", "--force", "--take-over")
os.mkdir("elsewhere")
shutil.copy("again/.lock", "elsewhere")
lose_lock("elsewhere")
err = run("dcp-reshard", "ckpt", "elsewhere", "--layout", "global", expect=2)
check(f"process {os.getpid()} on host" in err and not os.path.exists("elsewhere/step-00000000"), err)
run("dcp-reshard", "ckpt", "elsewhere", "--layout", "global", "--take-over")
