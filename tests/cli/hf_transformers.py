#!/usr/bin/env python3
"""Models as transformers saves them are imported and exported: every tensor has equal bytes according to safetensors'
own reader, and transformers loads the export without a warning and computes the same logits. Skipped if the Python
environment PEERS_VENV (as tests/bench/peers.sh makes it) has no transformers.

hf_transformers.py --big [GB]: instead, a random Qwen3 model of 0.3 GB, or about GB, in bf16 and several files; prints
times and peak memory of import and export, with one process and with two ranks."""
import functools, glob, os, shutil, subprocess, sys
from hf_peers import Heard, load, tensors, torch, transformers  # may start again in another Python, so it comes first
from hf_folder import BIN, MPIRUN, cases, check, content, run
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, ViTConfig, ViTForImageClassification)

TEXT = dict(vocab_size=99, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4)
MODELS = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(vocab_size=99, n_positions=40, n_embd=24, n_layer=2, n_head=3)),
    "llama": (LlamaForCausalLM, LlamaConfig(**TEXT, num_key_value_heads=2, attention_bias=True)),
    "llama-tied": (LlamaForCausalLM, LlamaConfig(**TEXT, num_key_value_heads=1, tie_word_embeddings=True)),
    "mistral": (MistralForCausalLM, MistralConfig(**TEXT, num_key_value_heads=2, sliding_window=6)),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(**TEXT, num_key_value_heads=2, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 8192})),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(**TEXT, num_key_value_heads=2, head_dim=24)),
    "qwen3-tied": (Qwen3ForCausalLM, Qwen3Config(**TEXT, num_key_value_heads=4, head_dim=8,
                                                 tie_word_embeddings=True)),
    "vit": (ViTForImageClassification, ViTConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                                                 intermediate_size=40, image_size=12, patch_size=4,
                                                 num_labels=5)),
}


def logits(model, family):
    with torch.no_grad():
        if family == "vit":
            image = torch.linspace(-1, 1, 2 * 3 * 12 * 12).reshape(2, 3, 12, 12)
            return model.eval()(pixel_values=image.to(model.dtype)).logits
        return model.eval()(input_ids=torch.arange(30).reshape(2, 15)).logits


@functools.cache
def heard():
    return Heard()


def round_trip(name, dtype):
    cls, config = MODELS[name]
    path = f"{name}-{str(dtype).split('.')[1]}"
    torch.manual_seed(1)
    model = cls(config).to(dtype)
    model.save_pretrained(path, max_shard_size="20KB" if dtype == torch.bfloat16 else "5GB")
    run("dcp-import", path, f"{path}.ckpt", ranks=2 if dtype == torch.float16 else 0)
    run("dcp-export", f"{path}.ckpt", f"{path}.out")
    run("dcp-export", f"{path}.ckpt", f"{path}.parts", "--max-shard-size", "10KB", ranks=3)
    before = tensors(path)
    want = logits(load(cls, path, heard()), name)
    for out in "out", "parts":
        check(tensors(f"{path}.{out}") == before, f"{path}.{out}: other bytes")
        loaded = load(cls, f"{path}.{out}", heard())
        check(loaded.dtype == dtype, f"{path}.{out}: {loaded.dtype}")
        check(torch.equal(logits(loaded, name), want), f"{path}.{out}: other logits")
    if dtype == torch.float32:  # in fp32, the export is byte for byte transformers' file
        check(content(f"{path}.out/model.safetensors") == content(f"{path}/model.safetensors"), path)
    if dtype != torch.bfloat16:
        run("dcp-export", f"{path}.ckpt", f"{path}.bf16", "--dtype", "bf16")
        rounded = load(cls, f"{path}.bf16", heard())
        check(rounded.dtype == torch.bfloat16, rounded.dtype)
        for key, value in model.to(torch.bfloat16).state_dict().items():
            check(torch.equal(rounded.state_dict()[key], value), f"{path}: {key} rounds to something else")


def round_trips(name):
    for dtype in torch.float32, torch.bfloat16, torch.float16:
        with cases.part(str(dtype)):
            round_trip(name, dtype)


def test_gpt2_there_and_back():
    round_trips("gpt2")


def test_llama_there_and_back():
    round_trips("llama")


def test_llama_with_tied_embeddings_there_and_back():
    round_trips("llama-tied")


def test_mistral_there_and_back():
    round_trips("mistral")


def test_qwen2_there_and_back():
    round_trips("qwen2")


def test_qwen3_there_and_back():
    round_trips("qwen3")


def test_qwen3_with_tied_embeddings_there_and_back():
    round_trips("qwen3-tied")


def test_vit_there_and_back():
    round_trips("vit")


def test_a_tokenizer_comes_back_whole():
    from tokenizers import Tokenizer, models
    GPT2LMHeadModel(MODELS["gpt2"][1]).save_pretrained("spoken")
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, "?"))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
    made.save_pretrained("spoken")
    run("dcp-import", "spoken", "tokenizer.ckpt")
    run("dcp-export", "tokenizer.ckpt", "tokenizer.out")
    back = transformers.AutoTokenizer.from_pretrained("tokenizer.out")
    check(back.get_vocab() == made.get_vocab(), back.get_vocab())


# A process's peak memory includes the time before its exec, so a small process starts it.
WATCH = """
import os, sys, time
start, pid = time.monotonic(), os.spawnv(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(status, time.monotonic() - start, usage.ru_maxrss / 1024, file=sys.stderr)
"""


def timed(what, bytes, *command):
    done = subprocess.run([sys.executable, "-c", WATCH, *command], capture_output=True, text=True)
    status, seconds, peak = done.stderr.split("\n")[-2].split()
    check(status == "0", done.stderr)
    print(f"{what}: {float(seconds):.2f} s, {bytes / float(seconds) / 1e9:.2f} GB/s, "
          f"peak {float(peak):.0f} MiB", flush=True)


def big(gigabytes):
    config = Qwen3Config(vocab_size=32000, hidden_size=1024, intermediate_size=3072, head_dim=128,
                         num_hidden_layers=max(1, round((gigabytes * 1e9 - 65e6) / 31.5e6)),
                         num_attention_heads=16, num_key_value_heads=8, tie_word_embeddings=True)
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config)
    model = model.to(torch.bfloat16).to_empty(device="cpu")
    for p in model.parameters():
        p.data.normal_(0, 0.02)
    model.save_pretrained("big", max_shard_size="100MB" if gigabytes < 2 else "1GB")
    n = sum(p.numel() for p in model.parameters())
    print(f"{n / 1e6:.0f} million parameters in {len(glob.glob('big/*.safetensors'))} files")
    del model
    mpirun = [shutil.which(MPIRUN[0]), *MPIRUN[1:], "-n", "2"]
    for what, before in ("alone", []), ("2 ranks", mpirun):
        for args in ("import", "big", "big.ckpt", "--force"), ("export", "big.ckpt", f"big.{len(before)}"), (
                "export", "big.ckpt", f"big.f32.{len(before)}", "--dtype", "f32"):
            os.sync()
            timed(f"{' '.join([args[0], *args[3:]])}, {what}", 2 * n, *before, f"{BIN}/dcp-{args[0]}",
                  *args[1:])
    before = tensors("big")
    check(all(tensors(f"big.{k}") == before for k in (0, len(mpirun))), "other bytes")


if sys.argv[1:2] == ["--big"]:
    big(float(sys.argv[2]) if len(sys.argv) > 2 else 0.3)
    sys.exit(0)
cases.main()
