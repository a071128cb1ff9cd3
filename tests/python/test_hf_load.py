"""libdcp.hf.load of numpy states, and of files that are damaged or hostile. Needs only numpy."""

import json
import os
import pathlib
import signal
import struct
import tempfile
import unittest

import numpy as np

import libdcp
import libdcp.hf

NAMES = {"float32": "F32", "float64": "F64", "int64": "I64", "float16": "F16", "int8": "I8", "bool": "BOOL",
         "complex64": "C64"}


def st_bytes(tensors, header=None):
    """A safetensors file of these arrays; ``header`` changes its header."""
    entries, data = {}, b""
    for name, array in tensors.items():
        entries[name] = {"dtype": NAMES[str(array.dtype)], "shape": list(array.shape),
                         "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    if header:
        header(entries)
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def arrays():
    rng = np.random.default_rng(2)
    return {"a.w": rng.standard_normal((6, 5, 4)).astype(np.float32), "a.b": rng.standard_normal(7), "n": np.arange(4),
            "flags": np.array([True, False]), "half": np.ones((2, 3), np.float16), "scalar": np.array(2.5, np.float32),
            "none": np.zeros((0, 3), np.float32), "c": np.array([1 + 2j], np.complex64)}


def blank(state):
    return {name: np.zeros_like(value) for name, value in state.items()}


class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-hf-load-")
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def write(self, name="model.safetensors", content=None, **more):
        (self.dir / name).write_bytes(st_bytes(arrays(), **more) if content is None else content)

    def write_shards(self, shards, more=None):
        for i, shard in enumerate(shards):
            self.write(f"model-{i}.safetensors", st_bytes(shard))
        index = {name: f"model-{i}.safetensors" for i, shard in enumerate(shards) for name in shard}
        (self.dir / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {**index, **(more or {})}}))

    def assert_same(self, one, other):
        self.assertEqual(one.keys(), other.keys())
        for name, value in one.items():
            np.testing.assert_array_equal(value, other[name])

    def refused(self, state, status, said, path=None, **options):
        before = {name: value.copy() for name, value in state.items()}
        with self.assertRaisesRegex(libdcp.Error, said) as caught:
            libdcp.hf.load(path or self.dir, state, **options)
        self.assertEqual(caught.exception.status.name, status)
        self.assert_same(state, before)

    def test_file_folder_and_shards(self):
        self.write()
        for path in (self.dir, self.dir / "model.safetensors", str(self.dir)):
            state = blank(arrays())
            found = libdcp.hf.load(path, state)
            self.assert_same(state, arrays())
            self.assertEqual((found, found.missing, found.unexpected), ({}, [], []))
        (self.dir / "model.safetensors").unlink()
        names = sorted(arrays())
        self.write_shards([{name: arrays()[name] for name in part} for part in (names[:3], names[3:])])
        (self.dir / "config.json").write_text('{"model_type": "x"}')
        for path in (self.dir, self.dir / "model.safetensors.index.json"):
            state = {"model": blank(arrays())}
            self.assertEqual(libdcp.hf.load(path, state), {"model": {"model_type": "x"}})
            self.assert_same(state["model"], arrays())

    def test_nested_states_and_numbers(self):
        self.write()
        state = {"model": {"a": {"w": np.zeros((6, 5, 4), np.float32), "b": np.zeros(7)}, **blank(arrays()), "epoch": 3}}
        for name in ("a.w", "a.b"):
            del state["model"][name]
        libdcp.hf.load(self.dir, state)
        np.testing.assert_array_equal(state["model"]["a"]["w"], arrays()["a.w"])
        self.assertEqual(state["model"]["epoch"], 3)

    def test_parts(self):
        """Boxes of a tensor, and arrays whose elements are apart in memory."""
        self.write()
        whole = arrays()["a.w"]
        for cut in ((slice(2, 5),), (slice(None), slice(1, 3)), (slice(1, 4), slice(0, 5), slice(2, 3)), (slice(3, 3),),
                    (slice(4, 6), slice(2, 3), slice(0, 4))):
            with self.subTest(cut):
                part = np.zeros_like(whole)[cut]
                start = tuple(piece.start for piece in cut) + (0,) * (3 - len(cut))
                start = tuple(s or 0 for s in start)
                state = {"a.w": libdcp.Shard(part, whole.shape, start)}
                libdcp.hf.load(self.dir, state, strict=False)
                np.testing.assert_array_equal(part, whole[cut])
        memory = np.zeros((6, 5, 8), np.float32)
        libdcp.hf.load(self.dir, {"a.w": memory[..., ::2]}, strict=False)
        np.testing.assert_array_equal(memory[..., ::2], whole)
        self.assertEqual(np.count_nonzero(memory[..., 1::2]), 0)

    def test_large(self):
        """Runs of the file that are read one by one, and a tensor that is too large for one read."""
        big = np.arange(5 << 21, dtype=np.float32).reshape(40, 1 << 18)
        self.write(content=st_bytes({"w": big}))
        for start, count in (((3, 5), (30, 100)), ((0, 1 << 17), (40, 1 << 17)), ((0, 0), (40, 1 << 18))):
            part = np.zeros(count, np.float32)
            libdcp.hf.load(self.dir, {"w": libdcp.Shard(part, big.shape, start)})
            np.testing.assert_array_equal(part, big[start[0]:start[0] + count[0], start[1]:start[1] + count[1]])

    def test_differences(self):
        self.write()
        state = blank(arrays())
        del state["a.b"], state["n"]
        state["more"] = np.zeros(2)
        self.refused(state, "NOT_FOUND", "the folder lacks more; the state lacks a.b, n: .*strict=False")
        del state["more"]
        self.refused(state, "MISMATCH", ": the state lacks a.b, n: ")
        state["more"] = np.zeros(2)
        found = libdcp.hf.load(self.dir, state, strict=False)
        self.assertEqual((found.missing, found.unexpected), (["more"], ["a.b", "n"]))
        np.testing.assert_array_equal(state["half"], arrays()["half"])
        many = {f"x{i}": np.zeros(1) for i in range(20)}
        self.refused(many, "NOT_FOUND", "x0, .*12 more")
        self.refused({"optimizer": np.zeros(1), **blank(arrays())}, "NOT_FOUND", "optimizer")

    def test_types_and_shapes(self):
        self.write()
        state = {**blank(arrays()), "a.b": np.zeros(7, np.float32)}
        self.refused(state, "MISMATCH", "'a.b'.*F32 .7,. in the state, and F64 .7,. in .*cast=True")
        libdcp.hf.load(self.dir, state, cast=True)
        np.testing.assert_array_equal(state["a.b"], arrays()["a.b"].astype(np.float32))
        self.refused({**blank(arrays()), "a.b": np.zeros(8)}, "MISMATCH", "F64 .8,. in the state, and F64 .7,.", cast=True)
        self.refused({**blank(arrays()), "flags": np.zeros(2, np.complex64), "n": np.zeros(4, np.int8)}, "MISMATCH", "'n'")
        frozen = blank(arrays())
        frozen["n"].flags.writeable = False
        with self.assertRaisesRegex(ValueError, "'n'.*read-only"):
            libdcp.hf.load(self.dir, frozen)
        self.assertEqual(frozen["a.w"].any(), False)

    def test_names_of_wrappers(self):
        self.write()
        state = {f"module._orig_mod.{name}": value for name, value in blank(arrays()).items()}
        libdcp.hf.load(self.dir, state)
        self.assert_same({name.removeprefix("module._orig_mod."): value for name, value in state.items()}, arrays())

    def test_tied_by_the_configuration(self):
        embedding = np.ones((2, 3), np.float32)
        self.write(content=st_bytes({"model.embed_tokens.weight": embedding}))
        state = {name: np.zeros((2, 3), np.float32) for name in ("model.embed_tokens.weight", "lm_head.weight")}
        self.refused(state, "NOT_FOUND", "the folder lacks lm_head.weight")
        (self.dir / "config.json").write_text('{"tie_word_embeddings": true}')
        libdcp.hf.load(self.dir, state)
        self.assert_same(state, dict.fromkeys(state, embedding))
        self.write(content=st_bytes(state))
        libdcp.hf.load(self.dir, {"model.embed_tokens.weight": np.zeros((2, 3), np.float32)})

    def test_hostile_files(self):
        def change(entry, **members):
            return lambda header: header[entry].update(members)
        good = st_bytes(arrays())
        cases = {
            "offset": (st_bytes(arrays(), change("n", data_offsets=[0, 10**9])), "CORRUPT"),
            "negative": (st_bytes(arrays(), change("n", data_offsets=[-8, 24])), "CORRUPT"),
            "overlap": (st_bytes(arrays(), change("n", data_offsets=[0, 32])), "CORRUPT"),
            "shape": (st_bytes(arrays(), change("n", shape=[2**62, 4])), "CORRUPT"),
            "dimensions": (st_bytes(arrays(), change("n", shape=[1] * 60 + [4])), "UNSUPPORTED"),
            "dtype": (st_bytes(arrays(), change("n", dtype="X99")), "UNSUPPORTED"),
            "name": (st_bytes(arrays(), lambda header: header.update({"../n": header.pop("n")})), "CORRUPT"),
            "length": (struct.pack("<Q", 2**63) + good[8:], "CORRUPT"),
            "past the end": (struct.pack("<Q", len(good)) + good[8:], "CORRUPT"),
            "cut": (good[:-5], "CORRUPT"),
            "empty": (b"", "CORRUPT"),
            "no JSON": (struct.pack("<Q", 8) + b"[[[[[[[[", "CORRUPT"),
            "hole": (good + b"12345678", "CORRUPT"),
        }
        for name, (content, status) in cases.items():
            with self.subTest(name):
                self.write(content=content)
                self.refused(blank(arrays()), status, "safetensors")

    def test_hostile_folders(self):
        self.refused(blank(arrays()), "NOT_FOUND", "")
        self.refused(blank(arrays()), "NOT_FOUND", "nowhere", path=self.dir / "nowhere")
        outside = self.dir.with_name(self.dir.name + "-outside.safetensors")
        self.addCleanup(outside.unlink)
        outside.write_bytes(st_bytes({"x": np.ones(2)}))
        for file, status in ((f"../{outside.name}", "CORRUPT"), (str(outside), "CORRUPT"),
                             ("none.safetensors", "NOT_FOUND")):
            with self.subTest(file):
                self.write_shards([{"a": np.ones(1)}], {"x": file})
                self.refused({"a": np.zeros(1), "x": np.zeros(2)}, status, "")
        os.symlink(outside, self.dir / "link.safetensors")
        self.write_shards([{"a": np.ones(1)}], {"x": "link.safetensors"})
        self.refused({"a": np.zeros(1), "x": np.zeros(2)}, "CORRUPT", "link")
        self.write_shards([{"a": np.ones(1)}], {"x": "model-0.safetensors"})  # which lacks it
        self.refused({"a": np.zeros(1), "x": np.zeros(2)}, "NOT_FOUND", "the folder lacks x")
        self.write_shards([{"a": np.ones(1)}])
        (self.dir / "config.json").write_text("{" * 10)
        self.refused({"a": np.zeros(1)}, "CORRUPT", "config.json: is no JSON")

    def test_pipes(self):
        """A pipe in the place of any file is refused by name; opening it would wait for a writer."""
        signal.alarm(60)  # ends a load that waits
        self.addCleanup(signal.alarm, 0)
        for name in ("model-0.safetensors", "model.safetensors.index.json", "model.safetensors", "config.json"):
            with self.subTest(name):
                self.write_shards([{"a": np.ones(1)}])
                (self.dir / name).unlink(missing_ok=True)
                os.mkfifo(self.dir / name)
                self.refused({"a": np.zeros(1)}, "CORRUPT" if name == "config.json" else "IO", f"{name}: .*not a regular file")
                (self.dir / name).unlink()

    def test_options(self):
        self.write()
        for call in (lambda: libdcp.hf.load(self.dir, blank(arrays()), strict=3),
                     lambda: libdcp.hf.load("hf://a/b", blank(arrays())), lambda: libdcp.hf.load("", {})):
            with self.assertRaises(ValueError):
                call()
        for call in (lambda: libdcp.hf.load(blank(arrays()), self.dir), lambda: libdcp.hf.load(self.dir, [1])):
            with self.assertRaises(TypeError):
                call()


if __name__ == "__main__":
    unittest.main()
