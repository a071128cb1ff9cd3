#!/usr/bin/env python3
"""Makes a small random talker, using only numpy: a folder like the published ones, with a stand-in codec whose
codebooks are learned from recordings. Also makes rows for to_records.py, one line per recording.

    small_talker.py CONFIG FOLDER ROWS.jsonl RECORDINGS

CONFIG is a configuration of dcp-train, whose "model" is the talker's; RECORDINGS a folder of NAME.wav. The text of each
recording is in NAME.txt beside it; without that file, the text is the recording's name. No two texts may be equal. The
first recording is the reference voice of all rows."""
from __future__ import annotations

import glob
import json
import os
import sys
from typing import Any, Iterator

import numpy as np

sys.path.append(os.path.dirname(os.path.abspath(__file__)))
import stand_in  # noqa: E402
from stand_in import fail, record_files  # noqa: E402
from to_records import AROUND, HEADER  # noqa: E402

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def linear(name: str, inner: int, outer: int) -> Shapes:
    yield f"{name}.weight", (outer, inner)
    yield f"{name}.bias", (outer,)


def decoder(name: str, c: dict[str, Any]) -> Shapes:
    hidden, inner, dim = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    for i in range(c["num_hidden_layers"]):
        for part, shape in {
                "self_attn.q_proj": (q, hidden), "self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden),
                "self_attn.o_proj": (hidden, q), "self_attn.q_norm": (dim,), "self_attn.k_norm": (dim,),
                "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
                "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,)}.items():
            yield f"{name}.layers.{i}.{part}.weight", shape
    yield f"{name}.norm.weight", (hidden,)


def parameters(c: dict[str, Any]) -> Shapes:
    """Names and shapes of the tensors that "talker_config" describes."""
    p, hidden, text = c["code_predictor_config"], c["hidden_size"], c["text_hidden_size"]
    yield from decoder("talker.model", c)
    yield "talker.model.codec_embedding.weight", (c["vocab_size"], hidden)
    yield "talker.model.text_embedding.weight", (c["text_vocab_size"], text)
    yield from linear("talker.text_projection.linear_fc1", text, text)
    yield from linear("talker.text_projection.linear_fc2", text, hidden)
    yield "talker.codec_head.weight", (c["vocab_size"], hidden)
    yield from decoder("talker.code_predictor.model", p)
    for i in range(c["num_code_groups"] - 1):
        yield f"talker.code_predictor.model.codec_embedding.{i}.weight", (p["vocab_size"], hidden)
        yield f"talker.code_predictor.lm_head.{i}.weight", (p["vocab_size"], p["hidden_size"])
    if p["hidden_size"] != hidden:
        yield from linear("talker.code_predictor.small_to_mtp_projection", hidden, p["hidden_size"])


def random_of(name: str, shape: tuple[int, ...], generator: Any) -> Any:
    """Norms are 1, biases 0; matrices preserve the size of values."""
    if len(shape) == 1:
        return np.full(shape, "norm" in name, "<f4")
    size = 0.5 if "embedding" in name else shape[1] ** -0.5
    return (size * generator.standard_normal(shape)).astype("<f4")


def write_folder(folder: str, config: dict[str, Any], books: Any) -> None:
    generator = np.random.default_rng(1)
    os.makedirs(os.path.join(folder, "speech_tokenizer"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    tensors = [(name, "F32", random_of(name, shape, generator)) for name, shape in parameters(config["talker_config"])]
    record_files.write_safetensors(os.path.join(folder, "model.safetensors"), tensors, {"format": "pt"})
    np.save(os.path.join(folder, stand_in.CODEBOOKS), books)
    count = sum(tensor.size for _, _, tensor in tensors)
    print(f"{folder}: a talker of {count} random parameters, and a codec of {len(books)} codebooks")


def said(path: str) -> str:
    """The text of a recording."""
    stem = os.path.splitext(path)[0]
    if not os.path.isfile(f"{stem}.txt"):
        text = os.path.basename(stem).replace("_", " ")
        print(f"{os.path.basename(path)} has no {os.path.basename(stem)}.txt: its name is its text, {text}")
        return text
    try:
        with open(f"{stem}.txt", encoding="utf-8-sig") as file:
            text = " ".join(file.read().split())
    except UnicodeDecodeError:
        fail(f"{stem}.txt is not UTF-8: save it as UTF-8")
    if not text:
        fail(f"{stem}.txt is empty: write into it what {os.path.basename(path)} says, or remove it")
    return text


def check_texts(paths: list[str], texts: list[str]) -> None:
    of: dict[str, str] = {}
    for path, text in zip(paths, texts):
        if text in of:
            fail(f"{of[text]} and {os.path.basename(path)} say the same, and the likeliest codes can be those of one "
                 "alone: leave one out")
        of[text] = path


def check_room(path: str, text: str, positions: int) -> None:
    frame = stand_in.STEP * stand_in.STEPS
    sound, room = len(stand_in.samples(path)), positions - AROUND - HEADER - len(text.encode())
    if sound > room * frame:
        fail(f"{path} is {sound / stand_in.RATE:.2f} s long; beside its text the model has room for "
             f"{max(0, room) * frame / stand_in.RATE:.2f} s: cut it into sentences, each with its text")


def make(config: str, folder: str, rows: str, recordings: str) -> None:
    paths = sorted(glob.glob(os.path.join(glob.escape(recordings), "*.[wW][aA][vV]")))
    if not paths:
        fail(f"{recordings} holds no recording *.wav")
    with open(config, encoding="utf-8") as file:
        model = json.load(file)["model"]
    talker = model["talker_config"]
    texts = [said(path) for path in paths]
    check_texts(paths, texts)
    for path, text in zip(paths, texts):
        check_room(path, text, talker["max_position_embeddings"])
    books = stand_in.learned(paths, talker["num_code_groups"], talker["code_predictor_config"]["vocab_size"])
    write_folder(folder, model, books)
    with open(rows, "w", encoding="utf-8") as file:
        for path, text in zip(paths, texts):
            print(json.dumps({"audio": path, "text": text, "ref_audio": paths[0]}), file=file)


def main() -> None:
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    record_files.run("small_talker.py", lambda: make(*sys.argv[1:]))


if __name__ == "__main__":
    main()
