#!/usr/bin/env python3
"""Makes the tokenizers of this folder, which are like those of GPT-2, Llama 3 and Qwen but small, and the ids that the
`tokenizers` package (0.23) gives for sample.txt."""
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

os.chdir(os.path.dirname(os.path.abspath(__file__)))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def split_by(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {"gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False), "llama3": split_by(LLAMA3),
         "qwen": split_by(QWEN)}
with open("sample.txt", encoding="utf-8", newline="") as f:
    sample = f.read()

for name, pre in KINDS.items():
    tokenizer = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    if name == "qwen":
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|end|>"], show_progress=False)
    tokenizer.train_from_iterator([sample], trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    tokenizer.save(f"{name}.json", pretty=False)
    ids = tokenizer.encode(sample, add_special_tokens=False).ids
    with open(f"{name}.ids", "w") as f:
        json.dump(ids, f)
