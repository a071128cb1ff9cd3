"""libdcp.hf.export writes the files that dcp-export writes, byte for byte. With numpy alone."""

import filecmp
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import numpy as np

import libdcp
import libdcp.hf

ROOT = pathlib.Path(os.environ.get("LIBDCP_LIBRARY", pathlib.Path(__file__).parents[2] / "build/lib/x")).parents[1]
PROGRAM = ROOT / "bin/dcp-export"
CONFIG = {"model_type": "gpt2", "n_embd": 4, "vocab_size": 256, "eps": 1e-6, "rate": 0.1, "whole": 10000.0, "tiny": 1.5e-300,
          "torch_dtype": "float32", "nested": {"é": [], "b": [1, {"c": None}, 1e22], "a": {}}, "text": "\"\\\n\x7f/"}
NAMES = ("one", "many", "wrapped", "tied", "apart", "types", "half", "bytes", "imported")
DTYPES = (None, "bf16", "f16", "f32")


def weights(**more):
    rng = np.random.default_rng(3)
    found = {"wte.weight": rng.standard_normal((8, 4)), "h.0.b": rng.standard_normal(4), "h.10.w": rng.standard_normal((4, 6)),
             "h.2.w": rng.standard_normal((4, 6)), "empty": np.zeros((0, 3)), "scalar": np.array(2.5)}
    return {**{name: value.astype(np.float32) for name, value in found.items()}, **more}


def states():
    """The states whose steps are exported, by name: their tensors and their JSON."""
    plain, tied = weights(), weights()["wte.weight"].copy()
    types = {name: (np.arange(6).reshape(2, 3) % 2).astype(name) for name in (
        "u8", "u4", "u2", "u1", "i8", "i4", "i2", "i1", "f8", "f4", "f2", "c8", "?")}
    large = weights(**{"h.2.w": np.array([1e38, -1e30, np.inf, np.nan, 7e4, 1.5], np.float32)})
    return {
        "one": ({"model": plain}, {"model": CONFIG}),
        "many": ({"model": plain}, {"model": CONFIG}),
        "wrapped": ({"model": {f"module._orig_mod.{name}": value for name, value in plain.items()}}, {"model": CONFIG}),
        "tied": ({"model": {**plain, "lm_head.weight": tied}}, {"model": CONFIG}),
        "apart": ({"model": {**plain, "lm_head.weight": tied + 1}}, {"model": CONFIG}),
        "types": ({"model": types}, {}),
        "half": ({"model": large}, {"model": {**CONFIG, "dtype": "x", "architectures": ["A"]}}),
        "bytes": ({"model": plain}, {"model": CONFIG, "data": {}}),
    }


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-hf-export-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        for name, (state, members) in states().items():
            libdcp.save(cls.dir / name, 1, state, json=members, layout="sharded" if name == "many" else "global")
        if PROGRAM.is_file():
            cls.add_imported()

    @classmethod
    def add_imported(cls):
        """A step with files beside the tensors, as only dcp-import makes it."""
        folder = cls.dir / "folder"
        libdcp.hf.export(cls.dir / "one", folder)
        (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "unknown"}))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "speech_tokenizer").mkdir()
        (folder / "speech_tokenizer" / "config.json").write_text("[1]")
        subprocess.run([PROGRAM.with_name("dcp-import"), folder, cls.dir / "imported"], check=True, capture_output=True)

    def test_names_while_it_is_written(self):
        """A leftover with this process's id, as of another host, is not in the way; permissions are as of any folder."""
        leftover = self.dir / f".tmp-beside-{os.getpid()}"
        leftover.mkdir()
        self.addCleanup(leftover.rmdir)
        (self.dir / "plain").mkdir()
        found = self.exported("one", "beside")
        self.assertEqual(found.stat().st_mode, (self.dir / "plain").stat().st_mode)
        self.assertEqual([path.name for path in self.dir.glob(".tmp-*")], [leftover.name])

    def exported(self, name, to=None, **options):
        out = self.dir / (to or f"{self.id().rsplit('.', 1)[1]}-{name}")
        libdcp.hf.export(self.dir / name, out, **options)
        return out

    @unittest.skipUnless(PROGRAM.is_file(), "needs dcp-export")
    def test_same_bytes_as_the_program(self):
        with self.assertLogs("libdcp", "WARNING") as logged:
            for name in NAMES:
                for dtype in DTYPES:
                    for size in (None, "150", "1KB", "0.1KiB") if dtype in (None, "bf16") else (None,):
                        with self.subTest(name, dtype=dtype, size=size):
                            self.check_same_bytes(name, dtype, size)
        for said in ("apart/step-00000001: .* they differ", "types/step-00000001: holds no model configuration"):
            self.assertTrue(any(re.search(said, line) for line in logged.output), said)

    def check_same_bytes(self, name, dtype, size):
        ours = self.exported(name, f"ours-{name}-{dtype}-{size}", dtype=dtype, max_shard_size=size)
        theirs = self.dir / f"theirs-{name}-{dtype}-{size}"
        options = [*(["--dtype", dtype] if dtype else []), *(["--max-shard-size", size] if size else [])]
        done = subprocess.run([PROGRAM, self.dir / name, theirs, "--allow-mismatch", *options], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(contents(ours), contents(theirs))
        _, differing, failed = filecmp.cmpfiles(ours, theirs, contents(ours), shallow=False)
        self.assertEqual((differing, failed), ([], []))

    def test_files(self):
        out = self.exported("many", max_shard_size=100)
        self.assertIn("model-00002-of-00004.safetensors", contents(out))
        self.assertEqual(json.loads((out / "config.json").read_text()), {**CONFIG, "architectures": ["GPT2LMHeadModel"]})
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith(".tmp")], [])
        self.assertEqual(out.stat().st_mode & 0o777, (self.dir / "many").stat().st_mode & 0o777)

    @unittest.skipUnless(PROGRAM.is_file(), "needs dcp-import")
    def test_imported(self):
        out = self.exported("imported")
        self.assertEqual(contents(out), ["config.json", "model.safetensors", "speech_tokenizer/config.json", "tokenizer.json"])
        self.assertEqual((out / "speech_tokenizer" / "config.json").read_bytes(), b"[1]")

    def test_infinite(self):
        with self.assertLogs("libdcp", "WARNING") as logged:
            self.exported("half", dtype="float16")
        self.assertRegex(logged.output[0], "/model/h.2.w: 3 elements are too large for F16")

    def test_open_checkpoint(self):
        with libdcp.Checkpoint(self.dir / "one") as checkpoint:
            libdcp.hf.export(checkpoint, self.dir / "from-open")
            checkpoint["/model/h.0.b"]  # remains open
        self.assertEqual(contents(self.dir / "from-open"), ["config.json", "model.safetensors"])

    def test_options(self):
        for options in ({"dtype": "f64"}, {"dtype": 3}, {"max_shard_size": 0}, {"max_shard_size": "5 GB"},
                        {"max_shard_size": "5GX"}, {"max_shard_size": "20EB"}, {"max_shard_size": -1}):
            with self.subTest(options), self.assertRaisesRegex(ValueError, f"^{next(iter(options))}: "):
                self.exported("one", **options)
        with self.assertRaisesRegex(TypeError, "max_shard_size"):
            self.exported("one", max_shard_size=1.5)

    def test_places(self):
        out = self.exported("one")
        before = contents(out)
        with self.assertRaisesRegex(FileExistsError, "exists"):
            self.exported("one")
        self.assertEqual(contents(out), before)
        for inside in ("one/step-00000002", "one/step-00000001/hf"):
            with self.assertRaisesRegex(ValueError, "the checkpoint itself"):
                libdcp.hf.export(self.dir / "one", self.dir / inside)
        (self.dir / "empty").mkdir()
        libdcp.hf.export(self.dir / "one", self.dir / "empty")
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.hf.export(self.dir / "nowhere", self.dir / "never")
        self.assertEqual(caught.exception.status, libdcp.Status.NOT_FOUND)
        self.assertFalse((self.dir / "never").exists())

    def test_no_model(self):
        libdcp.save(self.dir / "other", 1, {"other": {"w": np.ones(2)}})
        libdcp.save(self.dir / "twice", 1, {"model": {"a._orig_mod.w": np.ones(2), "a.w": np.ones(2)}}, json={"model": {}})
        for name, said in (("other", "no tensor under /model/"), ("twice", "both be named a.w")):
            with self.assertRaisesRegex(libdcp.Error, said):
                self.exported(name)

    def test_damage(self):
        """Nothing remains of an export that fails."""
        libdcp.save(self.dir / "damaged", 1, {"model": weights()}, json={"model": CONFIG})
        file = self.dir / "damaged" / "step-00000001" / "state.h5"
        raw = bytearray(file.read_bytes())
        raw[raw.index(weights()["h.2.w"].tobytes())] ^= 1
        file.write_bytes(raw)
        before = sorted(os.listdir(self.dir))
        with self.assertRaisesRegex(libdcp.Error, "/model/h.2.w"):
            self.exported("damaged")
        self.assertEqual(sorted(os.listdir(self.dir)), before)


if __name__ == "__main__":
    unittest.main()
