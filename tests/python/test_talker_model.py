"""examples/talker/talker_model.py, which computes the golden values of talkers: its numbers of parameters are
those of the published folders; it reads and writes folders; and, if the package qwen-tts is installed, it
computes the same as that package with the same weights: logits of both levels, and the choices of its
generation, step by step."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

DATA = pathlib.Path(__file__).parents[1] / "data"
GOLDEN = DATA / "golden"
NAMES = ("talker", "talker_small", "talker_16")
sys.path += [str(DATA), str(DATA.parents[1] / "examples" / "talker")]


def missing(*names):
    return [name for name in names if not importlib.util.find_spec(name)]


@unittest.skipIf(missing("torch", "safetensors"), "needs torch and safetensors")
class Model(unittest.TestCase):
    def test_parameters_of_the_published(self):
        import talker_model
        from talker_sizes import PUBLISHED
        for size, (config, total, without) in PUBLISHED.items():
            self.assertEqual(talker_model.parameters(config), (total, without), size)

    def test_golden_values(self):
        """The files contain what the model computes, including its first losses."""
        import torch
        import golden_talker
        from safetensors.torch import load_file
        for name in NAMES:
            frozen, golden = golden_talker.MODELS[name][1], load_file(GOLDEN / name / "golden.safetensors")
            told = json.loads((GOLDEN / name / "golden.json").read_text())
            tensors, numbers = golden_talker.train(str(GOLDEN / name), frozen, False)
            self.assertEqual(set(golden), {p + n for n in tensors for p in ("", "bf16.")})
            for found, expected in zip(numbers["losses"], told["losses"], strict=True):
                self.assertAlmostEqual(found / expected, 1, delta=1e-5)
            for n in tensors:
                if not n.startswith("step5."):
                    torch.testing.assert_close(tensors[n], golden[n], rtol=0, atol=2e-5 * golden[n].abs().max().item())

    def test_a_speaker_is_written(self):
        import torch
        import talker_model
        model = talker_model.read_folder(str(GOLDEN / "talker"))
        vector = torch.arange(16.0)
        with tempfile.TemporaryDirectory(prefix="dcp-talker-") as folder:
            talker_model.write_folder(model, folder, "ada", 19, vector)
            back = talker_model.read_folder(folder)
        self.assertEqual(back.config["tts_model_type"], "custom_voice")
        self.assertEqual(back.config["talker_config"]["spk_id"], {"ada": 19})
        for (name, ours), theirs in zip(model.named_parameters(), back.parameters()):
            ours = ours.clone()
            if name == "talker.model.codec_embedding.weight":
                ours[19] = vector
            self.assertTrue(torch.equal(ours, theirs), name)


    def test_it_speaks(self):
        """Each code is the likeliest one after those before it, and the end comes when it is the likeliest."""
        import torch
        import talker_model
        for name in NAMES:
            model = talker_model.read_folder(str(GOLDEN / name))
            config = model.config["talker_config"]
            with torch.no_grad():  # the golden weights also choose ids that are no codes
                model.talker.codec_head.weight[config["code_predictor_config"]["vocab_size"]:] *= 0
            text, _, speaker = next(talker_model.read_records(GOLDEN / name / "records.safetensors"))
            codes = talker_model.speak(model, text, speaker, 6)
            with torch.no_grad():
                logits, residual = model(text, codes, speaker)
            first = logits[len(text) + 6:].argmax(-1)
            self.assertEqual(codes.shape, (6, config["num_code_groups"]), name)
            self.assertTrue(torch.equal(first[:-1], codes[:, 0]), name)
            self.assertTrue(torch.equal(residual.argmax(-1), codes[:, 1:]), name)
            config["codec_eos_token_id"] = int(codes[3, 0])
            before = (codes[:, 0] == codes[3, 0]).int().argmax()
            self.assertTrue(torch.equal(talker_model.speak(model, text, speaker, 6), codes[:before]), name)


@unittest.skipIf(missing("torch", "qwen_tts"), "needs torch and qwen-tts, which wants a transformers of its own")
class Package(unittest.TestCase):
    """The package's published script for training is wrong in four places; its forward pass and its generation are
    not."""

    def setUp(self):
        import torch
        torch.manual_seed(1)
        torch.set_num_threads(1)

    def both(self, name, rows=None):
        """Returns its model and ours with the same weights; rows: another size of the talker's table."""
        import torch
        import golden_talker
        import talker_model
        from qwen_tts.core.models import Qwen3TTSConfig, Qwen3TTSForConditionalGeneration
        config = json.loads(json.dumps(golden_talker.MODELS[name][0]))
        talker = config["talker_config"]
        talker |= {"spk_id": {"ada": 3}, "spk_is_dialect": {"ada": False}, "vocab_size": rows or talker["vocab_size"]}
        config["tts_model_type"] = "custom_voice"
        ours = talker_model.Model(config)
        with torch.no_grad():
            for p in ours.parameters():
                p.copy_(0.5 * torch.randn_like(p))
        theirs = Qwen3TTSForConditionalGeneration(Qwen3TTSConfig(**config))
        theirs.load_state_dict(ours.state_dict())
        theirs.eval()
        return ours, theirs

    def test_logits(self):
        import torch
        import golden_talker
        import talker_model
        for name in NAMES:
            ours, theirs = self.both(name)
            for text, codes, speaker in talker_model.read_records(GOLDEN / name / "records.safetensors"):
                with torch.no_grad():
                    logits, residual = ours(text, codes, speaker)
                    out = theirs.talker(inputs_embeds=ours.embed(text, codes, speaker)[None],
                                        attention_mask=torch.ones(1, len(logits), dtype=torch.long),
                                        output_hidden_states=True, use_cache=False)
                    first = len(text) + 6
                    before = out.hidden_states[0][-1][0, first:first + len(codes)]
                    their_residual, _ = theirs.talker.forward_sub_talker_finetune(codes, before)
                torch.testing.assert_close(out.logits[0], logits, rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(their_residual, residual, rtol=1e-4, atol=1e-4)

    def test_generation(self):
        """The package generates by always choosing the likeliest code. At every position these codes are the
        likeliest ones of our model, with the speaker's row of the table as the vector: so input, offsets and
        heads are the same."""
        import torch
        for name in NAMES:
            ours, theirs = self.both(name, rows=1100)  # it never chooses one of the last 1024, except the end
            ids = torch.randint(32, (1, 4 + 6 + 5))  # with the five at the end that records omit
            with torch.no_grad():
                codes, _ = theirs.generate([ids], languages=["auto"], speakers=["ada"], non_streaming_mode=True,
                                           max_new_tokens=9, do_sample=False, subtalker_dosample=False,
                                           repetition_penalty=1.0)
                codes = codes[0]
                self.assertGreater(len(codes), 2, name)
                text, speaker = ids[0, :-5], ours.talker.model.codec_embedding.weight[3]
                logits, residual = ours(text, codes, speaker)
            chosen = logits[len(text) + 6:-1, :1100 - 1024].clone()
            self.assertTrue(torch.equal(chosen.argmax(-1), codes[:, 0]), name)
            self.assertTrue(torch.equal(residual.argmax(-1), codes[:, 1:]), name)


if __name__ == "__main__":
    unittest.main()
