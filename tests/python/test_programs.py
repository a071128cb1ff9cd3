"""``python -m libdcp`` has the output and exit status of dcp-inspect. With numpy alone."""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import libdcp
from libdcp import _programs

ROOT = pathlib.Path(os.environ.get("LIBDCP_LIBRARY", pathlib.Path(__file__).parents[2] / "build/lib/x")).parents[1]
INSPECT = ROOT / "bin/dcp-inspect"


def shown(*words):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def ours(*words):
    """Runs it in this process, since Python takes some time to start."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = _programs.main(list(map(str, words)))
        except SystemExit as e:
            status = e.code
    return status, out.getvalue(), err.getvalue()


@unittest.skipUnless(INSPECT.is_file(), "needs dcp-inspect")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-programs-")
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        self.file = pathlib.Path("run/step-00000003/state.h5")
        state = {"model": {"a\tb": np.arange(12.0).reshape(3, 4), "w": np.ones(7, np.int16)}, "n": 3}
        with libdcp.Store("run") as store:
            store.save(1, state)
            store.save(2, state, layout="sharded")
            store.save(3, state)
            store.save(4, state)
            store.continue_from(3)
            store.save(5, state)
        os.makedirs("run/.tmp-step-00000009")
        os.makedirs("none")

    def flip(self, at):
        raw = bytearray(self.file.read_bytes())
        raw[at] ^= 1
        self.file.write_bytes(raw)

    def without_age(self, shown):
        """Removes the age, which changes every moment."""
        return re.sub(r'(?m)^ *"age_s": \d+,$| +\d+ s\b', "", shown)

    def same(self, *words):
        """stdout and exit status are those of dcp-inspect, and stderr, too, except for the program's name."""
        status, out, err = ours(*words)
        expected = shown(INSPECT, *words)
        out, should = self.without_age(out), self.without_age(expected[1])
        if "--json" in words and status < 2:
            self.assertEqual(json.loads(out), json.loads(should), err)
        else:
            self.assertEqual(out, should, err)
            self.assertEqual(err.replace("libdcp: ", "dcp-inspect: "), expected[2])
        self.assertEqual(status, expected[0])
        return status

    def test_steps(self):
        for words in ((), ("--json",), ("--verify",), ("--verify", "--json")):
            with self.subTest(words):
                self.assertEqual(self.same("ls", "run", *words), 0)
        self.same("ls", "none")
        self.same("ls", "none", "--json")
        for wrong in ("run/step-00000001", self.file):
            self.assertEqual(self.same("ls", wrong), 2)
        self.flip(5)  # a byte of the user block
        for words in ((), ("--json",), ("--verify",)):
            self.same("ls", "run", *words)

    def test_every_byte(self):
        for words in (("run",), ("run", "--json"), ("run/step-00000002",), ("run", "--all"), ("run", "--all", "--json")):
            with self.subTest(words):
                self.assertEqual(self.same("verify", *words), 0)
        self.assertEqual(self.same("verify", "none"), 2)
        self.assertEqual(self.same("verify", "none", "--all"), 2)
        self.assertEqual(self.same("verify", self.file), 2)
        self.flip(self.file.read_bytes().index(np.arange(12.0).tobytes()))
        for words in (("run/step-00000003",), ("run/step-00000003", "--json"), ("run", "--all")):
            with self.subTest(words):
                self.assertEqual(self.same("verify", *words), 1)
        self.file = pathlib.Path("run/step-00000005/state.h5")
        self.flip(self.file.read_bytes().index(np.arange(12.0).tobytes()))
        self.assertEqual(self.same("verify", "run"), 1)

    def test_checksums(self):
        for words in (("run",), ("run", "--json"), ("run/step-00000002", "--json"), ("run", "w"), ("run", "/model/*b"),
                      ("run", "model/w", "--json")):
            with self.subTest(words):
                self.assertEqual(self.same("prove", *words), 0)
        self.assertEqual(self.same("prove", "run", "nothing"), 2)
        self.assertEqual(ours("prove", "none")[0], shown(INSPECT, "prove", "none")[0])

    def test_usage(self):
        for words in ((), ("nothing",), ("ls",), ("ls", "run", "--nothing"), ("ls", "s3://bucket"), ("verify", "s3://bucket")):
            with self.subTest(words):
                self.assertEqual(ours(*words)[:2], (2, ""))
        for words in (("--help",), ("ls", "--help"), ("convert", "--help")):
            self.assertEqual(ours(*words)[::2], (0, ""))
        self.assertEqual(shown(sys.executable, "-m", "libdcp", "--version"), (0, f"libdcp {libdcp.__version__}\n", ""))


if __name__ == "__main__":
    unittest.main()
