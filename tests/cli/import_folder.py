#!/usr/bin/env python3
"""dcp-import: the checkpoint contains the folder's tensors, with the same types and bytes, its files and its
configuration, whatever the number of files and ranks; an export restores all of it."""
import json, os, shutil, struct, subprocess, sys
import h5py
from hf_folder import BIN, CONFIG, SIZES, SOURCE, cases, check, content, folder, run, stored, values, write
import st_read

TENSORS = {f"layer.{i}.{dtype.lower()}": values(dtype, shape)
           for i, shape in enumerate([(7, 5), (3,), (), (0, 4), (2, 1, 3)]) for dtype in SIZES}
TENSORS["big.weight"] = values("BF16", (1500, 4099))  # several blocks of 4 MiB, and an odd length of rows
VOCAB = "{\"é\": 0}\n".encode() * 1000
FILES = {"tokenizer__json": VOCAB, "merges__txt": b"", "generation_config__json": b"{}\n",
         "chat_template__jinja": b"{{ x }}", "notes__txt": b"not kept", "pytorch_model__bin": b"neither"}
KEPT = ["chat_template.jinja", "generation_config.json", "merges.txt", "tokenizer.json"]
KEPT_CONFIG = {k: v for k, v in CONFIG.items() if k[0] != "_" and k != "transformers_version"}
STATE = "step-00000000/state.h5"


@cases.shared
def folders():
    """Makes the tensors in one file ("one") and in four ("many")."""
    folder("one", TENSORS, **FILES)
    folder("many", TENSORS, parts=4, **FILES)


@cases.shared
def imported():
    """Makes folders() and the checkpoint "ckpt" of "one"."""
    cases.use(folders)
    return run("dcp-import", "one", "ckpt")


@cases.shared
def imported_by_ranks():
    """Makes imported() and the checkpoint "new/ckpt3", which three ranks made from "many"."""
    cases.use(imported)
    run("dcp-import", "many", "new/ckpt3/", ranks=3)


def test_dry_run_says_what_would_be_written():
    cases.use(folders)
    out = run("dcp-import", "one", "plan", "--dry-run")
    check(out.startswith("write plan/step-00000000: 56 tensors, 12.3 MB; with " + ", ".join(KEPT)), out)
    check(not os.path.exists("plan"), "--dry-run wrote")


def test_an_import_says_what_it_wrote():
    out = cases.use(imported)
    check(out.startswith("ckpt/step-00000000: 56 tensors") and "zero moments" in out, out)
    check(sorted(os.listdir("ckpt")) == [".lock", "latest", "step-00000000"], os.listdir("ckpt"))


def test_files_and_ranks_do_not_change_the_state():
    cases.use(imported_by_ranks)
    check(content(f"ckpt/{STATE}") == content(f"new/ckpt3/{STATE}"), "other files and ranks give another state.h5")
    run("dcp-inspect", "verify", "ckpt")


def test_tensors_and_files_are_stored_byte_by_byte():
    cases.use(imported)
    want = {f"/model/{name}": (dtype, data) for name, (dtype, _, data) in TENSORS.items()}
    want.update({f"/files/{name}": ("U8", FILES[name.replace(".", "__")]) for name in KEPT})
    found = stored(f"ckpt/{STATE}")
    check(found == want, [name for name in {*want, *found} if found.get(name) != want.get(name)])


def test_shapes_and_the_configuration_are_stored():
    cases.use(imported)
    with h5py.File(f"ckpt/{STATE}") as f:
        meta = json.loads(f["dcp/meta"][()])
        check(all(list(f["model"][name].shape) == TENSORS[name][1] for name in TENSORS), "shapes")
    check(meta["model"] == KEPT_CONFIG and meta["step"] == meta["samples"] == meta["tokens"] == 0, meta)


def test_an_export_gives_all_of_it_back():
    cases.use(imported_by_ranks)
    run("dcp-export", "ckpt", "back")
    run("dcp-export", "new/ckpt3", "back3", ranks=3)
    for back in "back", "back3":
        with cases.part(back):
            check(content(f"{back}/model.safetensors") == content("one/model.safetensors"), f"{back} differs")
            check(sorted(os.listdir(back)) == sorted(["config.json", "model.safetensors", *KEPT]), os.listdir(back))
            for name in KEPT:
                check(content(f"{back}/{name}") == content(f"one/{name}"), name)
            with open(f"{back}/config.json") as f:
                exported = json.load(f)
            check(exported == KEPT_CONFIG, exported)


def test_an_export_in_parts_is_imported_again():
    cases.use(imported)
    run("dcp-export", "ckpt", "back")
    run("dcp-export", "ckpt", "parts", "--max-shard-size", "10KB")
    check(st_read.read("parts") == TENSORS, "an export in parts differs")
    run("dcp-import", "parts", "again")
    run("dcp-import", "back", "again-one")
    check(content(f"again/{STATE}") == content(f"again-one/{STATE}"), "not the same again")


def test_files_that_the_index_does_not_name_are_reported():
    cases.use(imported)
    shutil.copy("one/model.safetensors", "many/model-00005-of-00005.safetensors")
    said = run("dcp-import", "many", "surplus-ckpt", err=True)
    check("many/model-00005-of-00005.safetensors: not a file of the model" in said and
          said.count("not imported") == 1, said)
    check(content(f"surplus-ckpt/{STATE}") == content(f"ckpt/{STATE}"), "surplus files change the state")


def test_nothing_is_reported_of_a_folder_without_other_files():
    cases.use(folders)
    check("not imported" not in run("dcp-import", "many", "quiet-ckpt", err=True), "talk of nothing")


def test_an_index_that_names_no_tensors_is_refused():
    cases.use(folders)
    with open("many/model.safetensors.index.json", "w") as f:
        json.dump({"metadata": {}, "weight_map": {}}, f)
    err = run("dcp-import", "many", "none-ckpt", expect=1)
    check("names no tensors" in err and not os.path.exists("none-ckpt"), err)


def test_an_optimizer_that_is_left_out_is_reported():
    cases.use(folders)
    for part in ("optimizer-00001-of-00002", "optimizer-00002-of-00002"):
        shutil.copy("one/model.safetensors", f"one/{part}.safetensors")
    said = run("dcp-import", "one", "moments-ckpt", err=True)
    check(said.count("not imported") == 1 and "one/optimizer-00001-of-00002.safetensors: not imported; "
          "--with-optimizer imports the moments" in said, said)


def test_pickled_weights_are_refused_with_the_remedy():
    os.mkdir("pickled")
    folder("one", {}, **FILES)
    for name in ("config.json", "pytorch_model.bin"):
        shutil.copy(f"one/{name}", "pickled")
    err = run("dcp-import", "pickled", "pickled-ckpt", expect=2)
    check("holds neither model.safetensors" in err and "pickled/pytorch_model.bin: pickled weights" in err and
          "M.from_pretrained('pickled').save_pretrained('pickled-safetensors')" in err, err)


# Imported moments must belong to tensors of the model, and each of these tensors must have a number of updates.
W, ONE = values("F32", (2, 3)), ("F32", [], struct.pack("<f", 1))


def make_weights(moments=None):
    folder("weights", {"w": W, "half": values("BF16", (2,))})
    if moments is not None:
        write("weights/optimizer.safetensors", moments)


def test_an_optimizer_that_is_missing_is_refused():
    make_weights()
    said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", expect=2)
    check("weights: has no optimizer.safetensors" in said, said)


def test_moments_that_are_no_moments_of_the_model_are_refused():
    make_weights()
    for told, expect, tensors in (
            ("exp_avg.v belongs to no tensor of the model", 1, {"exp_avg.v": W}),
            ("alone belongs to no tensor", 1, {"alone": W}),
            ("step.w, the number of a parameter's updates, is missing", 1, {"exp_avg.w": W}),
            ("step.w, the number of a parameter's updates, is not a number", 1, {"exp_avg.w": W, "step.w": W}),
            ("exp_avg.w has another shape than w", 1, {"exp_avg.w": values("F32", (3, 2)), "step.w": ONE}),
            ("moments require weights of type F32, but half is BF16", 2, {"exp_avg.half": values("F32", (2,)), "step.half": ONE})):
        with cases.part(told):
            write("weights/optimizer.safetensors", tensors)
            for ranks in (0,) if expect == 1 else (0, 2):
                said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", expect=expect, ranks=ranks)
                check(said.count("dcp-import:") == 1, said)
                check(f"optimizer.safetensors: {told}" in said.replace("moments are ", ""), said)
            check(not os.path.exists("weights-ckpt"), "written")


def test_moments_are_imported():
    make_weights({"exp_avg.w": W, "step.w": ONE, "exp_avg_sq.w": W})
    said = run("dcp-import", "weights", "weights-ckpt", "--with-optimizer", ranks=3)
    check("5 tensors" in said and "with the optimizer's state" in said, said)
    found = stored(f"weights-ckpt/{STATE}")
    check({name: data for name, (_, data) in found.items() if name.startswith("/optimizer/")} ==
          {"/optimizer/exp_avg/w": W[2], "/optimizer/exp_avg_sq/w": W[2], "/optimizer/step/w": ONE[2]}, list(found))


# The tensors must match config.json; otherwise the differences are reported.
MODEL = {"model_type": "llama", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "max_position_embeddings": 8}
TIED = {**MODEL, "tie_word_embeddings": True}
LAYER = "model.layers.0."
FITTING = {name: values("F64", shape) for name, shape in {
    "model.embed_tokens.weight": (6, 4), "model.norm.weight": (4,),
    **{f"{LAYER}{n}_layernorm.weight": (4,) for n in ("input", "post_attention")},
    **{f"{LAYER}self_attn.{n}_proj.weight": (4 if n in "qo" else 2, 4) for n in "qkvo"},
    **{f"{LAYER}mlp.{n}_proj.weight": (4, 3) if n == "down" else (3, 4) for n in ("gate", "up", "down")}}.items()}
FITTING["lm_head.weight"] = values("F64", (6, 4), seed=1)
NARROW = {**FITTING, "lm_head.weight": values("F64", (4, 6))}


def messages(name, *options, **how):
    lines = run("dcp-import", name, f"{name}-ckpt", *options, err=True, **how).splitlines()
    return [line for line in lines if line.startswith("dcp-import: ")]


def begin_with(lines, said):
    return all(line.startswith(f"dcp-import: {text}") for line, text in zip(lines, said))


def check_taken(name, said=()):
    """The folder is imported, the messages `said` are printed, and an export restores the model."""
    lines = messages(name)
    check(begin_with(lines, said) and len(lines) == len(said), f"{name}: {lines}")
    check(os.path.exists(f"{name}-ckpt"), f"{name}: wrote nothing")
    check_export(name)


def check_refused(name, said, all_ranks=(0,)):
    """The folder is refused with the messages `said`; --allow-mismatch imports it."""
    for ranks in all_ranks:
        lines = messages(name, expect=1, ranks=ranks)
        check(begin_with(lines, said) and len(lines) == len(said) + 1, f"{name}: {lines}")
        check("--allow-mismatch imports" in lines[-1], lines)
        check(not os.path.exists(f"{name}-ckpt"), f"{name}: wrote")
    lines = messages(name, "--allow-mismatch")
    check(begin_with(lines, said) and len(lines) == len(said), f"{name}: {lines}")
    check_export(name, "--allow-mismatch")


def check_export(name, *options):
    run("dcp-export", f"{name}-ckpt", f"{name}-back", *options)
    check(st_read.read(f"{name}-back") == st_read.read(name), f"{name}: another model")


def test_tensors_that_fit_are_taken_in_silence():
    """Buffers of the model that old versions of transformers stored are accepted as well."""
    old = {f"{LAYER}self_attn.rotary_emb.inv_freq": values("F32", (1,))}
    check_taken(folder("fits", {**FITTING, **old}, MODEL))
    with open("fits-back/config.json") as f:
        check(json.load(f)["architectures"] == ["LlamaForCausalLM"], "architectures")


def test_a_missing_tensor_is_refused():
    without = {n.removeprefix("model."): t for n, t in FITTING.items() if n != "model.norm.weight"}
    check_refused(folder("base", without, MODEL), ["base: model.norm.weight [4] is missing, but config.json requires it"])


def test_a_surplus_tensor_is_refused():
    check_refused(folder("tied", {**FITTING, "x.y": values("U8", (2, 3))}, TIED),
                  ["tied: x.y [2,3] is surplus: config.json requires no such tensor"])


def test_another_shape_is_refused():
    check_refused(folder("narrow", NARROW, MODEL), ["narrow: lm_head.weight is [4,6], but config.json requires [6,4]"],
                  all_ranks=(0, 2))


def test_differences_of_one_pattern_are_one_line():
    many = {**FITTING, **{f"more.{i}": values("U8", (1,)) for i in range(11)}}
    check_refused(folder("eleven", many, MODEL),
                  ["eleven: more.* [1] is surplus: config.json requires no such tensor (11 tensors)"])


def test_twelve_differences_are_listed():
    fourteen = {**FITTING, **{f"other{i:02}": values("U8", (1,)) for i in range(14)}}
    check_refused(folder("fourteen", fourteen, MODEL),
                  [*(f"fourteen: other{i:02} [1] is surplus" for i in range(12)), "fourteen: and 2 more differences"])


def test_escapes_in_names_are_not_printed():
    check_refused(folder("escape", {**FITTING, "x\x1b[31m": values("U8", (1,))}, MODEL), ["escape: x?[31m [1] is surplus"])


def test_a_key_that_dcp_train_would_refuse_is_reported_beside_a_mismatch():
    check_refused(folder("dropout", NARROW, {**MODEL, "attention_dropout": 0.1}),
                  ["dropout/config.json: attention_dropout 0.1", "dropout: lm_head.weight is [4,6]"])


def test_a_configuration_that_dcp_train_would_refuse_is_reported():
    for name, config, said in (
            ("scaled", {**MODEL, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "scaled/config.json: rope_scaling"),
            ("layers", {**MODEL, "num_hidden_layers": "1"},
             "layers/config.json: num_hidden_layers is not an integer in 1..16384: dcp-train would refuse this "
             "configuration; the tensors are not"),
            ("foreign", {**MODEL, "model_type": "bert"}, "foreign/config.json: model_type \"bert\" is not supported")):
        with cases.part(name):
            check_taken(folder(name, FITTING, config), [said])


def test_a_configuration_without_a_type_is_reported_after_other_files():
    folder("typeless", FITTING, {})
    shutil.copy("typeless/model.safetensors", "typeless/other.safetensors")
    check_taken("typeless", ["typeless/other.safetensors: not a file of the model, which is only model.safetensors",
                             "typeless/config.json: model_type is missing"])


def test_a_classifier_that_dcp_train_will_initialize_is_reported():
    vit = f"{SOURCE}/tests/data/golden/vit"
    body = {n: t for n, t in st_read.read(vit).items() if not n.startswith("classifier.")}
    with open(f"{vit}/config.json") as f:
        folder("headless", body, json.load(f))
    check_taken("headless", [f"headless: has no classifier.{part}: dcp-train will initialize it" for part in ("weight", "bias")])


def test_files_of_a_tokenizer_are_kept_and_code_is_not():
    tokenizer = {"tekken.json": b"{}", "tokenization_own.py": b"pass\n", "additional_chat_templates/tool.jinja": b"{{ y }}"}
    folder("spoken", FITTING, MODEL)
    os.mkdir("spoken/additional_chat_templates")
    for name, data in {**tokenizer, "modeling_own.py": b"pass\n", "configuration_own.py": b"pass\n", ".hidden.py": b""}.items():
        with open(f"spoken/{name}", "wb") as f:
            f.write(data)
    said = run("dcp-import", "spoken", "spoken-ckpt", err=True)
    check("spoken/configuration_own.py and others: the model's own code is not stored" in said and said.count("dcp-import:") == 1, said)
    run("dcp-export", "spoken-ckpt", "spoken-back")
    for name, data in tokenizer.items():
        check(content(f"spoken-back/{name}") == data, name)
    check(not os.path.exists("spoken-back/modeling_own.py"), "code was kept")
    run("dcp-export", "spoken-ckpt", "spoken-back", "--force")


def check_tied(head, told):
    """Import and export report `told` times that weights are tied and yet differ."""
    folder("tied", {**FITTING, "lm_head.weight": head}, TIED)
    said = run("dcp-import", "tied", "tied-ckpt", err=True)
    check(said.count("ties lm_head.weight to model.embed_tokens.weight, but they differ: transformers uses only the "
                     "latter, and dcp-train refuses such weights") == told and bool(said) == bool(told), said)
    said = run("dcp-export", "tied-ckpt", "tied-back", err=True)
    check(said.count("but they differ: both are written, and transformers uses only the latter") == told and
          bool(said) == bool(told), said)


def test_a_copy_of_tied_weights_is_not_reported():
    check_tied(FITTING["model.embed_tokens.weight"], 0)


def test_tied_weights_that_differ_are_reported():
    check_tied(FITTING["lm_head.weight"], 1)


# An index may name the copy of tied weights: some versions of transformers list it, although they do not store
# it. Every other name must have a file.
ALONE = {n: t for n, t in FITTING.items() if n != "lm_head.weight"}
HEAD = "its index names tensor 'lm_head.weight', which no file holds"
GEMMA = {"model_type": "gemma"}


def check_index(config, said, status=0, tensors=ALONE, names=("lm_head.weight",)):
    """A folder whose index also has these names is accepted, or refused if status is 1, with the messages `said`."""
    folder("indexed", tensors, config, parts=2)
    with open("indexed/model.safetensors.index.json") as f:
        index = json.load(f)
    index["weight_map"].update({name: "model-00002-of-00002.safetensors" for name in names})
    with open("indexed/model.safetensors.index.json", "w") as f:
        json.dump(index, f)
    lines = messages("indexed", expect=status)
    check(len(lines) == len(said) + status and all(s in line for s, line in zip(said, lines)), lines)
    if status:
        check("--allow-mismatch imports" in lines[-1], lines)
        lines = run("dcp-import", "indexed", "indexed-ckpt", "--allow-mismatch", err=True)
        check(all(s in lines for s in said), lines)
    run("dcp-export", "indexed-ckpt", "indexed-back", "--allow-mismatch")
    check(st_read.read("indexed-back") == ALONE, "another model")


def test_an_index_may_name_a_tied_copy():
    check_index(TIED, [])


def test_an_index_may_name_a_tied_copy_as_a_wrapper_does():
    check_index(TIED, ["a wrapper's _orig_mod. is left out of the names of 11 tensors"],
                tensors={f"_orig_mod.{n}": t for n, t in ALONE.items()}, names=["_orig_mod.lm_head.weight"])


def test_an_index_may_not_name_a_missing_head_that_is_not_tied():
    check_index(MODEL, ["lm_head.weight [6,4] is missing", HEAD], status=1)


def test_an_unknown_model_may_tie_its_head():
    check_index(GEMMA, ['model_type "gemma"', f"{HEAD}: assumed to be tied to the embedding"])


def test_an_unknown_model_that_ties_nothing_needs_its_head():
    check_index({**GEMMA, "tie_word_embeddings": False}, ['model_type "gemma"', HEAD], status=1)


def test_an_index_may_not_name_another_tensor():
    check_index(TIED, ["names tensor 'more', which no file holds"], status=1, names=["lm_head.weight", "more"])


# Parts of names that PyTorch's wrappers add are removed, also from moments' names.
F32 = {name: values("F32", shape) for name, (_, shape, _) in FITTING.items()}


def check_wrapped(case, change, wrappers, all_ranks=(0,)):
    folder(case, {change(n): t for n, t in F32.items()}, MODEL)
    write(f"{case}/optimizer.safetensors", {**{f"exp_avg.{change(n)}": t for n, t in F32.items()},
                                            **{f"step.{change(n)}": ONE for n in F32}})
    for ranks in all_ranks:
        said = run("dcp-import", case, f"{case}-ckpt{ranks}", "--with-optimizer", ranks=ranks, err=True)
        check(said.count(" is left out of the names of ") == len(wrappers) and
              all(f"{case}: a wrapper's {w} is left out" in said for w in wrappers), said)
        found = stored(f"{case}-ckpt{ranks}/{STATE}")
        check({n.removeprefix("/model/"): data for n, (_, data) in found.items() if n.startswith("/model/")} ==
              {n: data for n, (_, _, data) in F32.items()}, f"{case}: other names")
        check({n for n in found if n.startswith("/optimizer/")} ==
              {f"/optimizer/{slot}/{n}" for slot in ("exp_avg", "step") for n in F32}, f"{case}: other moments")


def test_what_torch_compile_adds_is_left_out():
    check_wrapped("compiled", lambda n: f"_orig_mod.{n}", ["_orig_mod."])


def test_what_ddp_adds_is_left_out():
    check_wrapped("ddp", lambda n: f"module._orig_mod.{n}", ["_orig_mod.", "module."])


def test_what_fsdp_adds_is_left_out():
    check_wrapped("fsdp", lambda n: f"_fsdp_wrapped_module.{n}".replace("mlp.", "_checkpoint_wrapped_module.mlp."),
                  ["_fsdp_wrapped_module.", "_checkpoint_wrapped_module."], all_ranks=(0, 2))


def test_what_peft_adds_is_left_out():
    check_wrapped("peft", lambda n: "base_model.model." + n.replace("q_proj.", "q_proj.base_layer."),
                  ["base_layer.", "base_model.model."])


def test_two_tensors_of_one_name_are_refused():
    folder("clash", {**F32, "_orig_mod.lm_head.weight": F32["lm_head.weight"]}, MODEL)
    said = run("dcp-import", "clash", "clash-ckpt", expect=1)
    check("would both be named lm_head.weight" in said and not os.path.exists("clash-ckpt"), said)


def check_config_text(text, status, said):
    folder("worded", FITTING)
    with open("worded/config.json", "w", encoding="utf-8") as f:
        f.write(text)
    found = run("dcp-import", "worded", "worded-ckpt", expect=status, err=True)
    check(said in found, found)


def test_a_byte_order_mark_is_skipped():
    check_config_text("\ufeff" + json.dumps(MODEL), 0, "")


def test_infinity_as_python_writes_it_is_refused():
    check_config_text('{"model_type": "llama",\n "x": [0.0, Infinity]}', 1,
                      "worded/config.json: Infinity, which Python writes, is not a number in JSON (line 2, column 13)")


@cases.shared
def small():
    """Makes a folder of one tensor ("other") and its checkpoint ("ckpt")."""
    folder("other", {"w": values("F32", (3,))})
    run("dcp-import", "other", "ckpt")


def test_only_force_replaces_a_step():
    cases.use(small)
    folder("one", {"w": values("F32", (3,), seed=1)})
    err = run("dcp-import", "one", "ckpt", expect=2)
    check("ckpt/step-00000000: already exists; --force replaces it" in err, err)
    run("dcp-import", "one", "ckpt", "--force", ranks=2)
    run("dcp-export", "ckpt", "back")
    check(content("back/model.safetensors") == content("one/model.safetensors"), "--force did not replace")


def test_only_force_imports_into_the_folder_itself():
    cases.use(small)
    err = run("dcp-import", "other", "other", expect=2)
    check("are the same folder" in err and os.listdir("other").count("step-00000000") == 0, err)
    run("dcp-import", "other", "other", "--force")
    check(os.path.exists(f"other/{STATE}"), "--force into the folder itself")


HOLD = """
import fcntl, os, struct, sys
fd = os.open("ckpt/.lock", os.O_RDWR)
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))  # F_OFD_SETLK
print("held", flush=True)
sys.stdin.read()
"""


def test_another_writer_keeps_the_store():
    cases.use(small)
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    cases.at_end(holder.communicate)
    check(holder.stdout.readline() == b"held\n", "no lock")
    err = run("dcp-import", "other", "ckpt", "--force", expect=2)
    check("is in use by another writer" in err, err)


def test_a_run_is_not_replaced_and_force_adds_step_0():
    cases.use(small)
    os.rename("ckpt/step-00000000", "ckpt/step-00000007")
    err = run("dcp-import", "other", "ckpt", expect=2)
    check("ckpt holds a run, up to step 7" in err and not os.path.exists("ckpt/step-00000000"), err)
    done = subprocess.run([f"{BIN}/dcp-import", "other", "ckpt", "--force"], capture_output=True, text=True)
    check(done.returncode == 0 and "set checkpoint.resume=ckpt/step-00000000" in done.stderr, done.stderr)
    check(os.readlink("ckpt/latest") == "step-00000007", os.readlink("ckpt/latest"))


def lose_lock(directory):
    """Makes the lock look as if its writer, here this process, were no longer known to run."""
    with open(f"{directory}/.lock") as f:
        words = f.read().split()
    with open("/proc/self/stat") as f:
        start = f.read().rpartition(")")[2].split()[19]
    words[1], words[2], words[7], words[8] = str(os.getpid()), start, "held", str(os.getpid())
    with open(f"{directory}/.lock", "w") as f:
        f.write(" ".join(words) + "\n")


def test_an_import_takes_a_store_over_if_told_so():
    cases.use(small)
    lose_lock("ckpt")
    err = run("dcp-import", "other", "ckpt", "--force", expect=2)
    check(f"process {os.getpid()} on host" in err and "take the store over" in err, err)
    run("dcp-import", "other", "ckpt", "--force", "--take-over")


def test_reshard_takes_a_store_over_if_told_so():
    cases.use(small)
    os.mkdir("elsewhere")
    shutil.copy("ckpt/.lock", "elsewhere")
    lose_lock("elsewhere")
    err = run("dcp-reshard", "ckpt", "elsewhere", "--layout", "global", expect=2)
    check(f"process {os.getpid()} on host" in err and not os.path.exists("elsewhere/step-00000000"), err)
    run("dcp-reshard", "ckpt", "elsewhere", "--layout", "global", "--take-over")


cases.main()
