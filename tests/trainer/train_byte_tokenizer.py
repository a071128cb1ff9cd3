#!/usr/bin/env python3
"""A model that was trained on bytes is exported with a tokenizer whose tokens are the bytes; a model with another
vocabulary is not, and a tokenizer that came with the model stays as it was."""
import json, os
from train_lib import cases, check, config, make_text, MODEL, SOURCE, tool, train

HERE = {"tokenizer.json", "tokenizer_config.json"}


def files_of(vocabulary, name):
    config(model={**MODEL, "vocab_size": vocabulary}, max_steps=1, data={"sequence_length": 32},
           checkpoint={"dir": name}, metrics=None)
    train(1, "config.json")
    tool("dcp-export", name, f"{name}-export")
    return set(os.listdir(f"{name}-export"))


@cases.shared
def bytes_model():
    make_text()
    check(HERE <= files_of(256, "bytes"), "no tokenizer")


def test_another_vocabulary_gets_no_tokenizer():
    make_text()
    check(not HERE & files_of(259, "more"), "a tokenizer of bytes for other tokens")


def test_the_tokens_are_the_bytes():
    cases.use(bytes_model)
    with open("bytes-export/tokenizer.json", encoding="utf-8") as f:
        tokenizer = json.load(f)
    tokens = tokenizer["model"]["vocab"]
    check(sorted(tokens.values()) == list(range(256)) and all(len(name) == 1 for name in tokens), f"{tokens}")
    check(all(tokens[chr(b)] == b for b in b"!~azAZ09") and tokens["\u0120"] == ord(" ") and tokens["\u010a"] == ord("\n")
          and tokens["\u00ff"] == 255 and tokens["\u0143"] == 0xad, f"{tokens}")
    check(tokenizer["model"]["type"] == "BPE" and tokenizer["model"]["merges"] == [], f"{tokenizer['model']}")
    for part in "pre_tokenizer", "decoder":
        check(tokenizer[part]["type"] == "ByteLevel" and not tokenizer[part]["add_prefix_space"]
              and not tokenizer[part]["use_regex"], f"{tokenizer[part]}")


def test_tokenize_text_reads_it():
    cases.use(bytes_model)
    SAID = "Zwölf Boxkämpfer\r\n\tjagen  漢字 \x00\x1f\u2003.".encode()
    with open("said", "wb") as f:
        f.write(SAID)
    tool(f"{SOURCE}/examples/tokenize_text.py", "bytes-export", "said.bin", "said")
    with open("said.bin", "rb") as f:
        check(f.read() == b"".join(bytes((b, 0)) for b in SAID), "the ids are not the bytes")


def test_a_tokenizer_of_the_model_stays():
    cases.use(bytes_model)
    with open("bytes-export/tokenizer.json", "w") as f:
        f.write("mine")
    os.remove("bytes-export/tokenizer_config.json")
    tool("dcp-import", "bytes-export", "imported")
    config(model={**MODEL, "vocab_size": 256}, max_steps=1, data={"sequence_length": 32}, metrics=None,
           checkpoint={"dir": "imported", "resume": "auto"})
    train(1, "config.json")
    tool("dcp-export", "imported", "imported-export")
    check(open("imported-export/tokenizer.json").read() == "mine" and
          "tokenizer_config.json" not in os.listdir("imported-export"), "a tokenizer is replaced")


cases.main()
