"""PyTorch and dcp-train write the same files for the same state: FSDP of a transformers model on any number of
ranks, with and without tensor parallelism; dcp-train starts from such a step, and back; and the tools work on
it. Runs trainer_ranks.py under torchrun. The programs are those of build/bin, or of LIBDCP_PROGRAMS."""

import filecmp
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import libdcp
import numpy as np

from torchrun import torchrun

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "data" / "golden" / "llama"
PROGRAMS = pathlib.Path(os.environ.get("LIBDCP_PROGRAMS") or HERE.parents[1] / "build" / "bin")
HAS_TRAINER = (PROGRAMS / "dcp-train").exists() and shutil.which("mpirun")
LIMIT_S = 300
NEEDED = ("torch", "transformers", "h5py")
STEP, LAST = "step-00000002", "step-00000005"
LOSS, PARAMETERS = 1e-5, 4e-3  # the limits of tests/trainer/train_golden.py for dcp-train and transformers
KINDS = ("f32", "bf16")


def run(*words, expect=0, **environment):
    """Returns the whole output of a program."""
    done = subprocess.run(list(map(str, words)), env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
                          timeout=LIMIT_S, capture_output=True, text=True)
    assert done.returncode == expect, f"{words}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def tool(name, *words, expect=0):
    return run(PROGRAMS / name, *words, expect=expect)


def numbered(step, directory, number):
    """Copies the state as another step of a directory."""
    with libdcp.Checkpoint(step) as checkpoint:
        state = {}
        for path, array in checkpoint.items():
            section, name = path[1:].split("/", 1)
            state.setdefault(section, {})[name] = array
        libdcp.save(directory, number, state)


def run_ranks(ranks, what, directory, **environment):
    done = torchrun(ranks, HERE / "trainer_ranks.py", what, directory, **environment)
    assert done.returncode == 0, done.stdout + done.stderr


@unittest.skipUnless(all(map(importlib.util.find_spec, NEEDED)), f"needs {', '.join(NEEDED)}")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-trainer-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        run_ranks(1, "start", cls.dir / "1x1")

    def check_equal(self, step, other):
        """Two steps' folders are equal, except for about.json, which names the writer."""
        self.assertEqual(sorted(os.listdir(step)), ["about.json", "state.h5"])
        self.assertEqual(sorted(os.listdir(other)), ["about.json", "state.h5"])
        self.assertTrue(filecmp.cmp(step / "state.h5", other / "state.h5", shallow=False), f"{other}: other bytes")
        with libdcp.Checkpoint(step) as one, libdcp.Checkpoint(other) as two:
            self.assertEqual(one.proof(), two.proof())

    def test_any_ranks(self):
        """Each number of ranks loads the step that the one before has saved."""
        source = "1x1"
        for ranks, meshes in ((2, ["2x1"]), (3, ["3x1"]), (4, ["4x1", "2x2"]), (8, ["8x1", "4x2", "2x4"])):
            run_ranks(ranks, "again", self.dir, SOURCE=str(self.dir / source))
            for mesh in meshes:
                for kind in KINDS:
                    self.check_equal(self.dir / "1x1" / kind / STEP, self.dir / mesh / kind / STEP)
            source = meshes[-1]

    def train(self, ranks, name, last, expect=0, **start):
        """Returns the losses that dcp-train writes, by step; or its message if it is to fail."""
        golden = json.loads((GOLDEN / "golden.json").read_text())
        params = {key: golden["optimizer"][key] for key in ("lr", "betas", "eps", "weight_decay")}
        directory = self.dir / name
        configuration = {
            "model": str(GOLDEN), "max_steps": last, "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
            "data": {"type": "safetensors", "path": str(GOLDEN / "golden.safetensors"), "sequence_length": 32},
            "gradient_clipping": golden["clip"], "optimizer": {"params": params}, "scheduler": {"type": "constant"},
            "checkpoint": {"dir": str(directory), "keep": 0}}
        for key, value in start.items():
            (configuration["checkpoint"] if key == "resume" else configuration)[key] = str(value)
        written = self.dir / f"{name}.json"
        written.write_text(json.dumps(configuration))
        said = run("mpirun", "--oversubscribe", "-n", ranks, PROGRAMS / "dcp-train", written, expect=expect)
        self.assertNotIn("was saved with", said)  # the model and the optimizer are the same
        if expect:
            return said
        lines = map(json.loads, (directory / "metrics.jsonl").read_text().splitlines())
        return {line["step"]: line["loss"] for line in lines}

    def check_close(self, losses, others):
        self.assertEqual(len(losses), len(others))
        for loss, other in zip(losses, others):
            self.assertLess(abs(loss / other - 1), LOSS, (losses, others))

    @unittest.skipUnless(HAS_TRAINER, f"no dcp-train in {PROGRAMS}, or no mpirun")
    def test_dcp_train(self):
        """It starts with the weights; or it continues with the moments as torch does, whatever the number of the
        step."""
        torch_losses = json.loads((self.dir / "1x1" / "losses.json").read_text())
        for ranks, kind in enumerate(KINDS, 1):
            losses = self.train(ranks, f"init-{kind}", 1, init=self.dir / "1x1" / kind / STEP)
            self.check_close(losses.values(), torch_losses[kind][:1])

        losses = self.train(2, "resumed", 7, resume=self.dir / "1x1" / "f32" / STEP)
        self.check_close([losses[step] for step in (3, 4, 5)], torch_losses["f32"])
        with libdcp.Checkpoint(self.dir / "1x1" / "f32" / LAST) as mine, libdcp.Checkpoint(
                self.dir / "resumed" / LAST) as its:
            self.assertEqual(set(mine) - set(its), {path for path in mine if path.startswith("/optimizer/step/")})
            for path in mine.keys() & {path for path in its if path.startswith("/model/")}:
                self.assertLess(np.abs(mine[path] - its[path]).max(), PARAMETERS * np.abs(mine[path]).max(), path)

        shutil.copytree(GOLDEN, self.dir / "folder")
        (self.dir / "folder" / "vocab.json").write_text("{}")  # this is in the step, too, but not in a state
        tool("dcp-import", self.dir / "folder", self.dir / "imported")
        run_ranks(3, "back", self.dir, SOURCE=str(self.dir / "resumed" / LAST), IMPORTED=str(self.dir / "imported"))
        back = json.loads((self.dir / "losses-back.json").read_text())
        self.check_close(back, [losses[6], losses[7], json.loads((GOLDEN / "golden.json").read_text())["loss"]])

    @unittest.skipUnless(HAS_TRAINER, f"no dcp-train in {PROGRAMS}, or no mpirun")
    def test_updates_are_counted(self):
        """dcp-train uses torch's counts if the step has another number; and back, with the counts of dcp-train."""
        torch_losses = json.loads((self.dir / "1x1" / "losses.json").read_text())["f32"]
        numbered(self.dir / "1x1" / "f32" / STEP, self.dir / "late", 100)
        losses = self.train(1, "from-late", 103, resume=self.dir / "late")
        self.check_close(losses.values(), torch_losses)
        name = "model.norm.weight"
        moments = {"exp_avg": np.zeros(64, np.float32), "step": np.zeros((), np.float32)}
        libdcp.load(self.dir / "from-late", {"optimizer": {"state": {name: moments}, "param_groups": []}},
                    only="/optimizer/*")
        self.assertEqual(moments["step"], 5)
        numbered(self.dir / "1x1" / "f32" / STEP, self.dir / "early", 1)
        self.check_close(self.train(1, "from-early", 4, resume=self.dir / "early").values(), torch_losses)

    @unittest.skipUnless((PROGRAMS / "dcp-inspect").exists(), f"no dcp-inspect in {PROGRAMS}")
    @unittest.skipUnless(HAS_TRAINER, f"no dcp-train in {PROGRAMS}, or no mpirun")
    def test_tokenizer_of_bytes(self):
        """transformers loads the tokenizer of an export; libdcp.hf.export writes the same files."""
        transformers = importlib.import_module("transformers")
        text = "Hello,\n\tWörld  日本 \x00\x7f \U0001f642 two  spaces "
        folder = self.dir / "bytes"
        folder.mkdir()
        (folder / "text").write_bytes(bytes(range(256)) * 8)
        model = {"model_type": "llama", "vocab_size": 256, "hidden_size": 16, "intermediate_size": 24,
                 "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
                 "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0}
        (folder / "config.json").write_text(json.dumps(
            {"model": model, "data": {"type": "text", "path": str(folder / "text"), "sequence_length": 32},
             "max_steps": 1, "train_batch_size": 1, "train_micro_batch_size_per_gpu": 1,
             "optimizer": {"params": {"lr": 1e-3}}, "checkpoint": {"dir": str(folder / "ckpt")}}))
        tool("dcp-train", folder / "config.json")
        tool("dcp-export", folder / "ckpt", folder / "export")
        libdcp.hf.export(folder / "ckpt", folder / "by-python")
        names = sorted(os.listdir(folder / "export"))
        self.assertEqual(sorted(os.listdir(folder / "by-python")), names)
        self.assertEqual(filecmp.cmpfiles(folder / "export", folder / "by-python", names, shallow=False)[1:], ([], []))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "export")
        ids = tokenizer(text)["input_ids"]
        self.assertEqual((len(tokenizer), ids), (256, list(text.encode())))
        self.assertEqual(tokenizer.decode(ids), text)

    @unittest.skipUnless(HAS_TRAINER, f"no dcp-train in {PROGRAMS}, or no mpirun")
    def test_sample(self):
        """dcp-train --sample writes what transformers generates from the export of the same checkpoint."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        common = {"vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
                  "tie_word_embeddings": True, "rope_theta": 10000.0}
        models = {"llama": {}, "qwen2": {}, "qwen3": {"head_dim": 8}, "mistral": {"sliding_window": 11},
                  "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "resid_pdrop": 0,
                           "embd_pdrop": 0, "attn_pdrop": 0}}
        text, tokens = "7 times 5 is 35; 8 times", 80
        for kind, own in models.items():
            folder = self.dir / f"sample-{kind}"
            folder.mkdir()
            lines = (f"{i % 10} times {i % 7} is {i % 10 * (i % 7)}; " for i in range(2000))
            (folder / "text").write_text("".join(lines))
            model = {"model_type": kind, **({"vocab_size": 256} if kind == "gpt2" else common), **own}
            (folder / "config.json").write_text(json.dumps(
                {"model": model, "data": {"type": "text", "path": str(folder / "text"), "sequence_length": 64},
                 "max_steps": 40, "train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                 "optimizer": {"params": {"lr": 5e-3}}, "checkpoint": {"dir": str(folder / "ckpt")}}))
            tool("dcp-train", folder / "config.json")
            tool("dcp-export", folder / "ckpt", folder / "export")
            tokenizer = AutoTokenizer.from_pretrained(folder / "export")
            its = AutoModelForCausalLM.from_pretrained(folder / "export")
            given = tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                ids = its.generate(**given, do_sample=False, max_new_tokens=tokens, pad_token_id=0, eos_token_id=None)
            expected = tokenizer.decode(ids[0, given["input_ids"].shape[1]:])
            said = tool("dcp-train", "--sample", text, "--tokens", tokens, folder / "ckpt")
            self.assertEqual((len(ids[0]), said), (len(text) + tokens, expected + "\n"), kind)

    def test_tools(self):
        import h5py
        import torch
        from transformers import AutoModelForCausalLM
        for kind in KINDS:
            directory = self.dir / "1x1" / kind
            step = directory / STEP
            with libdcp.Checkpoint(step) as checkpoint:
                self.assertIn(STEP, tool("dcp-inspect", "ls", directory))
                self.assertIn("intact", tool("dcp-inspect", "verify", step))
                self.assertIn(checkpoint.proof().id, tool("dcp-inspect", "prove", step))
                with h5py.File(step / "state.h5") as file:
                    for path, array in checkpoint.items():
                        self.assertEqual(file[path].shape, array.shape)
                        if kind == "f32":
                            np.testing.assert_array_equal(file[path][()], array)
                exported = self.dir / f"exported-{kind}"
                tool("dcp-export", step, exported)
                model = AutoModelForCausalLM.from_pretrained(exported)
                self.assertEqual(model.dtype, torch.bfloat16 if kind == "bf16" else torch.float32)
                for name, tensor in model.state_dict().items():
                    bits = tensor.contiguous().view(torch.uint8).numpy()
                    np.testing.assert_array_equal(bits, checkpoint["/model/" + name].view(np.uint8), name)
        one, two = (self.dir / "1x1" / "f32" / name for name in (STEP, LAST))
        tool("dcp-inspect", "diff", one, one)
        tool("dcp-inspect", "diff", one, two, expect=1)


if __name__ == "__main__":
    unittest.main()
