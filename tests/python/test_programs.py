"""``python -m libdcp COMMAND`` starts the programs that are beside the library. With numpy alone."""

import importlib.metadata
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import libdcp
from libdcp import _capi, _programs

BIN = pathlib.Path(_capi.PATH).resolve().parent.parent / "bin"
IS_PACKAGE = BIN.parent == pathlib.Path(libdcp.__file__).resolve().parent
LAUNCHED = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}


def command(*words):
    return [sys.executable, "-m", "libdcp", *map(str, words)]


def shown(*words, **environment):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def ours(*words, **environment):
    return shown(*command(*words), **environment)


@unittest.skipUnless((BIN / "dcp-inspect").is_file(), "needs the programs beside the library")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-programs-")
        self.addCleanup(scratch.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(scratch.name)
        self.values = np.arange(60000.0)
        libdcp.save("run", 3, {"model": {"w": self.values}})

    def test_each_command(self):
        for name in _programs._COMMANDS:
            with self.subTest(name):
                status, out, err = ours(name, "--help")
                self.assertEqual((status, err), (0, ""))
                if name != "convert":
                    self.assertTrue(out.startswith(f"Usage: libdcp {name} "), out)
                    for text in ("dcp-inspect", "dcp-export", "dcp-import", "dcp-reshard", "mpirun"):
                        self.assertNotIn(text, out)
        self.assertEqual(ours("--help")[::2], (0, ""))
        self.assertEqual(ours("--version"), (0, f"libdcp {libdcp.__version__}\n", ""))

    def test_output_and_status_are_the_programs(self):
        for words in (("prove", "run"), ("show", "run", "w[:3]"), ("diff", "run", "run")):
            with self.subTest(words):
                self.assertEqual(ours(*words), (0, shown(BIN / "dcp-inspect", *words)[1], ""))
        self.assertEqual(json.loads(ours("ls", "run", "--json")[1])["steps"][0]["step"], 3)
        with open("run/step-00000003/state.h5", "r+b") as file:
            file.seek(5)
            file.write(b"?")
        self.assertEqual(ours("verify", "run"), (1, shown(BIN / "dcp-inspect", "verify", "run")[1], ""))

    def test_programs_that_write(self):
        self.assertEqual(ours("reshard", "run", "shards", "--layout", "sharded", "--world", "3")[0], 0)
        self.assertEqual(ours("export", "shards", "plain.h5", "--format", "hdf5")[0], 0)
        self.assertEqual(ours("reshard", "shards", "back", "--layout", "global")[0], 0)
        step = "step-00000003/state.h5"
        self.assertEqual(pathlib.Path("back", step).read_bytes(), pathlib.Path("run", step).read_bytes())
        self.assertIn(self.values.tobytes(), pathlib.Path("plain.h5").read_bytes())
        os.mkdir("hf")
        self.assertEqual(ours("import", "hf", "imported")[0], 2)

    def test_usage(self):
        for words, text in (((), "libdcp: missing command: one of ls, show"),
                            (("nothing",), "libdcp: 'nothing' is none of ls, show"),
                            (("ls",), "libdcp ls: missing argument DIR; try 'libdcp --help'"),
                            (("ls", "run/step-00000003"), "or try 'libdcp show'"),
                            (("ls", "dcp-export"), "libdcp ls: cannot open dcp-export: "),
                            (("export", "run"), "missing argument OUT; try 'libdcp export --help'"),
                            (("verify", "s3://bucket"), "s3://bucket"), (("convert", "s3://bucket", "x"), "s3://bucket")):
            with self.subTest(words):
                status, out, err = ours(*words)
                self.assertEqual((status, out), (2, ""))
                self.assertIn(text, err)

    def started(self):
        """Starts a program that fills the pipe to which it writes, and waits until it writes."""
        words = command("show", "run", "w", "--values", len(self.values))
        running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # ignored in the background
        self.addCleanup(running.stdout.close)
        os.read(running.stdout.fileno(), 1)
        return running

    def test_signals_end_it(self):
        running = self.started()
        running.send_signal(signal.SIGINT)
        self.assertEqual(running.wait(60), -signal.SIGINT)
        running = self.started()
        running.stdout.close()
        self.assertEqual(running.wait(60), -signal.SIGPIPE)

    def test_ranks_are_refused(self):
        self.assertEqual(ours("ls", "run", **LAUNCHED), (0, "", ""))  # rank 0 prints
        self.assertEqual(ours("convert", "run", "x", **LAUNCHED)[0], 2)
        if IS_PACKAGE:  # otherwise MPI_Init would need the launcher
            status, out, err = ours("reshard", "run", "x", "--layout", "global", **LAUNCHED)
            self.assertEqual((status, out), (2, ""))
            self.assertIn("runs as one process, not as 2 ranks", err)
        self.assertFalse(os.path.exists("x"))

    @unittest.skipUnless(IS_PACKAGE, "needs the installed package")
    def test_script(self):
        scripts = importlib.metadata.entry_points(group="console_scripts", name="libdcp")
        self.assertEqual([script.value for script in scripts], ["libdcp._programs:script"])
        script = pathlib.Path(sys.executable).with_name("libdcp")
        self.assertEqual(shown(script, "verify", "run"), ours("verify", "run"))

    def test_without_the_programs(self):
        status, out, err = ours("ls", "run", LIBDCP_LIBRARY=str(self.copied_library()))
        self.assertEqual((status, out), (3, ""))
        self.assertIn("bin/dcp-inspect: No such file or directory", err)

    def copied_library(self):
        """Copies the library to a folder beside which there is no folder bin."""
        os.mkdir("lonely")
        folder = pathlib.Path("lonely/lib").absolute()
        folder.mkdir()
        for file in pathlib.Path(_capi.PATH).resolve().parent.glob("libdcp*"):
            (folder / file.name).write_bytes(file.read_bytes())
        return folder / pathlib.Path(_capi.PATH).name


if __name__ == "__main__":
    unittest.main()
