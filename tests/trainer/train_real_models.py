#!/usr/bin/env python3
"""The config.json of Llama-3.2-1B, Qwen2.5-0.5B and Mistral-7B-v0.1 as published. --plan of the full size has the known
number of parameters. Models that are cut in depth, width and vocabulary only: an import in bf16 is exported byte for
byte, a run from it trains and exports under the same names, and its export is imported and exported byte for byte."""
import json, math, os, random, struct
from train_lib import cases, check, config, make_text, metrics, tool, train

LLAMA = {"architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
         "bos_token_id": 128000, "eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
         "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
         "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
         "pretraining_tp": 1, "rms_norm_eps": 1e-05,
         "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                          "original_max_position_embeddings": 8192, "rope_type": "llama3"},
         "rope_theta": 500000.0, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
         "transformers_version": "4.45.0.dev0", "use_cache": True, "vocab_size": 128256}
QWEN = {"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
        "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24, "model_type": "qwen2",
        "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1", "use_cache": True, "use_mrope": False, "use_sliding_window": False,
        "vocab_size": 151936}
MISTRAL = {"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
           "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
           "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
           "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
           "sliding_window": 4096, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
           "transformers_version": "4.34.0.dev0", "use_cache": True, "vocab_size": 32000}
BY = {"hidden_size": 8, "head_dim": 8, "intermediate_size": 32, "num_hidden_layers": 8}  # the number of heads stays
MODELS = {"llama": (LLAMA, 1235814400), "qwen": (QWEN, 494032768), "mistral": (MISTRAL, 7241732096)}

# The upper byte of a bf16, from a random byte: values of 1 to 2 or half of that, and 0.008 to 0.03, with both
# signs.
NEAR_1, SMALL = bytes([0x3F] * 256), bytes(0x3C if i % 2 else 0xBC for i in range(256))


def shapes(c):
    """Returns the shapes of the tensors of a decoder, in the order of their names."""
    hidden, inner, heads, kv = (c[k] for k in ("hidden_size", "intermediate_size", "num_attention_heads",
                                               "num_key_value_heads"))
    dim = c.get("head_dim", hidden // heads)
    all_of = {"model.embed_tokens.weight": [c["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not c["tie_word_embeddings"]:
        all_of["lm_head.weight"] = [c["vocab_size"], hidden]
    block = {"input_layernorm.weight": [hidden], "post_attention_layernorm.weight": [hidden],
             "self_attn.q_proj.weight": [heads * dim, hidden], "self_attn.k_proj.weight": [kv * dim, hidden],
             "self_attn.v_proj.weight": [kv * dim, hidden], "self_attn.o_proj.weight": [hidden, heads * dim],
             "mlp.gate_proj.weight": [inner, hidden], "mlp.up_proj.weight": [inner, hidden],
             "mlp.down_proj.weight": [hidden, inner]}
    if c["model_type"] == "qwen2":
        block |= {"self_attn.q_proj.bias": [heads * dim], "self_attn.k_proj.bias": [kv * dim],
                  "self_attn.v_proj.bias": [kv * dim]}
    for layer in range(c["num_hidden_layers"]):
        all_of |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    return dict(sorted(all_of.items()))


def write_folder(name, c):
    """Writes weights as transformers does: bf16, sorted by name, in one file."""
    os.mkdir(name)
    with open(f"{name}/config.json", "w") as f:
        json.dump(c, f, indent=2)
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    rng = random.Random(name)
    for tensor, shape in shapes(c).items():
        start = len(data)
        data += rng.randbytes(2 * math.prod(shape))
        data[start + 1::2] = data[start + 1::2].translate(NEAR_1 if "norm" in tensor else SMALL)
        header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, len(data)]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{name}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def names(folder):
    data = content(f"{folder}/model.safetensors")
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    return {name: t["shape"] for name, t in header.items() if name != "__metadata__"}


def test_plans_of_the_full_size_have_all_parameters():
    make_text()
    for name, (full, parameters) in MODELS.items():
        with cases.part(f"{name}"):
            os.mkdir(f"{name}.hub")
            with open(f"{name}.hub/config.json", "w") as f:
                json.dump(full, f)
            c = config(model=f"{name}.hub", data={"path": "nowhere", "sequence_length": 8192})
            text = tool("dcp-train", c, "--plan", "--ranks", 64)
            check(int(text.split(" parameters")[0]) == parameters, f"{name}: {text.splitlines()[0]}")
            check(sum(map(math.prod, shapes(full).values())) == parameters, f"{name}: other shapes")


def test_cut_models_train_and_are_exported_byte_for_byte():
    make_text()
    for name, (full, _) in MODELS.items():
        with cases.part(name):
            cut = {key: value // BY.get(key, 1) if key in BY else value for key,
                   value in full.items()} | {"vocab_size": 300}
            write_folder(name, cut)
            tool("dcp-import", name, f"{name}.ckpt")
            tool("dcp-export", f"{name}.ckpt", f"{name}.out")
            check(content(f"{name}.out/model.safetensors") == content(f"{name}/model.safetensors"),
                  f"{name}: other bytes")
            check(json.load(open(f"{name}.out/config.json")) == {
                k: v for k, v in cut.items() if k != "transformers_version"}, f"{name}: another config.json")

            c = config(model=name, checkpoint={"dir": f"{name}.ckpt"}, metrics=f"{name}.jsonl", max_steps=4,
                       scheduler={"type": "constant", "params": {}}, optimizer={"params": {"lr": 1e-3}})
            _, err = train(2, c)
            check("continuing from step 0" in err and "warning" not in err, err)
            told = [line["loss"] for line in metrics(f"{name}.jsonl")]
            check(told[-1] < told[0], f"{name}: nothing learned: {told}")
            tool("dcp-export", f"{name}.ckpt", f"{name}.trained")
            check(names(f"{name}.trained") == names(name), f"{name}: other tensors")
            exported = json.load(open(f"{name}.trained/config.json"))
            check(exported["architectures"] == full["architectures"] and exported["torch_dtype"] == "float32", exported)
            tool("dcp-import", f"{name}.trained", f"{name}.again")
            tool("dcp-export", f"{name}.again", f"{name}.same")
            for file in "model.safetensors", "config.json":
                check(content(f"{name}.same/{file}") == content(f"{name}.trained/{file}"), f"{name}: another {file}")


cases.main()
