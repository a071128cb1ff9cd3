"""The tests in tests/cli of dcp-inspect, dcp-export, dcp-import and dcp-reshard pass on the package's programs.

The package's programs are without MPI, so `mpirun -n N PROGRAM` of these tests starts one process here, and DCP_ALONE=1
leaves out what only ranks can show. Other programs that the tests use are those of the build."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import libdcp

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILT, HELPERS = SOURCE / "build/bin", SOURCE / "build/tests/bin"
PACKAGED = pathlib.Path(libdcp.__file__).parent / "bin"
SCRIPTS = [script for pattern in ("inspect_*", "reshard_*", "export_*", "import_*") for script in
           sorted((SOURCE / "tests/cli").glob(pattern))] + [
    SOURCE / "tests/cli" / name for name in ("open_readers.sh", "statuses.sh", "tools_usage.sh", "verify_ranks.py")]
ALONE = '#!/bin/sh\n# alone -n N PROGRAM ARGUMENTS\nshift 2\nexec "$@"\n'
SKIPPED = 77


@unittest.skipUnless(PACKAGED.is_dir(), "needs the installed package")
@unittest.skipUnless((HELPERS / "make_state").exists(), "needs the programs that tests/run.sh builds")
class Test(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-cli-")
        self.addCleanup(scratch.cleanup)
        self.bin = pathlib.Path(scratch.name)
        for program in (*BUILT.glob("dcp-*"), *PACKAGED.iterdir()):
            (self.bin / program.name).unlink(missing_ok=True)
            (self.bin / program.name).symlink_to(program)
        alone = self.bin / "alone"
        alone.write_text(ALONE)
        alone.chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", "DCP_BIN": str(self.bin),
                            "DCP_MPIRUN": str(alone), "DCP_ALONE": "1", "DCP_SOURCE": str(SOURCE),
                            "DCP_PYTHON": sys.executable, "MAKE_CHECKPOINT": str(HELPERS / "make_checkpoint"),
                            "MAKE_STATE": str(HELPERS / "make_state"), "CRASH_INJECT": str(HELPERS / "crash_inject.so"),
                            "CRASH_REFUSE": str(HELPERS / "crash_refuse.so")}

    def run_script(self, script):
        words = [sys.executable, "-B", script] if script.suffix == ".py" else [script]
        return subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def test_scripts(self):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for script, done in zip(SCRIPTS, pool.map(self.run_script, SCRIPTS)):
                with self.subTest(script.name):
                    self.assertIn(done.returncode, (0, SKIPPED), done.stdout[-3000:])


if __name__ == "__main__":
    unittest.main()
