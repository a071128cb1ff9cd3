"""examples/sample.py: models that have learned a text by heart continue it, with tokenizers of the same kinds as
published models. SAID was written by an earlier dcp-train that itself read tokenizer.json, from the same
checkpoints."""

import array
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "sample.py"
TOKENIZERS = ROOT / "tests" / "data" / "tokenizers"
PROGRAMS = pathlib.Path(os.environ.get("LIBDCP_PROGRAMS") or ROOT / "build" / "bin")
ENV = {**os.environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
TEXT = "Zwölf Boxkämpfer jagen — 漢字 🙂 quer über den Deich."
BEGUN = "Zwölf Boxkämpfer"
POSITIONS = 160
MODEL = {"model_type": "qwen3", "vocab_size": 768, "hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": POSITIONS,
         "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True, "initializer_range": 0.02}
KINDS = {"gpt2": "<|end|>", "llama3": "<|end|>", "qwen": "<|end|>", "llama2": "<s>"}  # separates two texts
# For each kind: the text to continue, the number of tokens, and the continuation.
SAID = {
    ("gpt2", BEGUN, 60): " jagen — 漢字 🙂 quer über den Deich.Zwölf Boxkämpfer jagen —",
    ("llama3", BEGUN, 60): " jagen — 漢字 🙂 quer über den Deich.Zwölf Boxkämpfer jagen —",
    ("qwen", BEGUN, 60): " jagen — 漢字 🙂 quer über den Deich.Zwölf Boxkämpfer jagen —",
    ("llama2", BEGUN, 60): " jagen — 漢字 🙂 quer über den Deich. Zwölf Boxkämpfer jagen — 漢字 ",
    ("qwen", BEGUN, 1): " ", ("qwen", BEGUN, 8): " jagen —", ("qwen", BEGUN, 10): " jagen — ",
    ("qwen", BEGUN, 11): " jagen — ", ("qwen", BEGUN, 12): " jagen — 漢", ("qwen", BEGUN, 13): " jagen — 漢",
    ("qwen", BEGUN, 17): " jagen — 漢字 ", ("qwen", BEGUN, 18): " jagen — 漢字 ", ("qwen", BEGUN, 19): " jagen — 漢字 🙂",
    ("llama2", "Zwölf Boxk", 1): "", ("llama2", "Zwölf Boxk", 2): "ä", ("llama2", "Zwölf Boxk", 6): "ämpfer",
    ("llama2", "Zwölf Boxk", 8): "ämpfer jagen ", ("llama2", "Zwölf Boxk", 11): "ämpfer jagen —",
    ("llama2", "Zwölf Boxk", 12): "ämpfer jagen — ", ("llama2", "Zwölf Boxk", 13): "ämpfer jagen — ",
    ("llama2", "Zwölf Boxk", 14): "ämpfer jagen — ", ("llama2", "Zwölf Boxk", 15): "ämpfer jagen — 漢",
    ("llama2", "Zwölf Boxk", 20): "ämpfer jagen — 漢字 ", ("llama2", "Zwölf Boxk", 22): "ämpfer jagen — 漢字 ",
    ("llama2", "Zwölf Boxk", 23): "ämpfer jagen — 漢字 🙂", ("qwen", TEXT, 8): "Zwölf ",
    ("qwen", TEXT + "<|end|>", 8): "Zwölf B", ("qwen", "<|end|>" + BEGUN, 9): " jagen — ",
    ("llama2", "<s>" + BEGUN, 9): " jagen — 漢"}


def run(*words, expect=0):
    """Returns the program's stdout, or its message if it fails."""
    done = subprocess.run(list(map(str, words)), capture_output=True, encoding="utf-8", timeout=300, env=ENV)
    assert done.returncode == expect, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stderr if expect else done.stdout


def sample(ckpt, text, *options, expect=0):
    return run(sys.executable, SCRIPT, ckpt, text, *options, expect=expect)


def llama2():
    """A tokenizer that makes words by a normalizer, has bytes for characters without tokens, and a token that
    begins each text."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.train_from_iterator(["Boxer jagen quer durch den Deich."], trainers.BpeTrainer(
        vocab_size=400, show_progress=False, special_tokens=["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256))]))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", None, [("<s>", 1)])
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if not token["content"].startswith("<0x")]
    return json.dumps(spec)


def framed(specials_before, specials_behind):
    """qwen's tokenizer, with its special token put before and after a text."""
    special = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    spec = json.loads((TOKENIZERS / "qwen.json").read_text(encoding="utf-8"))
    spec["post_processor"] = {
        "type": "TemplateProcessing", "pair": [],
        "single": [special] * specials_before + [{"Sequence": {"id": "A", "type_id": 0}}] + [special] * specials_behind,
        "special_tokens": {"<|end|>": {"id": "<|end|>", "ids": [0], "tokens": ["<|end|>"]}}}
    return json.dumps(spec)


@unittest.skipUnless(importlib.util.find_spec("tokenizers"), "needs tokenizers")
@unittest.skipUnless((PROGRAMS / "dcp-train").exists(), f"no dcp-train in {PROGRAMS}")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-sample-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        for kind, end in KINDS.items():
            spec = llama2() if kind == "llama2" else (TOKENIZERS / f"{kind}.json").read_text(encoding="utf-8")
            cls.learn(kind, spec, end, 120)

    @classmethod
    def learn(cls, name, spec, end, steps, carry=True, **model):
        """Makes the checkpoint self.dir/name of a model that has learned TEXT with a tokenizer, which the
        checkpoint carries."""
        from tokenizers import Tokenizer

        tokenizer, folder = Tokenizer.from_str(spec), cls.dir / f"{name}-tokenizer"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(spec, encoding="utf-8")
        ids = [tokenizer.token_to_id(end), *tokenizer.encode(TEXT, add_special_tokens=False).ids] * 200
        (folder / "ids").write_bytes(array.array("H", ids).tobytes())
        config = folder / "config.json"
        config.write_text(json.dumps(
            {"model": {**MODEL, **model}, "max_steps": steps, "seed": 7, "metrics": None,
             "data": {"type": "tokens", "path": str(folder / "ids"), "sequence_length": 128,
                      "tokenizer": str(folder) if carry else None},
             "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "optimizer": {"params": {"lr": 3e-3}},
             "checkpoint": {"dir": str(cls.dir / name), "every": 0}}))
        run("dcp-train", config)
        return cls.dir / name

    def test_what_dcp_train_said(self):
        """Includes texts that end within a character, whose beginning is left out; special tokens, which have no
        text; and a space at the beginning of the continuation."""
        for (kind, text, tokens), expected in SAID.items():
            with self.subTest(kind=kind, text=text, tokens=tokens):
                self.assertEqual(sample(self.dir / kind, text, "--tokens", tokens), expected + "\n")

    def test_the_begin_of_a_text(self):
        """The space that a tokenizer puts before each text is not part of the text."""
        said = sample(self.dir / "llama2", "", "--tokens", 20)
        self.assertTrue(TEXT.startswith(said[:-1]) and len(said) > 10, said)
        self.assertEqual(sample(self.dir / "llama2", "<s>", "--tokens", 20), said)

    def test_what_ends_it(self):
        spec = (TOKENIZERS / "qwen.json").read_text(encoding="utf-8")
        ends = self.learn("ends", spec, "<|end|>", 120, eos_token_id=0)
        self.assertEqual(sample(ends, BEGUN), TEXT.removeprefix(BEGUN) + "\n")

    def test_by_chance(self):
        """The options are dcp-train's, and the tokens are the same."""
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(TOKENIZERS / "qwen.json"))
        begun = " ".join(map(str, tokenizer.encode(BEGUN).ids))
        texts = []
        for seed in 3, 3, 4:
            options = "--tokens", 30, "--temperature", 2, "--seed", seed
            texts.append(sample(self.dir / "qwen", BEGUN, *options))
            ids = run("dcp-train", "--sample", begun, "--ids", *options, self.dir / "qwen").split()
            self.assertEqual(texts[-1], tokenizer.decode([int(i) for i in ids]).rstrip("\ufffd") + "\n")
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])

    def test_what_a_tokenizer_puts_around_a_text(self):
        """The token that begins a text occurs once, even if the text has it already, as with a chat template. The
        token that ends a text is left out of the model's input. The message says how many tokens the model
        gets."""
        for before, behind, counts in (1, 0, (2, 2, 3, 1)), (0, 1, (1, 2, 3, 1)), (1, 2, (2, 2, 3, 1)):
            ckpt = self.learn(f"framed-{before}-{behind}", framed(before, behind), "<|end|>", 1)
            for text, n in zip(("q", "<|end|>q", "<|end|><|end|>q", "<|end|>"), counts, strict=True):
                with self.subTest(before=before, behind=behind, text=text):
                    said = sample(ckpt, text, "--tokens", POSITIONS, expect=2)
                    self.assertIn(f"--tokens: {POSITIONS} tokens after a text of {n} are more than the model's", said)
        self.assertIn("the text is empty", sample(self.dir / "qwen", "", expect=2))

    def test_settings_for_batches_do_not_count(self):
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(TOKENIZERS / "qwen.json"))
        tokenizer.enable_truncation(3)
        tokenizer.enable_padding(length=100)
        folder = self.dir / "batches"
        folder.mkdir()
        tokenizer.save(str(folder / "tokenizer.json"))
        given = sample(self.dir / "qwen", BEGUN, "--tokenizer", folder, "--tokens", 20)
        self.assertEqual(given, sample(self.dir / "qwen", BEGUN, "--tokens", 20))

    def test_the_tokenizer_of_the_checkpoint(self):
        """From a step given by name, from shards, from an import; and by --tokenizer for a checkpoint without one."""
        expected = sample(self.dir / "qwen", BEGUN)
        run("dcp-reshard", self.dir / "qwen", self.dir / "shards", "--layout", "sharded", "--world", "3")
        run("dcp-export", self.dir / "qwen", self.dir / "exported")
        run("dcp-import", self.dir / "exported", self.dir / "imported")
        for ckpt in self.dir / "qwen" / "step-00000120", self.dir / "shards", self.dir / "imported":
            self.assertEqual(sample(ckpt, BEGUN), expected, ckpt)
        (self.dir / "exported" / "tokenizer.json").unlink()
        run("dcp-import", self.dir / "exported", self.dir / "bare")
        said = sample(self.dir / "bare", BEGUN, expect=2)
        self.assertIn(f"sample.py: {self.dir / 'bare'} gives no tokenizer.json; name the model's by --tokenizer", said)
        for given in self.dir / "qwen-tokenizer", self.dir / "qwen-tokenizer" / "tokenizer.json":
            self.assertEqual(sample(self.dir / "bare", BEGUN, "--tokenizer", given), expected)

    def test_a_large_tokenizer(self):
        """It is read from the checkpoint in parts."""
        spec = json.loads((TOKENIZERS / "qwen.json").read_text(encoding="utf-8"))
        text = json.dumps(spec)
        for size in 1 << 20, (1 << 20) + 1, (1 << 21) + 7:
            ckpt = self.learn(f"large-{size}", text + " " * (size - len(text)), "<|end|>", 1)
            self.assertTrue(sample(ckpt, BEGUN, "--tokens", 2).endswith("\n"))

    def test_refused(self):
        spec = (TOKENIZERS / "qwen.json").read_text(encoding="utf-8")
        narrow = self.learn("narrow", spec, "<|end|>", 1, carry=False, vocab_size=401)
        wide = json.loads(spec)
        wide["added_tokens"].append({**wide["added_tokens"][-1], "id": 401, "content": "<wide>"})
        folder = self.dir / "wide"
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(wide), encoding="utf-8")
        said = sample(narrow, "<wide>", "--tokenizer", folder, expect=2)
        self.assertIn("'401' is not a token of the model, whose vocab_size is 401", said)
        (folder / "tokenizer.json").write_text("{", encoding="utf-8")
        said = sample(narrow, "a", "--tokenizer", folder, expect=2)
        self.assertIn(f"sample.py: {folder / 'tokenizer.json'}: the tokenizer fails: ", said)
        self.assertIn("cannot find", sample(self.dir / "nowhere", "a", expect=2))
        self.assertIn("--temperature: 'hot' is not a number",
                      sample(self.dir / "qwen", "a", "--temperature=hot", expect=2))
        said = subprocess.run([sys.executable, SCRIPT, self.dir / "qwen", b"\xff"], capture_output=True, env=ENV)
        self.assertEqual(said.returncode, 2)
        self.assertNotIn(b"Traceback", said.stderr)

    def test_a_reader_that_goes(self):
        """No message is printed, as with other programs."""
        going = subprocess.Popen([sys.executable, SCRIPT, self.dir / "qwen", BEGUN, "--tokens", "100"], env=ENV,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        going.stdout.close()
        self.assertEqual(going.stderr.read(), b"")
        going.stderr.close()
        going.wait(60)

    def test_it_comes_as_it_is_made(self):
        """The first characters are printed before the last token is computed."""
        going = subprocess.Popen([sys.executable, SCRIPT, self.dir / "qwen", BEGUN, "--tokens", "100"], env=ENV,
                                 stdout=subprocess.PIPE)
        with going.stdout as stream:
            first = stream.read(1)
            self.assertEqual(first, TEXT.removeprefix(BEGUN)[:1].encode())
            stream.read()
        self.assertEqual(going.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
