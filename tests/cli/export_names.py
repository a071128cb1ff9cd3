#!/usr/bin/env python3
"""An export contains the tensors that its own config.json requires. Parts of names that module wrappers add are
removed, --rename replaces parts of names, and tensors that are missing, surplus or of another shape are refused
by name."""
import json, os, shutil, subprocess
from hf_folder import cases, check, datasets, run, values
import st_read

MODEL = {"model_type": "llama", "vocab_size": 6, "hidden_size": 4, "intermediate_size": 3, "num_hidden_layers": 2,
         "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 16, "tie_word_embeddings": False}


def fitting_tensors():
    shapes = {"model.embed_tokens.weight": (6, 4), "model.norm.weight": (4,), "lm_head.weight": (6, 4)}
    for layer in range(2):
        for name, shape in {"input_layernorm": (4,), "post_attention_layernorm": (4,), "self_attn.q_proj": (4, 4),
                            "self_attn.k_proj": (2, 4), "self_attn.v_proj": (2, 4), "self_attn.o_proj": (4, 4),
                            "mlp.gate_proj": (3, 4), "mlp.up_proj": (3, 4), "mlp.down_proj": (4, 3)}.items():
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    return {name: values("F32", shape, seed=name) for name, shape in shapes.items()}


FITTING = fitting_tensors()
PLAIN = {"module.a": values("F32", (2,)), "module._orig_mod.b": values("F32", (3,))}


def checkpoint(name, tensors, config=MODEL, moments=()):
    """Makes a step with these tensors, and for those named in `moments` also AdamW's first moment."""
    os.makedirs(f"{name}-data")
    lines = []
    for i, (path, (dtype, shape, data)) in enumerate(
            [(f"/model/{n}", t) for n, t in tensors.items()] +
            [(f"/optimizer/exp_avg/{n}", tensors[n]) for n in moments]):
        with open(f"{name}-data/{i}", "wb") as f:
            f.write(data)
        lines.append(f"{path} {dtype} {','.join(map(str, shape))} {name}-data/{i}\n")
    meta = {"model": config} if config else {}
    subprocess.run([os.environ["MAKE_STATE"], name, "1", "global", json.dumps(meta)], input="".join(lines), text=True,
                   check=True)
    return name


def renamed(change):
    """Returns the fitting tensors with names that `change` makes."""
    return {change(name): tensor for name, tensor in FITTING.items()}


def inside(name):
    """Names as FSDP and activation checkpointing change them for layers, and torch.compile for the model."""
    return "_orig_mod." + name.replace("model.layers.0.", "model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.")


def check_left_out(case, change, said, all_ranks=(0,)):
    """The names that wrappers have changed are exported as the model's names, and the messages `said` are printed."""
    tensors = renamed(change)
    checkpoint(case, tensors, moments=tensors)
    for ranks in all_ranks:
        lines = run("dcp-export", case, f"{case}-hf{ranks}", "--with-optimizer", ranks=ranks, err=True).splitlines()
        lines = [line for line in lines if line.startswith("dcp-export: ")]
        check(len(lines) == len(said) and all(text in line for text, line in zip(said, lines)), f"{case}: {lines}")
        check(st_read.read(f"{case}-hf{ranks}") == FITTING, f"{case}: another model")
        found = st_read.read(f"{case}-hf{ranks}/optimizer.safetensors")
        check(found == {f"exp_avg.{name}": tensor for name, tensor in FITTING.items()}, f"{case}: {sorted(found)}")


def test_names_that_fit_stay():
    check_left_out("fits", lambda n: n, [])


def test_what_torch_compile_adds_is_left_out():
    said = ["a wrapper's _orig_mod. is left out of the names of 21 tensors"]
    check_left_out("compiled", lambda n: f"_orig_mod.{n}", said)
    run("dcp-export", "compiled", "compiled.h5", "--format", "hdf5")
    check(set(datasets("compiled.h5")) == set(FITTING), "HDF5")


def test_what_ddp_adds_is_left_out():
    check_left_out("ddp", lambda n: f"module.{n}", ["module. is left out of the names of 21"])


def test_what_ddp_and_torch_compile_add_is_left_out():
    check_left_out("both", lambda n: f"module._orig_mod.{n}", ["_orig_mod. is left", "module. is left"], all_ranks=(0, 2))


def test_what_fsdp_adds_is_left_out():
    check_left_out("fsdp", inside, ["_orig_mod. is left", "_fsdp_wrapped_module. is left out of the names of 9",
                                    "_checkpoint_wrapped_module. is left out of the names of 9"])


def test_what_peft_adds_is_left_out():
    check_left_out("peft", lambda n: "base_model.model." + n.replace("q_proj.", "q_proj.base_layer."),
                   ["base_layer. is left out of the names of 2 ", "base_model.model. is left"])


def test_a_tied_copy_of_the_embedding_stays_out_under_its_wrapped_name():
    tied = {**FITTING, "lm_head.weight": FITTING["model.embed_tokens.weight"]}
    checkpoint("tied", {f"_orig_mod.{n}": t for n, t in tied.items()}, {**MODEL, "tie_word_embeddings": True})
    run("dcp-export", "tied", "tied-hf")
    check(set(st_read.read("tied-hf")) == set(FITTING) - {"lm_head.weight"}, "tied")


def test_without_a_configuration_names_stay():
    checkpoint("plain", PLAIN, config=None)
    run("dcp-export", "plain", "plain-hf")
    check(st_read.read("plain-hf") == PLAIN, "no configuration")
    for options in ([], ["--force"]):  # it is known to be an export, so this replaces it
        run("dcp-export", "plain", "plain.h5", "--format", "hdf5", *options)
        check(set(datasets("plain.h5")) == set(PLAIN), "no configuration, HDF5")


def test_force_replaces_exports_only():
    checkpoint("plain", PLAIN, config=None)
    shutil.copy("plain/step-00000001/state.h5", "other.h5")
    said = run("dcp-export", "plain", "other.h5", "--format", "hdf5", "--force", expect=2)
    check("other.h5: is not an earlier export to HDF5" in said, said)


def test_a_beginning_that_only_some_names_have_stays():
    checkpoint("foreign", {"module.a": PLAIN["module.a"], "b": values("F32", (3,))}, {"model_type": "bert"})
    said = run("dcp-export", "foreign", "foreign-hf")
    check("not compared with config.json, which dcp-train does not know: model_type \"bert\"" in said, said)
    check(sorted(st_read.read("foreign-hf")) == ["b", "module.a"], "some names")


def check_refused(case, tensors, said, all_ranks=(0,)):
    """The export is refused by name, also by --dry-run, and writes nothing; --allow-mismatch writes the tensors as
    stored."""
    checkpoint(case, tensors)
    for ranks in all_ranks:
        for form in "safetensors", "hdf5":
            found = run("dcp-export", case, f"{case}-hf", "--format", form, expect=2, ranks=ranks)
            check(all(text in found for text in (*said, "initialize missing ones at random", "--allow-mismatch")), f"{case}: {found}")
            check(not os.path.exists(f"{case}-hf"), f"{case}: was written")
            check(found.count("initialize missing ones at random") == 1, f"{case}: said by each rank")
    check(said[0] in run("dcp-export", case, "plan", "--dry-run", expect=2), f"{case}: --dry-run")
    found = run("dcp-export", case, f"{case}-hf", "--allow-mismatch", err=True)
    check(said[0] in found and st_read.read(f"{case}-hf") == tensors, f"{case}: {found}")


def test_a_missing_layer_is_refused():
    tensors = {n: t for n, t in FITTING.items() if not n.startswith("model.layers.1.")}
    said = ["model.layers.1.self_attn.q_proj.weight [4,4] is missing, but config.json requires it"]
    check_refused("layer", tensors, said, all_ranks=(0, 2))


def test_another_shape_is_refused():
    tensors = {**FITTING, "lm_head.weight": values("F32", (4, 6))}
    said = ["lm_head.weight is [4,6], but config.json requires [6,4]"]
    check_refused("narrow", tensors, said)


def test_adapters_are_refused():
    tensors = {**FITTING, "model.layers.0.self_attn.q_proj.lora_A.default.weight": values("F32", (1, 4))}
    said = ["q_proj.lora_A.default.weight [1,4] is surplus", "merge the adapters"]
    check_refused("adapters", tensors, said)


def test_an_unknown_beginning_is_refused():
    tensors = renamed(lambda n: f"net.{n}")
    said = ["net.lm_head.weight [6,4] is surplus", "--rename FROM=TO"]
    check_refused("lightning", tensors, said)


def test_rename_takes_a_beginning_away():
    checkpoint("lightning", renamed(lambda n: f"net.{n}"))
    run("dcp-export", "lightning", "renamed", "--rename", "net.=")
    check(st_read.read("renamed") == FITTING, "a beginning")


def test_rename_takes_several_texts_and_reaches_the_optimizer():
    checkpoint("other", renamed(lambda n: "trunk." + n.replace(".self_attn.", ".wrap.attn.")),
               moments=["trunk.lm_head.weight"])
    run("dcp-export", "other", "other-hf", "--with-optimizer", "--rename", "trunk.=,.wrap.attn.=.self_attn.", ranks=2)
    check(st_read.read("other-hf") == FITTING, "several, one of them within names")
    check(list(st_read.read("other-hf/optimizer.safetensors")) == ["exp_avg.lm_head.weight"], "the optimizer's names")


def test_wrong_renames_are_refused():
    checkpoint("lightning", renamed(lambda n: f"net.{n}"))
    for text, said in (("nett.=", "no tensor's name begins with 'nett.'"), (".x.=.", "no tensor's name contains '.x.'"),
                       ("net.", "'net.' is not FROM=TO"), ("=a", "'=a' is not FROM=TO"),
                       ("net.=,net.lm=a", "no tensor's name begins with 'net.lm'")):
        with cases.part(text):
            found = run("dcp-export", "lightning", "bad", "--rename", text, expect=2)
            check(said in found, f"{text}: {found}")
            check(not os.path.exists("bad"), "was written")


def test_two_tensors_of_one_name_are_refused():
    checkpoint("twice", {**FITTING, "_orig_mod.lm_head.weight": FITTING["lm_head.weight"]})
    found = run("dcp-export", "twice", "bad", expect=2)
    check("/model/_orig_mod.lm_head.weight" in found and "would both be named lm_head.weight" in found, found)
    check(not os.path.exists("bad"), "was written")


cases.main()
