"""A trained talker speaks by the package qwen-tts, if it is installed: a published folder, small and random, is
imported, trained some steps and exported with a voice. The package loads it, and chooses the codes that are the
likeliest according to the model of examples/talker/talker_model.py. The programs are those of build/bin, or of
LIBDCP_PROGRAMS."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

TESTS = pathlib.Path(__file__).parents[1]
PROGRAMS = pathlib.Path(os.environ.get("LIBDCP_PROGRAMS") or TESTS.parent / "build" / "bin")
sys.path += [str(TESTS.parent / "examples" / "talker"), str(TESTS / "data"), str(TESTS / "trainer")]
REAL_CODES = 2048  # the rows of the talker's table after these are no codes, except the end


def missing(*names: str) -> list[str]:
    return [name for name in names if not importlib.util.find_spec(name)]


def small_config(speaker: dict[str, Any]) -> dict[str, Any]:
    import talker_sizes
    config = talker_sizes.published_config(64, 96, "tiny")
    talker = config["talker_config"]
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    talker |= heads | {"head_dim": 16, "text_hidden_size": 32, "text_vocab_size": 300, "codec_language_id": {}}
    talker["rope_scaling"]["mrope_section"] = [4, 2, 2]
    talker["code_predictor_config"] |= heads | {"head_dim": 8, "hidden_size": 32, "intermediate_size": 48,
                                                "layer_types": ["full_attention"] * 2}
    ids = {"tts_pad_token_id": 290, "tts_bos_token_id": 291, "tts_eos_token_id": 292, "im_start_token_id": 256,
           "im_end_token_id": 257, "assistant_token_id": 258}
    return {**config, **ids, "speaker_encoder_config": {**speaker, "enc_dim": 64}}


def published_folder(folder: pathlib.Path) -> None:
    """Writes the folder, including the talker's random weights."""
    import talker_model
    import test_talker_to_records
    import torch
    from safetensors.torch import load_file, save_file
    test_talker_to_records.published_folder(folder)
    speaker = json.loads((folder / "config.json").read_text())["speaker_encoder_config"]
    model = talker_model.Model(small_config(speaker))
    tensors = load_file(folder / "model.safetensors")
    for name, p in model.named_parameters():
        tensors[name] = 0.2 * torch.randn_like(p)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(model.config))
    (folder / "generation_config.json").write_text("{}")


@unittest.skipIf(missing("torch", "qwen_tts"), "needs torch and qwen-tts, which wants a transformers of its own")
@unittest.skipUnless((PROGRAMS / "dcp-train").exists(), "needs dcp-train")
class Test(unittest.TestCase):
    def setUp(self) -> None:
        import torch
        torch.manual_seed(1)
        torch.set_num_threads(1)
        scratch = tempfile.TemporaryDirectory(prefix="dcp-voice-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def tool(self, name: str, *words: str) -> None:
        done = subprocess.run([PROGRAMS / name, *words], cwd=self.dir, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def trained(self) -> str:
        import recordings
        published_folder(self.dir / "base")
        tensors = recordings.recordings(6, groups=16, hidden=64, speakers=1)
        recordings.write_tensors(self.dir / "voice.safetensors", [(name, *rest) for name, rest in tensors.items()])
        (self.dir / "train.json").write_text(json.dumps(
            {"model": "base/config.json", "max_steps": 3, "train_batch_size": 2, "train_micro_batch_size_per_gpu": 1,
             "frozen": ["talker.model.text_embedding.*"], "checkpoint": {"dir": "ckpt"},
             "data": {"type": "speech", "path": "voice.safetensors", "sequence_length": 64, "frames": 16}}))
        self.tool("dcp-import", "base", "ckpt")
        self.tool("dcp-train", "train.json")
        self.tool("dcp-export", "ckpt", "spoken", "--voice", "Anna", "--voice-from", "voice.safetensors")
        return str(self.dir / "spoken")

    def test_it_speaks(self) -> None:
        import talker_model
        import torch
        from qwen_tts import Qwen3TTSModel
        folder = self.trained()
        package = Qwen3TTSModel.from_pretrained(folder, device_map="cpu", dtype=torch.float32)
        codec, said = package.model.speech_tokenizer, []
        decode = codec.decode
        codec.decode = lambda frames: said.append(frames) or decode(frames)
        waves, rate = package.generate_custom_voice(
            text="hello there", speaker="anna", language="auto", do_sample=False, subtalker_dosample=False,
            max_new_tokens=12, non_streaming_mode=True, repetition_penalty=1.0)
        codes = said[0][0]["audio_codes"]
        self.assertEqual((rate, len(codes) * 1920), (24000, len(waves[0])))
        ids = package.processor(text="<|im_start|>assistant\nhello there", return_tensors="pt")["input_ids"][0]
        model = talker_model.read_folder(folder)
        row = model.config["talker_config"]["spk_id"]["anna"]
        with torch.no_grad():
            logits, residual = model(ids, codes, model.talker.model.codec_embedding.weight[row])
        chosen = logits[len(ids) + 6:-1, :REAL_CODES].argmax(-1)
        self.assertTrue(torch.equal(chosen, codes[:, 0]))
        self.assertTrue(torch.equal(residual.argmax(-1), codes[:, 1:]))


if __name__ == "__main__":
    unittest.main()
