"""Which programs that use the package mypy refuses, and which it accepts: lines that end in ``# refused`` and
others."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import libdcp

PROGRAM = '''
import numpy as np
import libdcp
import libdcp.dcp
import libdcp.convert

state = {"w": np.ones(2)}
libdcp.save("run", 1, state, layout="sharded", progress=lambda done, total: None, json={"a": 1}, keep=2)
libdcp.save("run", 1, state, layout="shraded")  # refused
libdcp.save("run", 1, state, progres=print)  # refused
libdcp.save("run", 1, state, replicas="chek")  # refused
libdcp.save("run", "1", state)  # refused
libdcp.save(state, 1, "run")  # refused
libdcp.save_async("run", 1, state, engine="direct", staging_bytes=1 << 20)
libdcp.save_async("run", 1, state, engine="drect")  # refused
libdcp.save_async("run", 1, state, staging_bites=1)  # refused
loaded = libdcp.load("run", state, strict=False, only="/model/*", step=3)
libdcp.load("run", state, stric=False)  # refused
libdcp.load("run", state, cast="yes")  # refused
libdcp.load("run", state, step="3")  # refused
libdcp.load("run", state, fall_back=False)
libdcp.load("run", state, fall_back="no")  # refused
missing: list[str] = loaded.missing
count: int = loaded.unexpected  # refused
step: int = loaded["step"]
with libdcp.Store("run", keep=3) as store:
    store.save(1, state, make_room=True)
    store.save(1, state, make_rom=True)  # refused
    store.save(1, state, layout="locale")  # refused
    store.save_async(1, state, replicas="trust").fence()
    store.save_async(1, state, replica="trust")  # refused
    store.load(state, step=1, fall_back=False, cast=True)
    store.load(state, fallback=False)  # refused
    store.load(state, rename=["a", "b"])  # refused
    store.pin(1).release()
    store.pin("1")  # refused
    store.nothing()  # refused
libdcp.Store("run", kep=3)  # refused
libdcp.Tier("run", layout="locale")  # refused
libdcp.prove(state, replicas="check")
libdcp.prove(state, replicas="chek")  # refused
libdcp.prove(state, replica="check")  # refused
libdcp.nothing  # refused
libdcp.dcp.nothing  # refused
writer = libdcp.dcp.Writer("run", step=1, layout="sharded")
libdcp.dcp.Writer("run", layout="shraded")  # refused
libdcp.dcp.Writer("run", stepp=1)  # refused
libdcp.dcp.Reader("run", cast=True)
libdcp.dcp.Reader("run", step="1")  # refused
number: int = writer.report  # refused
libdcp.read("run", lazy=True)
libdcp.read("run", lazy="yes")  # refused
libdcp.hf.export("run", "folder", dtype="bf16", max_shard_size="5GB")
libdcp.hf.export("run", "folder", max_size=5)  # refused
names: list[str] = libdcp.hf.load("folder", state, strict=False, cast=True).missing
libdcp.hf.load("folder", state, strict="no")  # refused
'''


def has_mypy():
    return subprocess.run([sys.executable, "-c", "import mypy, torch"], capture_output=True).returncode == 0


@unittest.skipUnless(has_mypy(), "needs mypy and torch")
class Test(unittest.TestCase):
    def test_program(self):
        with tempfile.TemporaryDirectory(prefix="dcp-typing-") as scratch:
            file = pathlib.Path(scratch, "program.py")
            file.write_text(PROGRAM)
            package = pathlib.Path(libdcp.__file__).parent.parent  # also if it is installed
            found = {"MYPYPATH": str(package)} if package.name == "src" else {}
            done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", scratch, file], cwd=scratch,
                                  capture_output=True, text=True, env={**os.environ, **found})
        refused = {int(number) for number in re.findall(r"program\.py:(\d+): error", done.stdout)}
        expected = {i for i, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# refused")}
        self.assertEqual(refused, expected, done.stdout + done.stderr)
        self.assertTrue(expected)


if __name__ == "__main__":
    unittest.main()
