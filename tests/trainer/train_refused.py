#!/usr/bin/env python3
"""A model that needs what is not supported is refused in one line with all reasons. The overrides at the end of the line,
pasted as they are, make it one that trains: GPT-2 as published, among others."""
import json, os, shlex
from train_lib import cases, check, config, make_text, messages, MODEL, tool, train

GPT2 = {"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
        "bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024, "n_embd": 768, "n_head": 12, "n_layer": 12,
        "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None, "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True, "summary_type": "cls_index", "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}}, "vocab_size": 50257}
SMALL_GPT2 = {**GPT2, "n_embd": 48, "n_head": 4, "n_layer": 2, "n_positions": 128, "vocab_size": 257}
ADD = "; to train without these features, add: "


def refused(c, *args):
    _, err = train(1, c, *args, expect=2)
    check(len(messages(err)) == 1, err)
    return messages(err)[0]


def mended(c, reasons, *args):
    """Checks that one line has all reasons, and that the model is accepted with its overrides, which are returned."""
    line = refused(c, *args)
    check(all(reason in line for reason in reasons) and ADD in line, f"{reasons}: {line}")
    overrides = shlex.split(line.split(ADD)[1])
    train(1, c, *args, *overrides)
    return overrides


reasons = [f"{key} 0.1: dropout is not supported" for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")]
wanted = ["model.resid_pdrop=0", "model.embd_pdrop=0", "model.attn_pdrop=0"]


def test_gpt2_as_published_is_mended():
    make_text()
    os.mkdir("hub")
    with open("hub/config.json", "w") as f:
        json.dump(GPT2, f)
    for model in "hub", "hub/config.json", GPT2:
        check(mended(config(model=model), reasons, "--plan") == wanted, f"{model}: other overrides")


def test_the_mended_model_trains_and_is_exported_so():
    make_text()
    c = config(model=SMALL_GPT2, max_steps=1, train_batch_size=2, train_micro_batch_size_per_gpu=1,
               scheduler={"type": "constant", "params": {}}, optimizer={"params": {"lr": 3e-3}})
    mended(c, reasons)
    tool("dcp-export", "ckpt", "export")
    exported = json.load(open("export/config.json"))
    check([exported[key] for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")] == [0, 0, 0], exported)


GEMMA2 = {"architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
          "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "head_dim": 256,
          "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304,
          "intermediate_size": 9216, "max_position_embeddings": 8192, "model_type": "gemma2",
          "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4, "query_pre_attn_scalar": 256,
          "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000}
MIXTRAL = {"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
           "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
           "num_local_experts": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None,
           "vocab_size": 32000}


def test_overrides_of_each_kind():
    make_text()
    odd = {**MODEL, "model_type": "llama", "attention_dropout": 0.1, "hidden_act": "quick_gelu", "sliding_window": 64,
           "partial_rotary_factor": 0.5, "rope_scaling": {"type": "dynamic", "factor": 2.0},
           "layer_types": ["chunked_attention"] * 3}
    mended(config(model=odd), ["attention_dropout 0.1", 'hidden_act "quick_gelu"', "sliding_window 64",
                               "rope_scaling.rope_"
           'type "dynamic"', "partial_rotary_factor 0.5"], "--plan")
    extra = {"num_experts": 4, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
             "quantization_config": {"bits": 4}}
    mended(config(model={**MODEL, **extra}), ["num_experts 4: experts", "attn_logit_softcapping 50: caps on scores",
                                             "final_logit_softcapping 30: caps on logits", "quantized weights"],
           "--plan")
    mended(config(model={"model_type": "mlp", "sizes": [4, 2], "bias": False}), ["bias: an mlp has no such key"],
           "--plan")


def test_a_model_that_cannot_be_mended_has_no_overrides():
    make_text()
    for model, reasons in (
            (GEMMA2, ('model_type "gemma2" is not supported (gpt2, llama', "attn_logit_softcapping 50: caps on scores",
                      "final_logit_softcapping 30: caps on logits")),
            (MIXTRAL, ('model_type "mixtral" is not supported (gpt2, llama', "num_local_experts 8: experts"))):
        with cases.part(str(model["model_type"])):
            line = refused(config(model=model), "--plan")
            check(all(reason in line for reason in reasons) and ADD not in line, line)


cases.main()
