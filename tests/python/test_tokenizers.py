"""The trainer's tokenizers beside the library `tokenizers`: the same ids, and the same text back, for the shapes of
tokenizer.json that models have."""

import importlib.util
import itertools
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unicodedata
import unittest

ROOT = pathlib.Path(__file__).parents[2]
IDS = pathlib.Path(os.environ.get("BPE_IDS", ROOT / "build" / "tests" / "bin" / "bpe_ids"))
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = [(0x20, 0x7e), (0xa0, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x5d0, 0x5ea),
           (0x600, 0x6ff), (0x900, 0x97f), (0xe00, 0xe5b), (0x1100, 0x11ff), (0x1e00, 0x1eff), (0x2000, 0x206f),
           (0x20a0, 0x20bf), (0x2100, 0x214f), (0x2460, 0x24ff), (0x3040, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
           (0xf900, 0xfaff), (0xfb00, 0xfb4f), (0xff00, 0xffef), (0x10330, 0x1034a), (0x1d15e, 0x1d164),
           (0x1f300, 0x1f64f), (0x1f900, 0x1f9ff), (0x2f800, 0x2fa1d), (0xe0100, 0xe01ef)]
SPACES = ["\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\xa0", "\u1680", "\u180e", "\u2000", "\u200b",
          "\u2028", "\u202f", "\u3000", "\ufeff", " "]


def repository():
    """Texts of the repository: prose, C, Python."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "libdcp").rglob("*.[ch]")),
             *sorted((ROOT / "tests").rglob("*.py"))]
    return [file.read_text(encoding="utf-8") for file in files]


def generated(seed, size):
    """Strings of many scripts, emoji, marks, whitespace, digits, and long runs of one character."""
    choose = random.Random(seed)
    parts, n = [], 0
    while n < size:
        kind = choose.randrange(8)
        first, last = choose.choice(SCRIPTS)
        if kind == 0:
            part = "".join(choose.choice(SPACES) * choose.choice((1, 1, 2, 5)) for _ in range(choose.randrange(1, 5)))
        elif kind == 1:
            part = chr(choose.randint(first, last)) * choose.choice((2, 3, 17, 200))
        elif kind == 2:
            part = "".join(chr(choose.choice((0x61, 0x45, 0x438, 0xac00, choose.randint(0x300, 0x36f))))
                           for _ in range(choose.randrange(2, 9)))
        elif kind == 3:
            part = choose.choice(("I'm", "WE'LL", "don't", "it'\u017f", "x'RE", "'", "''", "\u2019s", "12345678",
                                  " Hellish", "memcpyq", " Reads", "\u00b2\u2167\u0663", "\ufffd", "_", "<", "<0x41>",
                                  "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2581", "a\u2581 b", "e\u0301",
                                  "\u3042\u30fc\u30a2\u30fc"))
        else:
            part = "".join(chr(choose.randint(first, last)) for _ in range(choose.randrange(1, 12)))
        part += choose.choice(("", "", " ", "  ", "\n", "."))
        parts.append("".join(c for c in part if unicodedata.category(c) != "Cn"))
        n += len(parts[-1].encode())
    return "".join(parts)


def texts(added=()):
    """A megabyte: some hundred whole texts, and many short ones. None has a NUL."""
    whole = [text[:20000] for text in repository()]
    made = [generated(seed, size) for seed, size in [(1, 150000), (2, 40000)] + [(3 + i, 60) for i in range(1200)]]
    choose = random.Random(7)
    marked = []
    for i in range(400 if added else 0):
        line = generated(5000 + i, 40)
        for token in choose.choices(added, k=choose.randrange(1, 4)):
            at = choose.randrange(len(line) + 1)
            before, after = choose.choice(("", " ", "  ", "\n", "a")), choose.choice(("", " ", "\t ", "b"))
            line = line[:at] + before + token + after + line[at:]
        marked.append(line)
    runs = [c * n for c in "a =\n\u4e2d-" for n in (1, 2, 50, 3000)]
    short = ["", " ", "  ", "a", " a", "a ", "\n", "\u2581", " \u2581", "Hello, world!", " Hello  world "]
    return whole + made + marked + runs + short


@unittest.skipUnless(importlib.util.find_spec("tokenizers"), "needs tokenizers")
@unittest.skipUnless(IDS.exists(), f"needs {IDS}")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory(prefix="dcp-tokenizers-")
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.learned = [text[:8000] for text in repository()] + [generated(9, 30000)]

    def train(self, vocabulary, specials, pre_tokenizer, normalizer=None, **model):
        """A tokenizer that was trained on some of the repository, without decoder and post-processor."""
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(**model))
        tokenizer.pre_tokenizer = pre_tokenizer
        if normalizer:
            tokenizer.normalizer = normalizer
        alphabet = pre_tokenizers.ByteLevel.alphabet() if not model.get("byte_fallback") else []
        if model.get("byte_fallback"):
            specials = specials + [f"<0x{b:02X}>" for b in range(256)]
        tokenizer.train_from_iterator(self.learned, trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=specials, initial_alphabet=alphabet, limit_alphabet=600,
            show_progress=False))
        return tokenizer

    def program(self, path, text, *options):
        done = subprocess.run([IDS, path, *options], input=text, capture_output=True)
        self.assertEqual((done.returncode, done.stderr), (0, b""), path)
        return done.stdout

    def compare(self, tokenizer, added=(), change=None, decodes=True, every=1):
        """The ids of all texts, or of one in `every`, and their text; of some with the post-processor's ids."""
        path = os.path.join(self.scratch.name, "tokenizer.json")
        written = json.loads(tokenizer.to_str())
        # the trainer takes tokens of bytes as special ones alone; in models they are not
        written["added_tokens"] = [token for token in written["added_tokens"] if not token["content"].startswith("<0x")]
        if change:
            change(written)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(written, f, ensure_ascii=False)
        tokenizer = type(tokenizer).from_file(path)
        given = texts(added)[::every]
        self.compare_ids(tokenizer, path, given[::20], special=True)
        expected = self.compare_ids(tokenizer, path, given, special=False)
        joined = "\0".join(given).encode()
        self.assertGreater(len(joined), 1000000 / every / 2)
        back = self.program(path, joined + b"\0", "--bytes").split(b"\0")
        for theirs, ours in zip(expected if decodes else (), back):
            text, ours = tokenizer.decode(theirs), ours.decode(errors="replace")
            if ours not in (text, " " + text) and "\ufffd" not in text:
                at = len(os.path.commonprefix([text, ours.removeprefix(" ")]))
                self.fail(f"{text[:60]!r}, from {at} on {text[at:at + 40]!r}, is {ours[at:at + 40]!r}")
        return path

    def compare_ids(self, tokenizer, path, given, special):
        """Returns the library's."""
        expected = [e.ids for e in tokenizer.encode_batch(given, add_special_tokens=special)]
        joined = "\0".join(given).encode() + b"\0"
        got = self.program(path, joined, *["--special"] * special).decode().split("\n")[:-1]
        self.assertEqual(len(got), len(given))
        for text, theirs, ours in zip(given, expected, got):
            ours = [int(i) for i in ours.split()]
            if theirs != ours:
                at = next(i for i, (a, b) in enumerate(itertools.zip_longest(theirs, ours)) if a != b)
                theirs, ours = ([tokenizer.id_to_token(i) for i in ids[at:at + 6]] for ids in (theirs, ours))
                self.fail(f"{text[:60]!r}: from token {at} on {theirs}, not {ours}")
        return expected

    def test_gpt2(self):
        from tokenizers import decoders, pre_tokenizers, processors

        t = self.train(3000, ["<|endoftext|>"], pre_tokenizers.ByteLevel(add_prefix_space=False))
        t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)

        def as_published(file):  # merges as strings, no type
            file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
            file["model"]["continuing_subword_prefix"] = file["model"]["end_of_word_suffix"] = ""
            del file["model"]["type"]
        self.compare(t, ["<|endoftext|>"], as_published)
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
        self.compare(t, ["<|endoftext|>"])

    def test_llama3(self):
        from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers, processors

        t = self.train(5000, [], pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            ignore_merges=True)
        file = json.loads(t.to_str())  # and words that no merges make
        for word in "\u0120Hellish", "memcpyq", "WE'", "\u0120Reads":
            file["model"]["vocab"].setdefault(word, len(file["model"]["vocab"]))
        t = Tokenizer.from_str(json.dumps(file))
        specials = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(250)]
        t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
        t.decoder = decoders.ByteLevel()
        t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            "<|begin_of_text|> $A", "<|begin_of_text|> $A <|begin_of_text|> $B",
            [("<|begin_of_text|>", t.token_to_id(specials[0]))])])
        self.compare(t, specials[:3] + specials[-1:])

    def test_qwen(self):
        from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors

        t = self.train(4000, [], pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(QWEN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            normalizers.NFC())
        t.add_special_tokens([AddedToken(s, special=True, normalized=False)
                              for s in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
        t.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("e\u0301e", normalized=True)])
        t.decoder, t.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
        self.compare(t, ["<|im_start|>", "<|im_end|>", "<tool_call>", "\u00e9e", "e\u0301e"])

    def test_other_forms_of_unicode(self):
        from tokenizers import decoders, normalizers, pre_tokenizers

        for form in normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD():
            t = self.train(600, [], pre_tokenizers.ByteLevel(add_prefix_space=False), form)
            t.decoder = decoders.ByteLevel()
            self.compare(t)

    def test_replaced_patterns(self):
        from tokenizers import Regex, decoders, normalizers, pre_tokenizers

        for pattern in r"\s{2,}", r"(?i)e(?=.)", r"^[ \w]|a$":
            t = self.train(600, [], pre_tokenizers.ByteLevel(add_prefix_space=False))
            t.normalizer = normalizers.Replace(Regex(pattern), "=-")
            t.decoder = decoders.ByteLevel()
            self.compare(t, every=10)

    def test_smollm2(self):
        from tokenizers import decoders, pre_tokenizers

        t = self.train(2000, ["<|endoftext|>", "<|im_start|>"], pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
        t.decoder = decoders.ByteLevel()
        self.compare(t, ["<|endoftext|>", "<|im_start|>"])

    def test_deepseek_and_falcon(self):
        from tokenizers import Regex, decoders, pre_tokenizers as pre

        for steps in (
            [pre.Split(Regex(r"\p{N}{1,3}"), "isolated"),
             pre.Split(Regex("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), "isolated"),
             pre.Split(Regex(DEEPSEEK), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)],
            [pre.Punctuation("contiguous"), pre.ByteLevel(add_prefix_space=False), pre.Digits(individual_digits=False),
             pre.Split(Regex("[0-9][0-9][0-9]"), "isolated")],
            [pre.Punctuation(), pre.Digits(individual_digits=False),
             pre.ByteLevel(add_prefix_space=False, use_regex=False)],
        ):
            t = self.train(1500, ["<|end|>"], pre.Sequence(steps))
            t.decoder = decoders.ByteLevel()
            self.compare(t, ["<|end|>"])

    def test_every_behavior_of_a_split(self):
        from tokenizers import Regex, decoders, pre_tokenizers as pre

        for behavior, invert, pattern in itertools.product(
                ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"), (False, True),
                (Regex(r"\w+|[^\w\s]+"), Regex(r"\W+|\p{^L}|\p{Hiragana}+|\p{Katakana}+"), " ")):
            t = self.train(500, [], pre.Sequence([
                pre.Split(pattern, behavior, invert), pre.ByteLevel(add_prefix_space=False, use_regex=False)]))
            t.decoder = decoders.ByteLevel()
            self.compare(t, decodes=False, every=10)

    def test_llama2_by_a_normalizer(self):
        from tokenizers import AddedToken, decoders, normalizers, processors, pre_tokenizers

        t = self.train(2500, ["<unk>", "<s>", "</s>"], pre_tokenizers.Metaspace(), None, unk_token="<unk>",
                       fuse_unk=True, byte_fallback=True)
        t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                       decoders.Strip(" ", 1, 0)])
        t.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
        t.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])

        def without_pre_tokenizer(file):
            file["pre_tokenizer"] = None
        self.compare(t, ["<s>", "</s>", "<unk>"], without_pre_tokenizer)

        def normalized(file):
            without_pre_tokenizer(file)
            for token in file["added_tokens"]:
                token["normalized"] = True
        # the library would print normalized special tokens
        self.compare(t, ["<s>", "</s>", "<unk>"], normalized, decodes=False)

    def test_mistral_by_metaspace(self):
        from tokenizers import decoders, pre_tokenizers

        for scheme, split in itertools.product(("first", "always", "never"), (False, True)):
            t = self.train(2500, ["<unk>", "<s>", "</s>", "[INST]"],
                           pre_tokenizers.Metaspace("\u2581", scheme, split=True),
                           unk_token="<unk>", fuse_unk=True, byte_fallback=True)
            t.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", scheme, split=split)
            t.decoder = decoders.Metaspace("\u2581", scheme)
            self.compare(t, ["<s>", "[INST]"], decodes=False, every=10)
            t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
            self.compare(t, ["<s>", "[INST]"])

    def test_the_first_of_several_pieces(self):
        from tokenizers import decoders, pre_tokenizers as pre

        t = self.train(1500, ["<unk>", "<s>"], pre.Sequence([
            pre.Digits(individual_digits=False), pre.Metaspace("\u2581", "first")]), unk_token="<unk>")
        t.decoder = decoders.Metaspace("\u2581", "first")
        self.compare(t, ["<s>"], decodes=False, every=4)

    def test_unknown_characters(self):
        from tokenizers import decoders, pre_tokenizers

        for fuse, some_bytes in itertools.product((False, True), (False, True)):
            t = self.train(900, ["<unk>"], pre_tokenizers.Metaspace(), unk_token="<unk>", fuse_unk=fuse)
            t.decoder = decoders.Metaspace()

            def with_some_bytes(file):
                file["model"]["byte_fallback"] = True
                for byte in *range(0x80, 0xa0), *range(0xc2, 0x100):
                    file["model"]["vocab"][f"<0x{byte:02X}>"] = len(file["model"]["vocab"])
            self.compare(t, change=with_some_bytes if some_bytes else None, decodes=False, every=4)

    def test_added_tokens_and_what_is_beside_them(self):
        from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers

        t = self.train(700, [], pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())
        names = []
        for i, (left, right, word, normalized) in enumerate(itertools.product((False, True), repeat=4)):
            names += [f"<t{i}>", f"word{i:x}q"]
            t.add_tokens([AddedToken(name, lstrip=left, rstrip=right, single_word=word, normalized=normalized)
                          for name in names[-2:]])
        t.add_tokens([AddedToken("<t", normalized=False), AddedToken("<t1><t2>", normalized=False), AddedToken("   "),
                      AddedToken("\u00e4")])
        t.add_special_tokens([AddedToken("<mask>", lstrip=True)])
        t.decoder = decoders.ByteLevel()
        self.compare(t, names + ["<t", "<t1><t2>", "<t1><t2", "   ", "a\u0308", "<mask>"], decodes=False)

    def test_bytes(self):
        """The one that dcp-export writes for a model of bytes."""
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers

        alphabet = {c: b for b, c in enumerate(self.byte_names())}
        t = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        t.decoder = decoders.ByteLevel()
        path = self.compare(t)
        # what is no UTF-8 is its bytes
        text = bytes(range(1, 256)) + b"\xe4\xb8 \xf0\x9f\x98\xed\xa0\x80 \xc3\xa4"
        self.assertEqual(self.program(path, text), " ".join(str(b) for b in text).encode() + b"\n")
        self.assertEqual(self.program(path, text, "--bytes"), text + b"\0")

    @staticmethod
    def byte_names():
        seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
        others = iter(range(256, 512))
        return [chr(b if b in seen else next(others)) for b in range(256)]

    def test_no_utf8_is_replaced_as_python_does(self):
        from tokenizers import decoders, pre_tokenizers

        t = self.train(1500, ["<unk>"], pre_tokenizers.Metaspace(), unk_token="<unk>", byte_fallback=True)
        t.decoder = decoders.Metaspace()
        path = self.compare(t, decodes=False)
        choose = random.Random(5)
        for _ in range(50):
            text = bytes(choose.choices(b"A\x80\x8f\x90\x9f\xa0\xbf\xc1\xc3\xe0\xe4\xed\xf0\xf4\xf5\xff", k=60))
            ids = t.encode(text.decode(errors="replace")).ids
            self.assertEqual([int(i) for i in self.program(path, text).split()], ids, text)


if __name__ == "__main__":
    unittest.main()
