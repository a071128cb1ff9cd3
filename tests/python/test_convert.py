"""libdcp.convert: to and from torch.distributed.checkpoint's directories, bit by bit, with little memory; and
damaged or forged files."""

import collections
import contextlib
import copy
import datetime
import filecmp
import fractions
import io
import os
import pathlib
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
import zipfile

import numpy
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor.metadata import TensorProperties as OldTensorProperties
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex

import libdcp
from libdcp import _pickles, convert
from libdcp.dcp import Reader, Writer

from torchrun import torchrun

HERE = pathlib.Path(__file__).parent
LIMIT_S = 300
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
          torch.float8_e8m0fnu, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32,
          torch.uint16, torch.uint8, torch.bool, torch.complex64, torch.complex128]
MEASURE = """
import resource, sys
from libdcp import convert
if "torch" in sys.argv[1]:
    import torch.distributed.checkpoint
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = convert.main(sys.argv[2:])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
sys.exit(status)
"""


def bits(shape, dtype, seed):
    """Returns any bits, including those of NaN and infinities."""
    item = torch.empty((), dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    n = torch.empty(shape, device="meta").numel()
    return torch.randint(0, high, (n * item,), generator=generator, dtype=torch.uint8).view(dtype).reshape(shape)


def make_state():
    return {
        "model": {**{f"{i}.weight": bits((3, 5), dtype, i) for i, dtype in enumerate(DTYPES)},
                  "scalar": torch.tensor(2.5, dtype=torch.bfloat16), "none": torch.zeros(0, 3), "turned":
                  bits((4, 6, 5), torch.float32, 50).permute(2, 0, 1), "view": bits((9,), torch.int16, 51)[2:7]},
        "optim": {"state": {"0.weight": {"exp_avg": bits((3, 5), torch.float32, 60), "step": torch.tensor(3.)}},
                  "param_groups": [{"lr": 0.5, "betas": (0.5, 0.25), "params": ["0.weight"], "fused": None}]},
        "rng": bits((5056,), torch.uint8, 70),
        "epoch": 3, "done": False, "text": "grün", "list": [1, {"x": bits((2,), torch.float64, 71), "y": 2}, [3, [4]]],
    }


def save_dcp(state, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that there is only one process
        dcp.save(state, checkpoint_id=path)


def load_dcp(state, path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.load(state, checkpoint_id=path)


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from tensors(inner)


def call(module, name, *arguments):
    """Returns a pickle that calls a function, in protocol 2."""
    return (b"c" + f"{module}\n{name}\n".encode() + b"("
            + b"".join(b"X" + len(a).to_bytes(4, "little") + a.encode() for a in arguments) + b"tR")


def zip_of(compression=zipfile.ZIP_STORED, **members):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as z:
        for name, data in members.items():
            z.writestr("archive/" + {"pickle": "data.pkl", "storage": "data/0"}[name], data)
    return made.getvalue()


class Base(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-convert-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def convert(self, *words, expect=0):
        """Returns what was printed on stderr."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            status = convert.main([str(word) for word in words])
        self.assertEqual(status, expect, said.getvalue())
        return said.getvalue()


class Test(Base):
    def test_round_trip(self):
        state = make_state()
        save_dcp(state, self.dir / "dcp")
        self.convert(self.dir / "dcp", self.dir / "steps", "--step", 7)
        libdcp.save(self.dir / "native", 7, state)
        step, native = (self.dir / name / "step-00000007" for name in ("steps", "native"))
        self.assertTrue(filecmp.cmp(step / "state.h5", native / "state.h5", shallow=False))
        self.assertEqual(libdcp.Checkpoint(step).verify(), [])

        self.convert(step, self.dir / "back")
        loaded = copy.deepcopy(state)
        for t in tensors(loaded):
            t.zero_()
        loaded.update(epoch=0, done=True, text="", list=[0, {"x": torch.zeros(2).double(), "y": 0}, [0, [0]]])
        loaded["optim"]["param_groups"][0].update(lr=0., betas=(0., 0.), fused=True)
        load_dcp(loaded, self.dir / "back")
        self.assertEqual([loaded[key] for key in ("epoch", "done", "text")], [3, False, "grün"])
        self.assertEqual((loaded["list"][1]["y"], loaded["list"][2]), (2, [3, [4]]))
        self.assertEqual(loaded["optim"]["param_groups"][0], {"lr": 0.5, "betas": (0.5, 0.25), "params": ["0.weight"],
                                                              "fused": None})
        for found, saved in zip(tensors(loaded), tensors(state), strict=True):
            self.assertEqual(found.contiguous().view(-1).view(torch.uint8).tolist(),
                             saved.contiguous().view(-1).view(torch.uint8).tolist())

    def test_killed(self):
        """Nothing has the name of the directory; the next conversion makes it."""
        libdcp.save(self.dir / "steps", 1, {"model": {"w": torch.ones(2)}})
        kills = ("import os, signal, sys; from libdcp import _dcp_export\n"
                 "kill = lambda done, total: os.kill(os.getpid(), signal.SIGKILL)\n"
                 "_dcp_export.convert(*sys.argv[1:], progress=kill)")
        done = subprocess.run([sys.executable, "-c", kills, str(self.dir / "steps"), str(self.dir / "back")])
        self.assertEqual(done.returncode, -signal.SIGKILL)
        self.assertRegex(" ".join(sorted(os.listdir(self.dir))), "^.tmp-back-[0-9a-f]{12} steps$")
        self.convert(self.dir / "steps", self.dir / "back")
        self.assertTrue((self.dir / "back" / ".metadata").is_file())

    def test_the_step_of_a_name(self):
        save_dcp({"w": torch.ones(2)}, self.dir / "dcp")
        for name, step in [("step-100", 100), ("iter_0000100", 100), ("100", 100), ("checkpoint-500", 500),
                           ("checkpoint_000003", 3), ("epoch=1-step=240.ckpt", 240), ("epoch=1-step=240-v1.ckpt", 240),
                           ("global_step12", 12), ("epoch=3.ckpt", 0), ("last.ckpt", 0), ("run2", 0)]:
            with self.subTest(name):
                os.rename(self.dir / "dcp", self.dir / name)
                self.convert(self.dir / name, self.dir / "to" / name)
                self.assertEqual(libdcp.steps(self.dir / "to" / name), [step])
                os.rename(self.dir / name, self.dir / "dcp")

    def test_accelerates_two_directories(self):
        """Directories that save_fsdp_model and save_fsdp_optimizer of accelerate write become one step, like those
        in a single directory."""
        state = make_state()
        model, optimizer = {"model": state["model"]}, {"optimizer": state["optim"]}
        folder = self.dir / "checkpoints" / "checkpoint_000003"
        save_dcp(model, folder / "pytorch_model_fsdp_0")
        save_dcp(optimizer, folder / "optimizer_0")
        for name in ("scheduler.bin", "random_states_0.pkl"):
            (folder / name).write_bytes(b"")
        said = self.convert(folder, self.dir / "steps")
        self.assertRegex(said, r"^left out: scheduler.bin: .*no zip.*; random_states_\*.pkl: .*no zip.*\n$")
        libdcp.save(self.dir / "native", 3, {**model, **optimizer, "accelerator": {"step": 0, "custom_checkpoints": 0}})
        step, native = (self.dir / name / "step-00000003" for name in ("steps", "native"))
        self.assertTrue(filecmp.cmp(step / "state.h5", native / "state.h5", shallow=False))

        self.convert(folder / "pytorch_model_fsdp_0", self.dir / "weights", "--rename", "model=ema")
        self.assertEqual([*libdcp.Checkpoint(self.dir / "weights" / "step-00000003")][0][:5], "/ema/")
        save_dcp(model, folder / "pytorch_model_fsdp_1")
        said = self.convert(folder, self.dir / "twice", expect=1)
        self.assertRegex(said, "pytorch_model_fsdp_0 and .*pytorch_model_fsdp_1 both have model.*: convert one of them alone")
        self.assertFalse((self.dir / "twice").exists())
        with self.assertRaisesRegex(libdcp.Error, "is a checkpoint of accelerate in .*: `python -m libdcp.convert .*checkpoint_000003 "):
            libdcp.load(folder, {})

    def test_names_and_objects_stay(self):
        """After a conversion to a step and back, all names have the same values; also for a step that the storage
        has written."""
        state = {"model": {"w": torch.ones(2), "deep": {"er": torch.ones(1), "n": 1}}, "rng": torch.arange(3),
                 "betas": (0.5, (1,)), "list": [torch.ones(2), {"a": 1, "t": torch.ones(3)}, [3, [4]]], "none": [],
                 "nothing": {}, "0": {"1": 2}}
        save_dcp(state, self.dir / "dcp")
        self.convert(self.dir / "dcp", self.dir / "steps")
        self.same_names(state)
        state |= {"np": numpy.arange(4), "rng2": ("MT", numpy.arange(3), torch.ones(1)), "set": {1, 2},
                  "bytes": [b"1", {"a": b"2"}]}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(state, storage_writer=Writer(self.dir / "steps", step=1))
            shutil.rmtree(self.dir / "dcp")
            save_dcp(state, self.dir / "dcp")
        self.same_names(state)

    def same_names(self, state):
        shutil.rmtree(self.dir / "back", ignore_errors=True)
        self.convert(self.dir / "steps", self.dir / "back")
        there, back = (dcp.FileSystemReader(self.dir / name).read_metadata() for name in ("dcp", "back"))
        self.assertEqual(there.state_dict_metadata.keys(), back.state_dict_metadata.keys())
        self.assertEqual(there.planner_data, back.planner_data)
        loaded = self.blank(state)
        load_dcp(loaded, self.dir / "back")
        self.assertEqual(repr(loaded), repr(state))

    def blank(self, value):
        if isinstance(value, torch.Tensor):
            return torch.zeros_like(value)
        if isinstance(value, list):
            return list(map(self.blank, value))
        return {key: self.blank(inner) for key, inner in value.items()} if isinstance(value, dict) else None

    def test_types_of_objects(self):
        """torch.distributed.checkpoint itself makes plain dictionaries of mappings."""
        values = {"set": {1, 2}, "texts": {"a"}, "frozenset": frozenset([1]), "tuple": (1, (2, None)), "bytes": b"\0\xff",
                  "bytearray": bytearray(b"a"), "complex": 1 + 2j, "large": 10**30, "deque": collections.deque([1], maxlen=3),
                  "float32": numpy.float32(1.5), "range": range(3), "slice": slice(1, 2, None), "size": torch.Size([1, 2]),
                  "dtype": torch.float32, "list": [1, {"a": b""}]}
        libdcp.save(self.dir / "run", 1, {"model": {"w": torch.ones(2)}, "values": values})
        self.convert(self.dir / "run/step-00000001", self.dir / "torch")
        self.convert(self.dir / "torch", self.dir / "back")
        found = libdcp.read(self.dir / "back", as_torch=True)["values"]
        self.assertEqual(found, values)
        self.assertEqual({name: type(value) for name, value in found.items()},
                         {name: type(value) for name, value in values.items()})

    def test_steps_of_older_versions(self):
        """The storage recorded less of a state dict then."""
        objects = {"own": "MTI=", "list": [None, {"a": 1}], "rng": ["MT", None, 0.5], "app": {"deep": {"n": 1}},
                   "loose": [None, {"y": 2}]}
        libdcp.save(self.dir / "steps", 1, {
            "model": {"w": torch.ones(2), "top": torch.ones(1)}, "list": {"0": torch.ones(3)},
            "app": {"deep.w": torch.ones(4)}, "rng": {"1": torch.arange(3)}, "loose": {"0": torch.ones(5), "1.x": torch.ones(6)}},
            json={"state": objects, "torch": {
                "top": ["top"], "nested": [["app", "deep"], ["loose", 1]], "lists": [["list"], ["rng"], ["loose"]],
                "inside": {"rng.1": "numpy"}, "bytes": {"own": "bytes"}}})
        state = {"model": {"w": torch.zeros(2)}, "top": torch.zeros(1), "list": [torch.zeros(3), {"a": 0}], "rng": None,
                 "app": {"deep": {"w": torch.zeros(4), "n": 0}}, "own": None,
                 "loose": [torch.zeros(5), {"x": torch.zeros(6), "y": 0}]}
        self.convert(self.dir / "steps", self.dir / "back")
        other = copy.deepcopy(state)
        load_dcp(state, self.dir / "back")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(other, storage_reader=Reader(self.dir / "steps"))
        for found in (state, other):
            self.assertEqual(repr(found), repr({
                "model": {"w": torch.ones(2)}, "top": torch.ones(1), "list": [torch.ones(3), {"a": 1}],
                "rng": ["MT", numpy.arange(3), 0.5], "app": {"deep": {"w": torch.ones(4), "n": 1}}, "own": b"12",
                "loose": [torch.ones(5), {"x": torch.ones(6), "y": 2}]}))

    def test_rename(self):
        """A state as torch's tutorial saves it gets dcp-train's sections, and is converted back."""
        state = make_state()
        state = {"app": {"model": state["model"], "optim": state["optim"]}, "epoch": 3}
        save_dcp(state, self.dir / "dcp")
        there = ["--rename", "app.model=model", "--rename", "app.optim=optimizer"]
        self.convert(self.dir / "dcp", self.dir / "steps", *there)
        libdcp.save(self.dir / "native", 0, {"model": state["app"]["model"], "optimizer": state["app"]["optim"], "epoch": 3})
        step, native = (self.dir / name / "step-00000000" for name in ("steps", "native"))
        self.assertTrue(filecmp.cmp(step / "state.h5", native / "state.h5", shallow=False))

        self.convert(step, self.dir / "back", "--rename", "model=app.model", "--rename", "optimizer=app.optim")
        loaded = copy.deepcopy(state)
        for t in tensors(loaded):
            t.zero_()
        loaded["app"]["optim"]["param_groups"][0]["lr"] = 0
        load_dcp(loaded, self.dir / "back")
        self.assertEqual(loaded["app"]["optim"]["param_groups"][0]["lr"], 0.5)
        for found, saved in zip(tensors(loaded), tensors(state), strict=True):
            self.assertEqual(found.contiguous().view(-1).view(torch.uint8).tolist(),
                             saved.contiguous().view(-1).view(torch.uint8).tolist())

        for wrong in ("optim", "=b", "app.=b"):
            self.assertIn("has to be OLD=NEW", self.convert(self.dir / "dcp", self.dir / "none", "--rename", wrong, expect=2))
        said = self.convert(self.dir / "dcp", self.dir / "none", "--rename", "optim=optimizer", expect=2)
        self.assertIn("--rename optim: nothing has these keys; the first ones are app, epoch", said)
        said = self.convert(step, self.dir / "none", "--rename", "optim=optimizer", expect=2)
        self.assertIn("the first ones are model, optimizer", said)
        save_dcp({"a": {"x": torch.ones(2)}, "b": {"x": torch.ones(2)}}, self.dir / "two")
        said = self.convert(self.dir / "two", self.dir / "none", "--rename", "a=b", expect=1)
        self.assertIn("would both be state['b']['x']", said)
        self.assertFalse((self.dir / "none").exists())

    def test_flat(self):
        state = {"a.weight": torch.arange(4.), "b": torch.ones(2, 2)}
        save_dcp(state, self.dir / "step_00120")
        self.convert(self.dir / "step_00120", self.dir / "steps")
        self.assertEqual(libdcp.steps(self.dir / "steps"), [120])
        self.convert(self.dir / "steps", self.dir / "back", "--flat")
        loaded = {"a.weight": torch.zeros(4), "b": torch.zeros(2, 2)}
        load_dcp(loaded, self.dir / "back")
        self.assertTrue(all(torch.equal(loaded[key], state[key]) for key in state))

    def test_large_tensors_in_parts(self):
        state = {"model": {"a": torch.arange(12_000_000, dtype=torch.int32).reshape(3, 4_000_000), "b": torch.ones(1)}}
        libdcp.save(self.dir / "steps", 1, state)
        self.convert(self.dir / "steps", self.dir / "dcp")
        chunks = dcp.FileSystemReader(self.dir / "dcp").read_metadata().state_dict_metadata["model.a"].chunks
        self.assertGreater(len(chunks), 1)
        loaded = {"model": {"a": torch.zeros(3, 4_000_000, dtype=torch.int32), "b": torch.zeros(1)}}
        load_dcp(loaded, self.dir / "dcp")
        self.assertTrue(torch.equal(loaded["model"]["a"], state["model"]["a"]))

    def test_ranks(self):
        for ranks, what in ((4, "save"), (2, "load")):
            if what == "load":
                self.convert(self.dir / "dcp", self.dir / "steps", "--step", 1)
                self.assertTrue(filecmp.cmp(*(self.dir / name / "step-00000001" / "state.h5"
                                              for name in ("steps", "native")), shallow=False))
                self.convert(self.dir / "steps", self.dir / "back")
            done = torchrun(ranks, HERE / "convert_ranks.py", what, self.dir)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_memory(self):
        save_dcp({"model": {"a": torch.ones(100_000_000), "b": torch.ones(30_000_000)}}, self.dir / "dcp")

        def measure(*words):
            done = subprocess.run([sys.executable, "-c", MEASURE, *words], env={**os.environ, "OMP_NUM_THREADS": "1"},
                                  timeout=LIMIT_S, capture_output=True, text=True, check=True)
            return int(done.stdout.split()[-1])
        self.assertLess(measure("", self.dir / "dcp", self.dir / "steps"), 200)
        self.assertLess(measure("torch", self.dir / "steps", self.dir / "back"), 200)

    def test_usage(self):
        save_dcp({"a": torch.ones(1)}, self.dir / "dcp")
        self.convert(self.dir / "dcp", self.dir / "steps")
        self.assertIn("step 0 already", self.convert(self.dir / "dcp", self.dir / "steps", expect=2))
        self.convert(self.dir / "dcp", self.dir / "steps", "--step", 3)
        self.assertIn("exists", self.convert(self.dir / "steps", self.dir / "dcp", expect=2))
        self.assertIn("neither a directory nor a file", self.convert(self.dir / "no", self.dir / "x", expect=2))
        self.convert(self.dir / "dcp", self.dir / "x", "--flat", expect=2)
        self.convert(self.dir / "steps", self.dir / "x", "--skip-objects", expect=2)
        (self.dir / "empty").mkdir()
        self.convert(self.dir / "empty", self.dir / "x", expect=1)
        self.assertFalse((self.dir / "x").exists())

    def test_without_torch(self):
        save_dcp({"a": torch.arange(5.), "n": 1}, self.dir / "dcp")
        hidden = ("import sys; sys.modules['torch'] = None; from libdcp import convert; "
                  "sys.exit(convert.main(sys.argv[1:]))")
        words = [sys.executable, "-c", hidden]
        subprocess.run([*words, self.dir / "dcp", self.dir / "steps"], check=True, timeout=LIMIT_S, capture_output=True)
        with libdcp.Checkpoint(self.dir / "steps") as checkpoint:
            self.assertEqual(checkpoint["/model/a"].tolist(), [0, 1, 2, 3, 4])
        done = subprocess.run([*words, self.dir / "steps", self.dir / "back"], timeout=LIMIT_S, capture_output=True)
        self.assertEqual((done.returncode, b"torch is needed" in done.stderr), (1, True), done.stderr)
        self.assertEqual([path.name for path in self.dir.iterdir() if "back" in path.name], [])

    def test_damaged_step(self):
        """Nothing is left of a directory that could not be completed."""
        libdcp.save(self.dir / "steps", 1, {"a": torch.arange(5000.)})
        path = self.dir / "steps" / "step-00000001" / "state.h5"
        data = path.read_bytes()
        at = data.index(torch.tensor([777., 778.]).numpy().tobytes())
        path.write_bytes(data[:at] + b"\1" + data[at + 1:])
        self.assertIn("/model/a", self.convert(self.dir / "steps", self.dir / "back", expect=1))
        self.assertEqual([p.name for p in self.dir.iterdir()], ["steps"])


class Hostile(Base):
    """Each forged directory is refused with a message, and no step is made."""

    def setUp(self):
        super().setUp()
        self.src = self.dir / "dcp"
        save_dcp({"model": {"w": torch.arange(12.).reshape(3, 4), "v": torch.ones(2)}, "note": {"a": [1, 2]}}, self.src)
        self.metadata = (self.src / ".metadata").read_bytes()
        self.data = (self.src / "__0_0.distcp").read_bytes()

    def refused(self, pattern, *options):
        said = self.convert(self.src, self.dir / "steps", *options, expect=1)
        self.assertRegex(said, pattern)
        self.assertEqual(libdcp.steps(self.dir / "steps"), [])
        return said

    def forge(self, change):
        """Changes the metadata by a function."""
        metadata = pickle.loads(self.metadata)
        change(metadata)
        (self.src / ".metadata").write_bytes(pickle.dumps(metadata))

    def put(self, name, data):
        """Puts other bytes for an item behind the others."""
        (self.src / "__0_0.distcp").write_bytes(self.data + data)

        def change(metadata):
            info = next(info for index, info in metadata.storage_data.items() if index.fqn == name)
            info.offset, info.length = len(self.data), len(data)
        self.forge(change)

    def test_nothing_is_run(self):
        touch = call("os", "system", f"touch {self.dir}/ran") + b"."
        (self.src / ".metadata").write_bytes(b"\x80\2" + touch)
        self.refused(r"\.metadata: it names os\.system")
        for name, says in (("note.a", r"is a os\.system, which is neither a tensor nor plain data; nothing was run"),
                           ("model.w", r"__0_0\.distcp: at bytes \d+ to \d+: data\.pkl: it names os\.system")):
            self.put(name, zip_of(pickle=b"\x80\2" + touch, storage=bytes(48)))
            self.refused(says)
        self.put("note.a", zip_of(pickle=b"\x80\2" + call("builtins", "eval", "1") + b"."))
        said = self.convert(self.src, self.dir / "steps", "--skip-objects")
        self.assertIn("left out: note.a", said)
        self.assertEqual(list(libdcp.Checkpoint(self.dir / "steps")), ["/model/v", "/model/w"])
        self.assertFalse((self.dir / "ran").exists())

    def test_objects(self):
        for code, pattern in ((pickle.dumps(datetime.date(2026, 1, 2), 2), "note.a.*datetime.date"),
                              (pickle.dumps({"k": fractions.Fraction(1)}, 3), "note.a.*Fraction"),
                              (pickle.dumps({(1, 2): 3}, 2), "note.a.*a key that is a tuple"),
                              (pickle.dumps(1 << 5000, 2), "note.a.*5001 bits"),
                              (pickle.dumps(pathlib.Path("x"), 2), "note.a.*pathlib")):
            self.put("note.a", zip_of(pickle=code))
            self.refused(pattern)

    def test_bombs(self):
        again = b"]q\0h\0a"  # a list within itself
        twice = b"]" + b"".join(b"q%c]q%c(h%ch%ce" % (i, i + 1, i, i) for i in range(60))
        text = b"X" + (1 << 20).to_bytes(4, "little") + bytes(1 << 20) + b"q\0](" + b"h\0" * 1000 + b"e"
        for code, pattern in ((again, "within each other"), (twice, "room for|within each other"), (text, "room for"),
                              (b"Nr\xff\xff\xff\xff0N", None), (b"\x8e" + b"\xff" * 7 + b"\x7f", "it ends"),
                              (b"\x8b\xff\xff\xff\x7f", "it ends"), (b"(" * 100000, "missing"), (b"h\5", "not known"),
                              (b"}NNs", "a key that is None"), (b"Na", "missing|added"), (b"NNb", "state")):
            self.put("note.a", zip_of(pickle=b"\x80\2" + code + b"."))
            if pattern:
                self.refused(pattern)
            else:
                self.convert(self.src, self.dir / "good")
                self.assertIsNone(libdcp.Checkpoint(self.dir / "good").json["state"]["note"]["a"])
        self.put("note.a", zip_of(zipfile.ZIP_DEFLATED, pickle=b"\x80\2X" + (1 << 24).to_bytes(4, "little")
                                  + bytes(1 << 24) + b"."))
        self.refused("compressed")
        self.put("note.a", zip_of(pickle=bytes(17 << 20)))
        self.refused("at most")

    def test_places(self):
        def place(**members):
            def change(metadata):
                info = next(i for index, i in metadata.storage_data.items() if index.fqn == "model.w")
                vars(info).update(members)
            return change
        os.mkfifo(self.src / "fifo")
        (self.dir / "outside").write_bytes(self.data)
        for change, pattern in (
                (place(relative_path="../outside"), "not in that folder"),
                (place(relative_path="/etc/passwd"), "not in that folder"),
                (place(relative_path=".."), "not in that folder"), (place(relative_path="a\0b"), "not in that folder"),
                (place(relative_path="none.distcp"), "cannot be opened"), (place(relative_path="fifo"), "fifo: is not a regular file"),
                (place(offset=-1), "makes no sense"), (place(offset=1 << 70), "makes no sense"),
                (place(offset=1 << 40), r"has \d+ bytes, but"),
                (place(length=1 << 40), r"are both at byte|has \d+ bytes, but"), (place(length=30), "no zip"),
                (place(offset="0"), "makes no sense"), (place(relative_path=5), "no sense"),
                (place(transform_descriptors=["zstd"]), "extension")):
            self.forge(change)
            self.refused(pattern)

        def share(metadata):
            infos = [i for index, i in metadata.storage_data.items() if index.fqn.startswith("model")]
            vars(infos[0]).update(vars(infos[1]))
        self.forge(share)
        self.refused("are both at byte")

    def test_shapes(self):
        def tensor(size=None, chunks=None):
            def change(metadata):
                described = metadata.state_dict_metadata["model.w"]
                described.size = described.size if size is None else torch.Size(size)
                if chunks is not None:
                    info = next(i for index, i in metadata.storage_data.items() if index.fqn == "model.w")
                    described.chunks = [ChunkStorageMetadata(torch.Size(o), torch.Size(s)) for o, s in chunks]
                    metadata.storage_data.update({MetadataIndex("model.w", o): info for o, _ in chunks})
            return change
        for change, pattern in (
                (tensor((3, 5)), r"model\.w: its chunks leave a gap at \(0, 4\)"), (tensor((3, 3)), "not within"),
                (tensor((3, 4), []), r"leave a gap at \(0, 0\)"), (tensor((3,)), "not within"),
                (tensor((2**40, 2**40), [((0, 0), (2**40, 2**40))]), "too large"),
                (tensor((2**30, 2**20), [((0, 0), (2**30, 2**20))]), "should have float32 of shape"),
                (tensor((6, 4), [((0, 0), (3, 4)), ((2, 0), (3, 4)), ((5, 0), (1, 4))]), r"overlap at \(2, 0\)"),
                (tensor((6, 4), [((0, 0), (3, 4)), ((4, 0), (2, 4))]), r"leave a gap at \(3, 0\)"),
                (tensor((1,) * 9, [((0,) * 9, (1,) * 9)]), "at most 8 sizes"),
                (tensor((4, 3), [((0, 0), (4, 3))]), "should have float32 of shape")):
            self.forge(change)
            self.refused(pattern)

        def other_type(metadata):
            metadata.state_dict_metadata["model.w"].properties.dtype = torch.float64
        self.forge(other_type)
        self.refused("should have float64")
        self.forge(lambda metadata: metadata.storage_data.clear())
        self.refused("nothing says in which file|makes no sense|None in the place")

    def test_forged_tensors(self):
        def number(n):
            return b"\x8a\x09" + n.to_bytes(9, "little", signed=True)

        def tensor(first=0, shape=(3, 4), strides=(4, 1), elements=12):
            made = io.BytesIO()
            torch.save(torch.arange(12.).reshape(3, 4), made)
            code = zipfile.ZipFile(made).read("archive/data.pkl")
            for old, new in ((b"K\3K\4\x86", shape), (b"K\4K\1\x86", strides)):
                self.assertEqual(code.count(old), 1)
                code = code.replace(old, b"(" + b"".join(map(number, new)) + b"t")
            code = code.replace(b"QK\0", b"Q" + number(first))
            return zip_of(pickle=code, storage=bytes(4 * elements))
        self.put("model.w", tensor())
        self.convert(self.src, self.dir / "good")
        for forged, pattern in (
                (tensor(elements=11), "needs 48 bytes, but data/0 has 44"), (tensor(first=1), "needs 52 bytes"),
                (tensor(strides=(2**61, 1)), "needs"), (tensor(strides=(-4, 1)), "make no sense"),
                (tensor(first=-1), "make no sense"), (tensor(shape=(2**61, 2**61)), "needs"),
                (tensor(shape=(3,)), "make no sense"), (zip_of(storage=b""), "no data.pkl"), (b"", "no zip"),
                (zip_of(pickle=b"\x80\2N."), "None in the place of a dense tensor"),
                (b"PK\5\6" + bytes(18), "no zip|no data.pkl")):
            self.put("model.w", forged)
            self.refused(pattern)

    def test_names(self):
        def keys(*names):
            def change(metadata):
                metadata.planner_data["model.w"] = names
            return change
        for change, pattern in (
                (keys("dcp", "w"), "/dcp"), (keys("model", "../w"), r"/model/\.\./w"), (keys("model", "a\0b"), "NUL"),
                (keys("model", "x" * 2000), "1.?024"), (keys("model", ""), "/model/"),
                (keys("model", "v"), "same keys"),
                (keys("model", "v", "w"), "not a mapping|twice"), (keys("model", "l", 2**30), "a list of"),
                (keys("model", 1.5), "neither texts nor indices"), (keys("model", "\ud800"), "UTF-8")):
            self.forge(change)
            self.refused(pattern)

    def test_truncated(self):
        for n in range(0, len(self.metadata), 61):
            (self.src / ".metadata").write_bytes(self.metadata[:n])
            self.refused(r"\.metadata: ")
        (self.src / ".metadata").write_bytes(self.metadata)
        for n in range(0, len(self.data), 61):
            (self.src / "__0_0.distcp").write_bytes(self.data[:n])
            self.refused("__0_0.distcp")

    def test_flipped(self):
        """Whatever is changed, the program ends with a valid status."""
        random.seed(1)
        for name, whole in ((".metadata", self.metadata), ("__0_0.distcp", self.data)):
            for _ in range(400):
                forged = bytearray(whole)
                for _ in range(random.randrange(1, 4)):
                    forged[random.randrange(len(forged))] = random.randrange(256)
                (self.src / name).write_bytes(forged)
                with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
                    self.assertIn(convert.main([str(self.src), str(self.dir / "steps")]), (0, 1))
                shutil.rmtree(self.dir / "steps", ignore_errors=True)
            (self.src / name).write_bytes(whole)

    def test_older_names(self):
        """Torch 2.0 has TensorProperties in another place, and no storage_meta or version."""
        def change(metadata):
            for described in metadata.state_dict_metadata.values():
                if hasattr(described, "properties"):
                    described.properties = OldTensorProperties(dtype=described.properties.dtype)
            del metadata.storage_meta, metadata.version
        self.forge(change)
        self.assertIn(b"sharded_tensor.metadata", (self.src / ".metadata").read_bytes())
        self.convert(self.src, self.dir / "steps")


class Pickles(unittest.TestCase):
    def test_values(self):
        value = {"a": [1, -1, 255, 256, 65536, 2**31, -2**70, 1.5, None, True, False],
                 "b": ((), (1,), (1, 2), (1, 2, 3)), "c": ("x" * 300, "", "grün", (1, 2, 3, 4, 5)), 7: {}, "d": [[]],
                 "e": b"bytes"}
        value["again"] = value["a"]
        for protocol in (3, 4, 5):
            self.assertEqual(_pickles.read(pickle.dumps(value, protocol), frozenset()), value)


if __name__ == "__main__":
    unittest.main()
