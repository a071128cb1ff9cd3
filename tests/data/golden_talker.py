#!/usr/bin/env python3
"""Makes golden/NAME, beside it, for the talkers below: config.json and random weights in a published folder's form,
records.safetensors as examples/talker/to_records.py writes them, and what the model of talker_model.py beside that
computes of all records as one batch. Needs torch and safetensors.

    golden_talker.py [NAME ...]

golden.safetensors: `logits` of all positions of the first record, then of the second and so on; `predictor_logits` of
all frames likewise; `grad.<name>` of every parameter at the first step, before clipping, of frozen ones too;
`step5.<name>` of trained ones after five clipped AdamW steps; the same with `bf16.` before it, by autocast.
golden.json: of each step the two losses, their weighted sum and the norm of the trained parameters' gradients, in fp32
and under `bf16`; the globs of frozen parameters; clip and optimizer, whose decay applies to every trained parameter."""
import fnmatch, json, os, sys

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(f"{HERE}/../../examples/talker")
import talker_model  # noqa: E402

STEPS, CLIP = 5, 1.0
ADAMW = {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
TEXT = ["talker.model.text_embedding.*", "talker.text_projection.*"]  # fine-tuning does not change these
CODES = 12  # the size of a codebook; in the talker's table the special codes follow
SPECIAL = {f"codec_{name}_id": CODES + i
           for i, name in enumerate(("pad", "bos", "eos_token", "think", "nothink", "think_bos", "think_eos"))}
TEXT_IDS = 32  # and the three special ids of the text channel
TEXT_SPECIAL = {f"tts_{name}_token_id": TEXT_IDS + i for i, name in enumerate(("pad", "bos", "eos"))}


def decoder(hidden, inner, heads, kv, dim, layers, theta, groups):
    return {"hidden_size": hidden, "intermediate_size": inner, "num_attention_heads": heads, "num_key_value_heads": kv,
            "head_dim": dim, "num_hidden_layers": layers, "rope_theta": theta, "num_code_groups": groups,
            "hidden_act": "silu", "rms_norm_eps": 1e-6, "attention_bias": False, "attention_dropout": 0,
            "max_position_embeddings": 64}


def config(talker, predictor, text, rows):
    """Returns a configuration. rows: the number of rows of the talker's table."""
    return {"architectures": ["Qwen3TTSForConditionalGeneration"], "model_type": "qwen3_tts", **TEXT_SPECIAL,
            "im_start_token_id": 0, "im_end_token_id": 1, "tokenizer_type": "qwen3_tts_tokenizer_12hz",
            "tts_model_size": "tiny", "tts_model_type": "base",
            "speaker_encoder_config": {"enc_dim": talker["hidden_size"], "sample_rate": 24000},
            "talker_config": {**talker, **SPECIAL, "model_type": "qwen3_tts_talker", "vocab_size": rows,
                              "text_hidden_size": text, "text_vocab_size": TEXT_IDS + 3, "codec_language_id": {},
                              "spk_id": {}, "spk_is_dialect": {},
                              "rope_scaling": {"interleaved": True, "mrope_section": [talker["head_dim"] // 2, 0, 0],
                                               "rope_type": "default", "type": "default"},
                              "code_predictor_config": {**predictor, "vocab_size": CODES, "rope_scaling": None,
                                                        "model_type": "qwen3_tts_talker_code_predictor"}}}


# As the larger one is built, with a projection into the predictor, and as the smaller one, without; and one with all 16
# codebooks, of which only the talker is trained. (config, frozen, (text ids, frames) of each record)
MODELS = {
    "talker": (config(decoder(16, 12, 2, 1, 8, 2, 1e6, 4), decoder(8, 12, 2, 1, 4, 2, 1e6, 4), 8, 20), TEXT,
               ((6, 5), (9, 3), (4, 7))),
    "talker_small": (config(decoder(12, 16, 2, 2, 6, 2, 1e4, 3), decoder(12, 8, 4, 1, 4, 1, 1e4, 3), 16, 20), [],
                     ((5, 6), (8, 4), (4, 1), (7, 2))),
    "talker_16": (config(decoder(8, 12, 2, 2, 6, 1, 1e6, 16), decoder(8, 8, 2, 1, 4, 2, 1e6, 16), 8, 20),
                  [*TEXT, "talker.code_predictor.*"], ((7, 4), (4, 6))),
}


def records_of(model, sizes):
    """Returns random records, of two voices if there are more than two records."""
    c = model.config["talker_config"]
    voices = torch.randn(1 + (len(sizes) > 2), c["hidden_size"])
    texts = [torch.randint(TEXT_IDS, (t,)) for t, _ in sizes]
    codes = [torch.randint(CODES, (n, c["num_code_groups"])) for _, n in sizes]
    starts = [torch.tensor([0, *column]).cumsum(0) for column in zip(*sizes)]
    return {"text_ids": torch.cat(texts).to(torch.uint32), "text_starts": starts[0],
            "codes": torch.cat(codes).to(torch.uint16), "frame_starts": starts[1], "speakers": voices,
            "speaker_ids": (torch.arange(len(sizes)) % len(voices)).to(torch.uint32)}


def is_frozen(name, frozen):
    return any(fnmatch.fnmatchcase(name, glob) for glob in frozen)


def train(folder, frozen, narrow):
    """Returns tensors and numbers of five steps from the folder's weights; narrow: products in bf16."""
    model = talker_model.read_folder(folder)
    records = list(talker_model.read_records(f"{folder}/records.safetensors"))
    trained = {n: p for n, p in model.named_parameters() if not is_frozen(n, frozen)}
    optimizer = torch.optim.AdamW(trained.values(), **ADAMW)
    tensors, numbers = {}, {"losses": [], "talker_losses": [], "predictor_losses": [], "grad_norms": []}
    for step in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            talker, predictor, logits, residual = model.losses(records)
        loss = talker_model.total(talker, predictor)
        model.zero_grad()
        loss.backward()
        if step == 0:
            tensors |= {"logits": logits, "predictor_logits": residual}
            tensors |= {f"grad.{n}": p.grad.clone() for n, p in model.named_parameters()}
        norm = torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)
        for name, value in zip(numbers, (loss, talker, predictor, norm)):
            numbers[name].append(float(value.detach()))
        optimizer.step()
    tensors |= {f"step5.{n}": p for n, p in trained.items()}
    return {n: t.detach().float().contiguous() for n, t in tensors.items()}, numbers


def make(name, config, frozen, sizes):
    torch.manual_seed(sum(name.encode()))
    folder = f"{HERE}/golden/{name}"
    model = talker_model.Model(config)
    with torch.no_grad():  # norms and biases as after some training, everything else large enough to make losses differ
        for n, p in model.named_parameters():
            p *= float(p.ndim == 1)
            p += (0.1 if p.ndim == 1 else 0.6 if "embedding" in n else p.shape[1] ** -0.5) * torch.randn_like(p)
    talker_model.write_folder(model, folder)
    save_file(records_of(model, sizes), f"{folder}/records.safetensors")
    tensors, numbers = train(folder, frozen, False)
    narrow_tensors, narrow_numbers = train(folder, frozen, True)
    save_file(tensors | {f"bf16.{n}": t for n, t in narrow_tensors.items()}, f"{folder}/golden.safetensors")
    with open(f"{folder}/golden.json", "w") as f:
        json.dump({**numbers, "bf16": narrow_numbers, "frozen": frozen, "clip": CLIP,
                   "optimizer": {"type": "AdamW", **ADAMW}, "torch": torch.__version__.split("+")[0]}, f, indent=1)
        f.write("\n")
    print(name, numbers, narrow_numbers)


if __name__ == "__main__":
    for name in sys.argv[1:] or MODELS:
        make(name, *MODELS[name])
