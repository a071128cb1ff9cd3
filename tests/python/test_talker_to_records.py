"""examples/talker/to_records.py: the contents of its file, which records are held out and left out, and its
messages about wrong input, with a small tokenizer, codec and speaker encoder instead of the published ones;
and, if the package qwen-tts is installed, with its own ones, of small sizes and random weights."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock
import wave
from typing import Any

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "talker"
sys.path.append(str(EXAMPLE))
MARKS = ("<|im_start|>", "<|im_end|>", "assistant")
RATE, HOP = 24000, 1920


def missing(*names: str) -> list[str]:
    return [name for name in names if not importlib.util.find_spec(name)]


def voice() -> Any:
    """Returns the example's stand-in, with codebooks of random entries, and a list of what it has read."""
    import numpy as np
    import stand_in

    class Voice(stand_in.StandIn):
        def __init__(self) -> None:
            size = stand_in.STEPS * stand_in.BANDS
            super().__init__(np.random.default_rng(1).standard_normal((4, 16, size)), 8)
            self.read: list[str] = []

        def codes(self, paths: list[str]) -> list[Any]:
            self.read += paths
            return super().codes(paths)

        def vector(self, path: str) -> Any:
            self.read.append(path)
            return super().vector(path)
    return Voice()


def sound(path: pathlib.Path, frames: float, pitch: float = 200.0) -> str:
    """Returns a sound of that many frames of the codec."""
    import numpy as np
    t = np.arange(int(frames * HOP)) / RATE
    audio = 0.4 * np.sin(2 * np.pi * pitch * t) * (1 + np.sin(7 * t)) / 2
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((audio * 32767).astype("<i2").tobytes())
    return str(path)


@unittest.skipIf(missing("numpy", "safetensors"), "needs numpy and safetensors")
class Test(unittest.TestCase):
    script: Any

    @classmethod
    def setUpClass(cls) -> None:
        import to_records
        cls.script = to_records

    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory(prefix="dcp-voice-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.out = str(self.dir / "out.safetensors")
        self.voice: Any = voice()
        self.ref = sound(self.dir / "ref.wav", 5)

    def row(self, name: str, text: str, frames: float, **more: Any) -> dict[str, Any]:
        return {"audio": sound(self.dir / f"{name}.wav", frames, 100 + 20 * len(name)), "text": text,
                "ref_audio": self.ref, **more}

    def file(self, *rows: Any) -> str:
        path = self.dir / "rows.jsonl"
        path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
        return str(path)

    def run_script(self, *words: str, expect: int = 0, model: str = "voice") -> str:
        """Returns what was printed, on stderr if it fails."""
        out, err, status = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                self.script.main([self.out, *words, "--model", model], self.voice)
            except SystemExit as e:
                status = int(e.code or 0)
        self.assertEqual(status, expect, out.getvalue() + err.getvalue())
        return err.getvalue() if expect else out.getvalue()

    def records(self, path: str) -> list[tuple[list[int], Any, Any]]:
        """Returns text ids, codes and vector of each record, from a file whose format is checked."""
        import numpy as np
        from safetensors.numpy import load_file
        t = load_file(path)
        self.assertEqual({name: (str(x.dtype), x.ndim) for name, x in t.items()},
                         {"text_ids": ("uint32", 1), "text_starts": ("int64", 1), "codes": ("uint16", 2),
                          "frame_starts": ("int64", 1), "speakers": ("float32", 2), "speaker_ids": ("uint32", 1)})
        n = len(t["speaker_ids"])
        for starts, of in (("text_starts", "text_ids"), ("frame_starts", "codes")):
            self.assertEqual((len(t[starts]), t[starts][0], t[starts][-1]), (n + 1, 0, len(t[of])))
            self.assertTrue((np.diff(t[starts]) > 0).all())
        self.assertEqual(set(t["speaker_ids"].tolist()), set(range(len(t["speakers"]))))
        return [(t["text_ids"][slice(*t["text_starts"][i:i + 2])].tolist(),
                 t["codes"][slice(*t["frame_starts"][i:i + 2])], t["speakers"][t["speaker_ids"][i]]) for i in range(n)]

    def test_what_a_file_holds(self) -> None:
        import numpy as np
        other = sound(self.dir / "other.wav", 4, 900)
        rows = [self.row("a", "Hello.", 6), self.row("bb", " naïve 漢 ", 2.5),
                self.row("ccc", "x", 1, ref_audio=other)]
        printed = self.run_script(self.file(*rows))
        found = self.records(self.out)
        self.assertEqual(len(found), 3)
        for row, (ids, codes, vector) in zip(rows, found):
            self.assertEqual(ids, [256, 258, 10, *row["text"].strip().encode()])
            self.assertTrue(np.array_equal(codes, voice().codes([row["audio"]])[0]))
            self.assertTrue(np.array_equal(vector, voice().vector(row["ref_audio"]).astype("f4")))
        self.assertEqual([len(codes) for _, codes, _ in found], [6, 3, 1])
        self.assertEqual(self.voice.read.count(self.ref), 1)  # each vector is computed once
        data = json.loads("{" + printed.splitlines()[-1] + "}")["data"]
        self.assertEqual(data, {"type": "speech", "path": self.out, "sequence_length": 64, "frames": 8})
        self.assertIn(": 3 records, 2 speakers, 10 frames; ", printed)
        self.assertIn(": 1 record, 1 speaker, 2 frames; ", self.run_script(self.file(self.row("d", "y", 2))))

    def test_what_can_be_read_of_ids(self) -> None:
        import stand_in
        self.assertEqual(stand_in.text_of([*"naïve".encode(), 258, 0xc3, 70000]), "naïve\ufffd")

    def test_codes_that_are_there(self) -> None:
        """No audio is read for existing codes; and equal input gives the same file."""
        rows = [self.row("a", "one", 3), {"text": "two", "ref_audio": self.ref, "audio_codes": [[1, 2, 3, 15]]}]
        self.run_script(self.file(*rows))
        self.assertEqual(self.records(self.out)[1][1].tolist(), [[1, 2, 3, 15]])
        self.assertEqual(self.voice.read, [rows[0]["audio"], self.ref])
        first = pathlib.Path(self.out).read_bytes()
        self.run_script(self.file(*rows))
        self.assertEqual(pathlib.Path(self.out).read_bytes(), first)

    def test_held_out_and_left_out(self) -> None:
        rows = [self.row("a" * (i + 1), f"text {i}", 1 + i) for i in range(9)]
        printed = self.run_script(self.file(*rows), "--held-out", "3", "--max-frames", "8")
        held = self.dir / "out-held-out.safetensors"
        trained, kept = self.records(self.out), self.records(str(held))
        self.assertEqual((len(trained), len(kept)), (5, 3))
        self.assertEqual(sorted(len(codes) for _, codes, _ in trained + kept), list(range(1, 9)))
        self.assertIn("left out: 1 with more than --max-frames 8", printed)
        self.assertIn(json.dumps(str(held)), printed)
        self.run_script(self.file(*reversed(rows)), "--held-out", "3", "--max-frames", "8")
        self.assertEqual(sorted(ids for ids, _, _ in self.records(str(held))), sorted(ids for ids, _, _ in kept))

    def test_what_is_wrong(self) -> None:
        good = self.row("a", "text", 2)
        for row, told in ((good | {"text": " "}, "the text is empty"), ("{", "no line of JSON"),
                          (good | {"text": "\ud800"}, ":2: text has half of a surrogate pair"),
                          ("[1]", ":2: [1]: an object with text, ref_audio, and audio or audio_codes is wanted"),
                          ({"text": "t", "ref_audio": self.ref}, ":2: audio is missing: an object with text"),
                          ({"text": "t", "audio": self.ref}, ":2: ref_audio is missing: an object with text"),
                          (good | {"text": 1}, ":2: text is no string: an object with text"),
                          (good | {"audio": "none.wav"}, "audio none.wav: there is no such file; a path counts from "
                           f"the current folder, {os.getcwd()}\n"),
                          (good | {"audio_codes": [[1, 2, 3]]}, "frames of 4 codes each"),
                          (good | {"audio_codes": [[1, 2, 3, 4], [1]]}, "frames of 4 codes each"),
                          (good | {"audio_codes": [[1.5, 2, 3, 4]]}, "frames of 4 codes each"),
                          (good | {"audio_codes": []}, "frames of 4 codes each"),
                          (good | {"audio_codes": [[1, 2, 3, 16]]}, "a code is outside 0..15")):
            with self.subTest(told):
                self.assertIn(told, self.run_script(self.file(good, row), expect=2))
        self.assertFalse(pathlib.Path(self.out).exists())
        self.assertIn("no record is left", self.run_script(self.file(good), "--max-frames", "1", expect=2))
        self.assertIn("leaves none", self.run_script(self.file(good), "--held-out", "1", expect=2))
        self.voice.hidden = 9
        self.voice.vector = voice().vector
        self.assertIn("has shape [8], not [9]", self.run_script(self.file(good), expect=2))
        self.voice.ids = lambda text: [1, 2]
        self.assertIn("has 2 ids for what stands around", self.run_script(self.file(good), expect=2))

    def test_no_such_folder(self) -> None:
        self.voice = None
        self.assertIn("config.json", self.run_script(self.file(), model=str(self.dir), expect=2))
        (self.dir / "config.json").write_text('{"model_type": "qwen3"}')
        self.assertIn("is not that of a talker", self.run_script(self.file(), model=str(self.dir), expect=2))

    def test_no_tokenizer(self) -> None:
        transformers = unittest.mock.Mock()
        transformers.AutoTokenizer.from_pretrained.side_effect = ValueError("Unrecognized model.\n  It should\n have")
        predictor = {"vocab_size": 16}
        (self.dir / "config.json").write_text(json.dumps(
            {"talker_config": {"hidden_size": 8, "num_code_groups": 4, "code_predictor_config": predictor}}))
        self.voice = None
        with unittest.mock.patch.object(self.script, "needed", return_value=transformers):
            self.assertEqual(self.run_script(self.file(), model=str(self.dir), expect=2),
                             f"to_records.py: --model {self.dir}: no tokenizer, or not all of its files: copy "
                             "tokenizer_config.json and those beside it from where the model is published; "
                             "transformers says: Unrecognized model\n")

    @unittest.skipIf(missing("torch", "qwen_tts"), "needs qwen-tts, which wants a transformers of its own")
    def test_the_package(self) -> None:
        """The package's own tokenizer, codec and speaker encoder, small and random, in a folder like the published
        ones."""
        import numpy as np
        import stand_in
        folder = self.dir / "model"
        codec, encoder, parts = published_folder(folder)
        self.voice = None
        rows = [self.row("a", "Hello you.", 6.5), self.row("bb", "It is.", 3)]
        self.run_script(self.file(*rows), model=str(folder))
        found = self.records(self.out)
        for row, (ids, codes, vector) in zip(rows, found):
            self.assertEqual(len(ids), 3 + len(row["text"]))
            audio = stand_in.samples(row["audio"]).astype("f4")
            self.assertTrue(np.array_equal(codes, codec.encode(audio, sr=RATE).audio_codes[0].numpy()))
        import torch
        audio = torch.from_numpy(stand_in.samples(self.ref).astype("f4"))[None]
        mels = parts.mel_spectrogram(audio, 1024, 128, RATE, 256, 1024, 0, 12000)
        with torch.no_grad():
            wanted = encoder(mels.transpose(1, 2))[0].numpy()
        self.assertTrue(np.allclose(found[0][2], wanted, atol=1e-5))


def published_folder(folder: pathlib.Path) -> tuple[Any, Any, Any]:
    """Writes the folder; returns codec, speaker encoder and their module."""
    import tokenizers
    import torch
    import transformers
    from qwen_tts import Qwen3TTSTokenizer
    from qwen_tts.core import Qwen3TTSTokenizerV2Config, Qwen3TTSTokenizerV2Model
    from qwen_tts.core.models import modeling_qwen3_tts as parts
    from safetensors.torch import save_file
    torch.manual_seed(1)
    folder.mkdir()
    predictor = {"vocab_size": 2048, "num_code_groups": 16}
    speaker = {"enc_dim": 12, "enc_channels": [16, 16, 16, 16, 48], "enc_se_channels": 8, "enc_attention_channels": 8}
    (folder / "config.json").write_text(json.dumps(
        {"talker_config": {"hidden_size": 12, "num_code_groups": 16, "code_predictor_config": predictor},
         "speaker_encoder_config": speaker}))
    encoder = parts.Qwen3TTSSpeakerEncoder(parts.Qwen3TTSSpeakerEncoderConfig(**speaker)).eval()
    save_file({f"speaker_encoder.{name}": t for name, t in encoder.state_dict().items()}, folder / "model.safetensors")
    alphabet = {c: i for i, c in enumerate(tokenizers.pre_tokenizers.ByteLevel.alphabet())}
    own = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=alphabet, merges=[]))
    own.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.add_special_tokens(list(MARKS))
    transformers.PreTrainedTokenizerFast(tokenizer_object=own).save_pretrained(folder)
    small = {"hidden_size": 32, "num_filters": 4, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16,
             "intermediate_size": 32, "codebook_dim": 8, "vector_quantization_hidden_dimension": 8,
             "num_key_value_heads": 2, "upsample_groups": 1}
    decoder = {"hidden_size": 16, "latent_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
               "intermediate_size": 16, "num_hidden_layers": 1, "decoder_dim": 96, "head_dim": 8, "codebook_dim": 16}
    codec = Qwen3TTSTokenizerV2Model(Qwen3TTSTokenizerV2Config(encoder_config=small, decoder_config=decoder))
    codec.save_pretrained(folder / "speech_tokenizer")
    transformers.EncodecFeatureExtractor(sampling_rate=RATE).save_pretrained(folder / "speech_tokenizer")
    return Qwen3TTSTokenizer.from_pretrained(str(folder / "speech_tokenizer")), encoder, parts


if __name__ == "__main__":
    unittest.main()
