"""libdcp.convert: files that torch.save wrote become the steps that libdcp.save makes of what torch.load reads from them;
forged and damaged ones are refused, and nothing that they name is run."""

import collections
import contextlib
import filecmp
import fractions
import io
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unittest
import warnings
import zipfile

import numpy
import torch
from torch import nn

import libdcp
from libdcp import convert

from test_convert import DTYPES, LIMIT_S, MEASURE, Base, bits, call, zip_of
from torchrun import torchrun

HERE = pathlib.Path(__file__).parent


class Odd:
    """No step can store it."""

    def __init__(self):
        self.text = "x"


def make_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3, dtype=torch.bfloat16).float())


def make_training():
    """Returns a model with its optimizer and schedule after an update."""
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1., total_steps=9)
    model(torch.ones(4, 5)).square().sum().backward()
    optimizer.step()
    schedule.step()
    return model, optimizer, schedule


class Test(Base):
    def same(self, state, *options, saved=None):
        """The step of a file of the state equals the native one of the state, or of ``saved``."""
        torch.save(state, self.dir / "state.pt")
        self.convert(self.dir / "state.pt", self.dir / "steps", *options)
        libdcp.save(self.dir / "native", 0, torch.load(self.dir / "state.pt", weights_only=False) if saved is None else saved)
        step, native = (self.dir / name / "step-00000000" for name in ("steps", "native"))
        with libdcp.Checkpoint(step) as made, libdcp.Checkpoint(native) as expected:
            self.assertEqual(made.json, expected.json)
            self.assertEqual(list(made), list(expected))
        self.assertTrue(filecmp.cmp(step / "state.h5", native / "state.h5", shallow=False))
        for name in ("steps", "native"):
            shutil.rmtree(self.dir / name)

    def test_tensors(self):
        large = bits((6, 8, 4), torch.float32, 1)
        tied = nn.Parameter(bits((4, 3), torch.float32, 2))
        self.same({**{str(dtype): bits((3, 5), dtype, 3) for dtype in DTYPES}, "view": large[1:3, 2:5], "turned": large.mT,
                   "spread": large[:, ::3], "wide": torch.arange(3.).expand(5, 3), "scalar": torch.tensor(2.), "none":
                   torch.zeros(0, 3), "tied": tied, "also": tied, "parameter": nn.Parameter(torch.ones(2), False),
                   "buffer": nn.Buffer(torch.ones(3)), "nested": {"a": [torch.ones(1), (large[0], 5)]}})

    def test_training(self):
        model, optimizer, schedule = make_training()
        self.same({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict(),
                   "epoch": 3, "rng": torch.get_rng_state()})
        self.same(model.state_dict())
        self.same(optimizer.state_dict(), saved={"optimizer": optimizer.state_dict()})
        moved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
        self.same({"app": {"net": moved["model"], "optim": moved["optimizer"]}, "epoch": 3}, "--rename", "app.net=model",
                  "--rename", "app.optim=optimizer", saved=moved)

    def test_objects(self):
        self.same({"w": torch.ones(1), "values": [
            1, -2**70, 1.5, float("inf"), None, True, "grün", "", b"bytes", b"", (1, (2,)), {1, 2}, frozenset("ab"), 2j,
            collections.deque([1], 3), bytearray(b"a"), slice(1, None, 2),
            torch.Size((2, 3)), torch.bfloat16, torch.device("cuda", 1), torch.device("cpu"), range(3, 9, 2)],
            "ordered": collections.OrderedDict(b=1, a=2), "default": collections.defaultdict(list, a=[1]),
            "counter": collections.Counter("aab"), "deep": {0: {1: {"x": {}}}, True: 2},
            "numpy": [numpy.float32(1.5), numpy.int64(3), numpy.bool_(True)], "array": numpy.arange(6.).reshape(2, 3),
            "fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)), "generator": numpy.random.get_state()})

    def test_what_cannot_be_stored(self):
        sparse = torch.ones(2, 2).to_sparse()
        for value, said in [(Odd(), "is a .*Odd, which is neither a tensor nor plain data; nothing was run"),
                            (Odd, "is the class or function .*Odd"), (sparse, "_rebuild_sparse_tensor"),
                            (torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
                            (torch.ones((1,) * 9), "9 dimensions"), ({(1, 2): 3}, "a key that is a tuple"),
                            (pathlib.PurePosixPath("x"), "PurePosixPath"), (numpy.array(["a"]), "array of numpy"),
                            (fractions.Fraction(1), "Fraction"), (torch.nn.Linear(1, 1), "Linear")]:
            with self.subTest(said):
                torch.save({"a": {"w": torch.ones(2)}, "b": [0, {"x": value, "y": 1}]}, self.dir / "state.pt")
                found = self.convert(self.dir / "state.pt", self.dir / "steps", expect=1)
                self.assertRegex(found, r"state.pt: state\['b'\]\[1\]\['x'\].*" + said)
                self.assertFalse((self.dir / "steps").exists())
                if "numpy" in said:
                    continue
                found = self.convert(self.dir / "state.pt", self.dir / "steps", "--skip-objects")
                self.assertRegex(found, "^left out: b.1.x: ")
                self.assertEqual(libdcp.read(self.dir / "steps")["b"][1], {"y": 1})
                shutil.rmtree(self.dir / "steps")
        for state, said in [(torch.nn.Linear(1, 1), "state is a torch.nn.modules.linear.Linear"),
                            ([torch.ones(1)], "has a list, not a mapping"), (torch.ones(1), "has a Shard, not a mapping")]:
            torch.save(state, self.dir / "state.pt")
            self.assertRegex(self.convert(self.dir / "state.pt", self.dir / "steps", expect=1), said)

    def test_other_files(self):
        torch.save({"w": torch.ones(2)}, self.dir / "old.pt", _use_new_zipfile_serialization=False)
        (self.dir / "notes.txt").write_text("notes")
        libdcp.save(self.dir / "native", 1, {"w": torch.ones(1)})
        (self.dir / "model.safetensors").write_bytes(bytes(100))
        for name, said in [("old.pt", "torch.save before PyTorch 1.6"), ("notes.txt", "not a file of torch.save"),
                           ("native/step-00000001/state.h5", "pass its folder"), ("model.safetensors", "libdcp import FOLDER")]:
            self.assertIn(said, self.convert(self.dir / name, self.dir / "steps", expect=1))
        torch.save({"w": torch.ones(2)}, self.dir / "checkpoint-12.pt")
        self.convert(self.dir / "checkpoint-12.pt", self.dir / "steps")
        self.assertEqual(libdcp.steps(self.dir / "steps"), [12])
        self.assertIn("--flat", self.convert(self.dir / "checkpoint-12.pt", self.dir / "steps", "--flat", expect=2))

    def test_fsdp1(self):
        """Full state dicts of FSDP1, and those of torch.distributed.checkpoint, are loaded into FSDP2 on two ranks and
        into a model in one process; what only one rank can interpret is refused."""
        self.ranks(2, "save")
        self.convert(self.dir / "full.pt", self.dir / "full")
        self.convert(self.dir / "dcp", self.dir / "sharded")
        for ranks in (2, 1):
            self.ranks(ranks, "load")
        for name, said in (("local.pt", "is a flat parameter of FSDP1|ShardedTensor.*one rank's part"),
                           ("sharded.pt", "ShardedTensor, which is one rank's part of a tensor"),
                           ("dtensors.pt", "DTensor, which is one rank's part of a tensor")):
            self.assertRegex(self.convert(self.dir / name, self.dir / "none", expect=1), said)
            self.assertFalse((self.dir / "none").exists())

    def ranks(self, ranks, what):
        done = torchrun(ranks, HERE / "fsdp1_ranks.py", what, self.dir)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_memory(self):
        """Also for a tensor whose elements are not in order."""
        torch.save({"a": torch.ones(80_000_000), "b": torch.ones(2, 10_000_000).mT}, self.dir / "large.pt")
        done = subprocess.run([sys.executable, "-c", MEASURE, "", self.dir / "large.pt", self.dir / "steps"],
                              env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=LIMIT_S, capture_output=True, text=True)
        self.assertLess(int(done.stdout.split()[-1]), 200, done.stderr)

    def test_without_torch(self):
        torch.save({"a": torch.arange(5.), "n": 1}, self.dir / "state.pt")
        hidden = ("import sys; sys.modules['torch'] = None; from libdcp import convert; "
                  "sys.exit(convert.main(sys.argv[1:]))")
        subprocess.run([sys.executable, "-c", hidden, self.dir / "state.pt", self.dir / "steps"], check=True,
                       timeout=LIMIT_S, capture_output=True)
        self.assertEqual(libdcp.read(self.dir / "steps")["a"].tolist(), [0, 1, 2, 3, 4])


class Hostile(Base):
    def setUp(self):
        super().setUp()
        self.path = self.dir / "state.pt"

    def refused(self, data, pattern):
        self.path.write_bytes(data)
        self.assertRegex(self.convert(self.path, self.dir / "steps", expect=1), pattern)
        self.assertFalse((self.dir / "steps").exists())

    def test_nothing_is_run(self):
        touch = call("os", "system", f"touch {self.dir}/ran")
        key = b"X\1\0\0\0k"
        for code, pattern in ((touch, "state is a os.system"), (b"}" + key + touch + b"s", r"state\['k'\] is a os.system"),
                              (b"}" + touch + key + b"s", "a key that is a os.system"),
                              (b"cos\nsystem\n}b", "a state is given"), (b"}" + key + b"cos\nsystem\ns", "the class or function os"),
                              (touch + b")R", r"state is a os.system\(...\)"), (b"N)R", "None is called"), (b"}" + key + touch + b"Qs", "neither a tensor")):
            self.refused(zip_of(pickle=b"\x80\2" + code + b"."), pattern)
        self.assertFalse((self.dir / "ran").exists())

    def test_bombs(self):
        key = b"X\1\0\0\0k"
        twice = b"]q\0" + b"".join(b"0]q%c(h%ch%ce" % (i + 1, i, i) for i in range(60))
        text = b"X" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + b"q\0" + b"0](" + b"h\0" * 1000 + b"e"
        for code, pattern in ((b"]q\0h\0a", "within each other"), (twice, "room for"), (text, "room for"),
                              (b"\x8e" + b"\xff" * 7 + b"\x7f", "it ends"), (b"(" * 100000, "missing"),
                              (b"h\5", "not known"), (b"\x8b\0\4\0\0" + b"\x7f" * 1024, "bits")):
            self.refused(zip_of(pickle=b"\x80\2}" + key + code + b"s."), pattern)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr("archive/data.pkl", b"\x80\2}" + b"N0" * 1000000 + b".")
        self.refused(packed.getvalue(), "compressed")
        self.refused(self.tensors(b"K\3K\4\x86", b"\x8a\x05\0\0\0\0\1K\4\x86", b"K\4K\1\x86", b"K\0K\0\x86"), "times the file's bytes")

    def tensors(self, *replaced):
        made = io.BytesIO()
        torch.save({"w": torch.arange(12.).reshape(3, 4)}, made)
        with zipfile.ZipFile(made) as z:
            code, data = z.read("archive/data.pkl"), z.read("archive/data/0")
        for old, new in zip(replaced[::2], replaced[1::2]):
            self.assertEqual(code.count(old), 1)
            code = code.replace(old, new)
        return zip_of(pickle=code, storage=data)

    def test_forged_zips(self):
        self.path.write_bytes(self.tensors())
        self.convert(self.path, self.dir / "good")
        self.refused(self.tensors(b"K\3K\4\x86", b"K\4K\4\x86"), "needs 64 bytes, but data/0 has 48")
        self.refused(self.tensors(b"FloatStorage", b"OddStorage"), "make no sense")
        self.refused(zip_of(storage=b""), "no data.pkl")
        twice = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(twice, "w") as z:
            warnings.simplefilter("ignore")
            for _ in range(2):
                z.writestr("archive/data.pkl", b"\x80\2}.")
        self.refused(twice.getvalue(), "one name")
        whole = self.tensors()
        at = whole.rindex(b"PK\1\2")
        for offset, value in ((42, 10), (20, 2**30), (24, 2**30)):  # where a member is, and its lengths
            self.refused(whole[:at + offset] + value.to_bytes(4, "little") + whole[at + offset + 4:], "state.pt: ")

    def test_truncated_and_flipped(self):
        whole = self.tensors()
        for n in range(4, len(whole), 31):
            self.refused(whole[:n], "state.pt")
        random.seed(1)
        for _ in range(400):
            forged = bytearray(whole)
            for _ in range(random.randrange(1, 4)):
                forged[random.randrange(len(forged))] = random.randrange(256)
            self.path.write_bytes(forged)
            with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                self.assertIn(convert.main([str(self.path), str(self.dir / "steps")]), (0, 1))
            shutil.rmtree(self.dir / "steps", ignore_errors=True)


if __name__ == "__main__":
    unittest.main()
