"""Hugging Face folders with torch, transformers and safetensors: from_pretrained of what libdcp.hf exports, and
libdcp.hf.load of what save_pretrained writes, also on several ranks (hf_ranks.py under torchrun)."""

import importlib.util
import pathlib
import tempfile
import unittest

import libdcp
import libdcp.hf

from torchrun import torchrun

PROGRAM = pathlib.Path(__file__).with_name("hf_ranks.py")
NEEDED = ("torch", "transformers", "safetensors")


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-hf-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def assert_equal(self, one, other):
        import torch
        self.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            self.assertTrue(value.dtype == other[name].dtype and torch.equal(value, other[name]), name)

    def pretrained(self, folder):
        import transformers
        model, found = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
        self.assertEqual([found[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")], [set()] * 3)
        return model

    def test_ranks(self):
        """Exported folders load in transformers, and with FSDP on 3 ranks, and with FSDP and tensor parallelism on 4."""
        import hf_ranks
        for name, tied in (("untied", False), ("tied", True)):
            model = hf_ranks.llama(1, tied)
            libdcp.save(self.dir / name, 1, {"model": model.state_dict()}, json={"model": model.config.to_diff_dict()})
        libdcp.hf.export(self.dir / "untied", self.dir / "untied-hf")
        libdcp.hf.export(self.dir / "untied", self.dir / "untied-shards", max_shard_size="20KB")
        libdcp.hf.export(self.dir / "untied", self.dir / "untied-bf16", dtype="bf16")
        libdcp.hf.export(self.dir / "tied", self.dir / "tied-hf")
        for name, tied in (("untied-hf", False), ("untied-shards", False), ("tied-hf", True)):
            self.assert_equal(self.pretrained(self.dir / name).state_dict(), hf_ranks.llama(1, tied).state_dict())
        self.assert_equal(self.pretrained(self.dir / "untied-bf16").state_dict(), hf_ranks.llama(1).bfloat16().state_dict())
        for ranks in (3, 4):
            done = torchrun(ranks, PROGRAM, self.dir)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_safetensors_reads_it(self):
        from safetensors import safe_open
        import torch
        state = {"a": torch.arange(6).reshape(2, 3), "b": torch.randn(4).bfloat16(), "c": torch.tensor(True)}
        libdcp.save(self.dir / "steps", 1, {"model": state}, json={"model": {}})
        libdcp.hf.export(self.dir / "steps", self.dir / "hf")
        with safe_open(self.dir / "hf" / "model.safetensors", "pt") as file:
            self.assertEqual(file.metadata(), {"format": "pt"})
            self.assert_equal({name: file.get_tensor(name) for name in file.keys()}, state)

    def test_save_pretrained(self):
        """The folders that transformers writes, tied or not, in one file and in several, into dicts, models and
        types."""
        import hf_ranks
        import torch
        for tied in (False, True):
            for size in ("5GB", "20KB"):
                with self.subTest(tied=tied, size=size):
                    folder = self.dir / f"{tied}-{size}"
                    saved = hf_ranks.llama(1, tied)
                    saved.save_pretrained(folder, max_shard_size=size)
                    for state_of in (lambda model: model.state_dict(), lambda model: {"model": model.state_dict()},
                                     lambda model: {"model": model},
                                     lambda model: {name: value.clone() for name, value in model.state_dict().items()}):
                        state = state_of(hf_ranks.llama(2, tied))
                        libdcp.hf.load(folder, state)
                        found = state.get("model", state)
                        self.assert_equal(found if isinstance(found, dict) else found.state_dict(), saved.state_dict())
        compiled = torch.compile(hf_ranks.llama(2))
        libdcp.hf.load(self.dir / "False-5GB", compiled.state_dict())
        self.assert_equal(compiled._orig_mod.state_dict(), hf_ranks.llama(1).state_dict())

    def test_there_and_back(self):
        """A step, its folder, and a step of what was loaded from that: the same bytes."""
        import hf_ranks
        libdcp.save(self.dir / "steps", 1, {"model": hf_ranks.llama(1).state_dict()}, json={"model": hf_ranks.CONFIG})
        libdcp.hf.export(self.dir / "steps", self.dir / "hf")
        state = {"model": hf_ranks.llama(2).state_dict()}
        libdcp.hf.load(self.dir / "hf", state)
        libdcp.save(self.dir / "steps", 2, state)
        files = [(self.dir / "steps" / f"step-0000000{step}") for step in (1, 2)]
        self.assertEqual(*(libdcp.Checkpoint(file).proof() for file in files))

    def test_autograd_and_meta(self):
        """Torch sees the writes, and tensors without memory are refused."""
        import hf_ranks
        import torch
        hf_ranks.llama(1).save_pretrained(self.dir / "hf")
        model = hf_ranks.llama(2)
        loss = (model.lm_head.weight ** 2).sum()
        libdcp.hf.load(self.dir / "hf", dict(model.named_parameters()))
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()
        with torch.device("meta"):
            empty = hf_ranks.llama(2)
        with self.assertRaisesRegex(TypeError, "meta device"):
            libdcp.hf.load(self.dir / "hf", empty.state_dict())


if __name__ == "__main__":
    unittest.main()
