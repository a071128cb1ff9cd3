#!/usr/bin/env python3
"""Makes token ids for dcp-train's data.type "tokens" from text, with a Hugging Face tokenizer.json with byte-level BPE
(GPT-2, Qwen, Llama 3 and similar). Needs only Python 3.9 or later. Converts some megabytes per minute on one core, so
divide large corpora by file among processes.

    tokenize_text.py tokenizer.json OUT.bin TEXT... [--end TOKEN]
"""
import argparse
import array
import functools
import json
import os
import re
import sys
import unicodedata


def fail(why, status=2):
    print(f"tokenize_text.py: {why}", file=sys.stderr)
    sys.exit(status)


@functools.lru_cache(None)
def category(name):
    """The characters of a Unicode category (L, Lu, N ...), as the inside of a [...]."""
    ranges, start = [], None
    for c in range(sys.maxunicode + 2):
        inside = c <= sys.maxunicode and unicodedata.category(chr(c)).startswith(name)
        if inside and start is None:
            start = c
        elif not inside and start is not None:
            ranges.append(f"\\U{start:08x}-\\U{c - 1:08x}")
            start = None
    return "".join(ranges)


# Unlike Python's \s, the \s of tokenizers does not include the separators 1c to 1f.
SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def translate(pattern):
    """Converts a pattern of tokenizers to one of Python, which lacks \\p{...}."""
    out, inside, at = [], False, 0
    while at < len(pattern):
        known = re.compile(r"\\p\{(\w+)\}").match(pattern, at)
        if known or pattern.startswith(r"\s", at):
            chars = category(known[1]) if known else SPACE
            out.append(chars if inside else f"[{chars}]")
            at = known.end() if known else at + 2
        elif pattern.startswith(r"\S", at) and not inside:
            out.append(f"[^{SPACE}]")
            at += 2
        else:
            size = 2 if pattern[at] == "\\" else 1
            inside = pattern[at] == "[" or (inside and pattern[at] != "]")
            out.append(pattern[at:at + size])
            at += size
    return "".join(out)


def split_pattern(pre, joins):
    """The pattern whose matches are the words to which BPE is applied. joins: whether the tokenizer has merges."""
    steps = pre["pretokenizers"] if pre and pre["type"] == "Sequence" else [pre]
    kinds = [step and step["type"] for step in steps]
    if any(step and step.get("add_prefix_space") for step in steps):
        fail("add_prefix_space of the pre-tokenizer is not known here")
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return GPT2
    if kinds == ["ByteLevel"] and not joins:  # dcp-export's bytes: each text is one word
        return "(?s:.)"
    if kinds == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True) \
            and steps[0]["behavior"] == "Isolated" and "Regex" in steps[0]["pattern"]:
        return steps[0]["pattern"]["Regex"]
    fail(f"the pre-tokenizer {kinds} is not known here; ByteLevel, or Split by a pattern and "
         "ByteLevel, are")


def byte_letters():
    """The character with which a byte-level vocabulary represents each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(rest)}


class Tokenizer:
    def __init__(self, path):
        with open(path, encoding="utf-8") as f:
            spec = json.load(f)
        model, normalizer = spec["model"], spec.get("normalizer")
        if model.get("type", "BPE") != "BPE" or model.get("byte_fallback") or model.get("dropout"):
            fail(f"{path} is no byte-level BPE")
        if normalizer and normalizer["type"] not in ("NFC", "NFD", "NFKC", "NFKD"):
            fail(f"the normalizer {normalizer['type']} is not known here")
        self.form = normalizer and normalizer["type"]
        self.vocab = model["vocab"]
        self.whole = model.get("ignore_merges", False)
        merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
        self.ranks = {pair: i for i, pair in enumerate(merges)}
        self.letters = byte_letters()
        self.words = re.compile(translate(split_pattern(spec["pre_tokenizer"], merges)))
        self.added = {t["content"]: t["id"] for t in spec.get("added_tokens", [])}
        if any(t.get(k) for t in spec.get("added_tokens", []) for k in ("lstrip", "rstrip", "single_word")):
            fail("added tokens with lstrip, rstrip or single_word are not known here")
        longest_first = sorted(self.added, key=len, reverse=True)
        self.added_split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self.size = 1 + max([*self.vocab.values(), *self.added.values()])
        self.bpe = functools.lru_cache(1 << 18)(self.bpe)

    def bpe(self, word):
        """The ids of a word: joins neighbours, always the pair that was learned first."""
        parts = [self.letters[b] for b in word.encode("utf-8")]
        if self.whole and "".join(parts) in self.vocab:
            return [self.vocab["".join(parts)]]
        while len(parts) > 1:
            rank, i = min((self.ranks.get(pair, len(self.ranks)), i)
                          for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == len(self.ranks):
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return [self.vocab[part] for part in parts]

    def plain(self, text):
        if self.form:
            text = unicodedata.normalize(self.form, text)
        at = 0
        for match in self.words.finditer(text):
            if match.start() > at:
                yield from self.bpe(text[at:match.start()])
            yield from self.bpe(match[0])
            at = match.end()
        if at < len(text):
            yield from self.bpe(text[at:])

    def ids(self, text):
        for i, part in enumerate(self.added_split.split(text) if self.added else [text]):
            if i % 2:
                yield self.added[part]
            elif part:
                yield from self.plain(part)


def documents(paths):
    """The files, including all files below a folder except hidden ones, in the order of their paths."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        found = []
        for folder, folders, names in os.walk(path):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
        if not found:
            fail(f"{path} holds no files")
        yield from sorted(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("tokenizer", help="tokenizer.json, or the folder that holds it")
    parser.add_argument("out", help="file to write: little-endian uint16 where the vocabulary fits, else uint32")
    parser.add_argument("text", nargs="+", help="UTF-8 files, one document each, or folders of them")
    parser.add_argument("--end", metavar="TOKEN", help="follows each document, as <|endoftext|>")
    args = parser.parse_args()
    path = args.tokenizer
    tokenizer = Tokenizer(os.path.join(path, "tokenizer.json") if os.path.isdir(path) else path)
    end = [] if args.end is None else [{**tokenizer.vocab, **tokenizer.added}.get(args.end)]
    if end == [None]:
        fail(f"--end: {args.end} is not in the vocabulary")
    wide = tokenizer.size > 65536
    total = 0
    names = list(documents(args.text))
    with open(args.out, "wb") as out:
        for name in names:
            with open(name, encoding="utf-8", newline="") as f:
                ids = array.array("I" if wide else "H", tokenizer.ids(f.read()))
            ids.extend(end)
            total += len(ids)
            if sys.byteorder == "big":
                ids.byteswap()
            ids.tofile(out)
    print(f"{args.out}: {total} tokens, uint{32 if wide else 16}; the model's vocab_size is to be at "
          f"least {tokenizer.size}")


if __name__ == "__main__":
    try:
        main()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as e:
        fail(e)
    except OSError as e:
        fail(e, 3)
    except (ValueError, KeyError, TypeError, AttributeError, re.error) as e:  # it has unexpected contents
        fail(f"{type(e).__name__}: {e}")
