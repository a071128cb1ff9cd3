"""Paths that are not directories of steps: URLs, checkpoints of other programs, arguments in the wrong order. With
numpy alone."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import libdcp


def touch(path, content=b""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-places-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.dir)
        self.state = {"w": np.ones(2)}

    def test_urls(self):
        for url in ("s3://bucket/run", "gs://bucket", "file:///tmp/run", "hdfs+x://host/run", pathlib.Path("s3://bucket/run")):
            for call in (lambda: libdcp.save(url, 1, self.state), lambda: libdcp.save_async(url, 1, self.state),
                         lambda: libdcp.load(url, self.state), lambda: libdcp.Store(url), lambda: libdcp.Tier(url),
                         lambda: libdcp.steps(url), lambda: libdcp.Checkpoint(url)):
                with self.subTest(url), self.assertRaisesRegex(ValueError, "is a URL, and [a-z0-9+]+:// is not supported"):
                    call()
        self.assertEqual(os.listdir("."), [])

    def test_directories_that_are_named_like_urls(self):
        libdcp.save("./s3://bucket", 1, self.state)
        self.assertEqual(libdcp.steps(self.dir / "s3:" / "bucket"), [1])
        self.assertEqual(libdcp.steps(pathlib.Path("s3:/bucket")), [1])
        self.assertEqual(libdcp.load(b"./s3:/bucket", self.state)["step"], 1)

    def test_urls_for_convert(self):
        libdcp.save("run", 1, self.state)
        for words in (("s3://bucket/run", "out"), ("run", "s3://bucket/run")):
            done = subprocess.run([sys.executable, "-m", "libdcp.convert", *words], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("s3:// is not supported", done.stderr)
        self.assertEqual(os.listdir("."), ["run"])

    def test_arguments_in_another_order(self):
        for call in (lambda: libdcp.save(self.state, 5, "run"), lambda: libdcp.save(5, "run", self.state),
                     lambda: libdcp.save_async(self.state, 5, "run"), lambda: libdcp.Store(None)):
            with self.assertRaisesRegex(TypeError, "^directory: of type [A-Za-z]+, which is no path; the arguments are libdcp.save"):
                call()
        with self.assertRaisesRegex(TypeError, "^step: a dict is no integer; the arguments are libdcp.save"):
            libdcp.save("run", self.state, self.state)
        with self.assertRaisesRegex(TypeError, "^the state is of type int, and not a mapping"):
            libdcp.save("run", self.state, 5)
        with self.assertRaisesRegex(TypeError, "a list of stores is what libdcp.Store takes"):
            libdcp.load([libdcp.Tier("run")], self.state)
        with self.assertRaisesRegex(TypeError, r"^path: of type dict, which is no path; the arguments are libdcp.load\(path, state\)"):
            libdcp.load(self.state, "run")

    def said_of(self, path):
        """Returns the message of a load, of functions that read, and of a store's warning, which are all the same."""
        found = []
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.load(path, self.state)
        found.append(str(caught.exception))
        with self.assertRaises(libdcp.Error) as caught:
            libdcp.Checkpoint(path)
        found.append(str(caught.exception))
        if os.path.isdir(path):
            with self.assertLogs("libdcp", "WARNING") as logged, libdcp.Store(path) as store:
                self.assertIsNone(store.newest())
                with self.assertRaises(libdcp.Error) as caught:
                    store.load(self.state)
                found.append(str(caught.exception))
            with self.assertLogs("libdcp", "WARNING"), libdcp.Store([libdcp.Tier(path)]):
                pass
            found.append(logged.output[0])
        said = {text.partition("; ")[2] for text in found}
        self.assertEqual(len(said), 1, found)
        return said.pop()

    def test_other_programs_checkpoints(self):
        for name, files, kind, way in [
                ("dcp", [".metadata", "__0_0.distcp"], "torch.distributed.checkpoint", "python -m libdcp.convert dcp "),
                ("titan", ["step-100/.metadata", "step-100/__0_0.distcp"], "torch.distributed.checkpoint",
                 "python -m libdcp.convert titan/step-100 "),
                ("alone", ["__0.metadata", "__0_0.distcp"], "torch.distributed.checkpoint", "convert"),
                ("half", ["__0_0.distcp"], "torch.distributed.checkpoint", "has not been completed"),
                ("accelerate", ["pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata", "random_states_0.pkl"],
                 "torch.distributed.checkpoint", "libdcp.convert accelerate "),
                ("accelerate-ddp", ["model.safetensors", "optimizer.bin", "random_states_0.pkl"], "accelerate",
                 "libdcp.convert accelerate-ddp "),
                ("lightning", ["epoch=1-step=240.ckpt/.metadata", "epoch=1-step=240.ckpt/meta.pt"],
                 "torch.distributed.checkpoint", "convert lightning/epoch=1-step=240.ckpt "),
                ("lightning-ddp", ["epoch=1-step=240.ckpt"], "torch.save", "libdcp.convert lightning-ddp/epoch=1-step=240.ckpt "),
                ("plain", ["model.pt", "notes.txt"], "torch.save", "libdcp.convert plain/model.pt "),
                ("llama", ["config.json", "model-00001-of-00002.safetensors"], "Hugging Face", "libdcp import llama "),
                ("trainer", ["checkpoint-500/model.safetensors", "checkpoint-500/optimizer.pt"], "Hugging Face",
                 "libdcp import trainer/checkpoint-500 "),
                ("deepspeed", ["latest", "global_step100/mp_rank_00_model_states.pt"], "DeepSpeed",
                 "libdcp.convert deepspeed"),
                ("orbax", ["_CHECKPOINT_METADATA"], "Orbax", "numpy")]:
            with self.subTest(name):
                for file in files:
                    touch(self.dir / name / file)
                said = self.said_of(name)
                self.assertIn(kind, said)
                self.assertIn(way, said)

    def test_files(self):
        libdcp.save("run", 1, self.state)
        touch(self.dir / "model.pt", b"PK\3\4...")
        touch(self.dir / "old.bin", b"\x80\2...")
        touch(self.dir / "model.safetensors", bytes(8))
        for path, said in [("model.pt", "libdcp.convert model.pt "), ("old.bin", 'torch.load("old.bin"'),
                           ("model.safetensors", "libdcp import"), ("run/step-00000001/state.h5", "run/step-00000001")]:
            with self.subTest(path):
                self.assertIn(said, self.said_of(path))

    def test_a_folder_that_is_made_during_a_save(self):
        """It has the step's name, but none of a step's files: the save fails, and the folder stays."""
        mine = self.dir / "run/step-00000005/mine"
        for replace in (False, True):
            with self.subTest(replace=replace), libdcp.Store(self.dir / "run", replace=replace) as store:
                store.save(4, self.state)
                with self.assertRaisesRegex(libdcp.Error, "step-00000005") as caught:
                    store.save(5, self.state, progress=lambda *_: None if mine.exists() else touch(mine, b"mine"))
                self.assertEqual(caught.exception.status, libdcp.Status.STATE)
                self.assertEqual((mine.read_bytes(), store.steps()), (b"mine", [4]))
                mine.unlink()
                mine.parent.rmdir()

    def test_a_pipe(self):
        os.mkfifo("pipe")
        for call in (lambda: libdcp.load("pipe", self.state), lambda: libdcp.Checkpoint("pipe")):
            self.assertRaises(libdcp.Error, call)

    def test_the_folder_above(self):
        libdcp.save("runs/one", 1, self.state)
        self.assertEqual(self.said_of("runs"), "the steps are in runs/one")

    def test_nothing_known(self):
        os.mkdir("empty")
        touch(self.dir / "other" / "readme.txt")
        for path in ("empty", "other", "none"):
            with self.subTest(path), self.assertNoLogs("libdcp", "WARNING"):
                libdcp.Store(path).close()
        with libdcp.Store("empty") as store:
            store.save(1, self.state)
        touch(self.dir / "empty" / "model.pt")
        with self.assertLogs("libdcp", "WARNING") as logged:
            libdcp.Store("empty").close()
            libdcp._options.log.warning("last")
        self.assertEqual(len(logged.output), 1)

    def test_host_as_somebody_names_it(self):
        with mock.patch.dict(os.environ, DCP_HOST="node7"):
            with libdcp.Store([libdcp.Tier("memory-{host}", private=True)]) as store:
                store.save(1, self.state)
        self.assertEqual(os.listdir("."), ["memory-node7"])

    def test_messages_name_no_functions_of_c(self):
        with libdcp.Store("run") as store:
            for step in (1, 2):
                store.save(step, self.state)
            with libdcp.Checkpoint("run/step-00000001"):
                for call in (lambda: store.save(1, self.state), lambda: store.remove(1), lambda: store.remove(2)):
                    with self.assertRaises(libdcp.Error) as caught:
                        call()
                    self.assertNotRegex(str(caught.exception), "dcp_[a-z]+_")


if __name__ == "__main__":
    unittest.main()
