"""The changes in docs/pytorch.md, applied to the programs in migrations, which then save and continue by libdcp."""

import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import libdcp

from torchrun import torchrun

HERE = pathlib.Path(__file__).parent
DOCS = HERE.parents[1] / "docs" / "pytorch.md"
PROGRAMS = {"torch_dcp": "torch", "torch_save": "torch", "fsdp1": "torch", "transformers_trainer": "transformers",
            "accelerate_loop": "accelerate", "lightning_trainer": "lightning"}  # and the packages that they need
RANKS = {"fsdp1": 2}
NOT_RUN = "engine.load_checkpoint"  # test_deepspeed.py loads such a step


def lines_of(program):
    return (HERE / "migrations" / f"{program}.py").read_text(encoding="utf-8").splitlines()


def changes():
    """The blocks of the documentation, each as lines with their marks, by the program that has the lines."""
    found = {}
    for block in re.findall(r"^```diff\n(.*?)^```", DOCS.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        change = block.splitlines()
        old = {line[1:].strip() for line in change if line[0] != "+"}
        if NOT_RUN not in block:
            [program] = [program for program in PROGRAMS if old <= {line.strip() for line in lines_of(program)}]
            found.setdefault(program, []).append(change)
    return found


def changed(lines, change):
    """Applies a change. Its lines follow one another in the program, but other lines may be between them."""
    at, indent, made = 0, "", list(lines)
    for i, line in enumerate(change):
        if line[0] == "+":
            made.insert(at, indent + line[1:])
            at += 1
            continue
        at = next(i for i in range(at, len(made)) if made[i].strip() == line[1:].strip())
        if i == 0 or change[i - 1][0] != "-" or line[1] != " ":  # otherwise it is inside of the removed line before it
            indent = made[at][:-len(made[at].lstrip())]
        if line[0] == "-":
            del made[at]
        else:
            at += 1
    return made


class Test(unittest.TestCase):
    def test_changes(self):
        found = changes()
        self.assertEqual(set(found), set(PROGRAMS))
        for program, blocks in found.items():
            with self.subTest(program):
                if importlib.util.find_spec(PROGRAMS[program]) is None:
                    self.skipTest(f"needs {PROGRAMS[program]}")
                self.run_changed(lines_of(program), blocks, RANKS.get(program, 1))

    def run_changed(self, lines, blocks, ranks):
        for block in blocks:
            self.assertLessEqual(len(block), 10)
            lines = changed(lines, block)
        with tempfile.TemporaryDirectory(prefix="dcp-migration-") as scratch:
            script = pathlib.Path(scratch, "program.py")
            script.write_text("\n".join(["import libdcp", *lines]) + "\n", encoding="utf-8")
            if ranks == 1:
                done = subprocess.run([sys.executable, "-W", "ignore", HERE / "migration_ranks.py", script], cwd=scratch,
                                      capture_output=True, text=True, timeout=300)
            else:
                done = torchrun(ranks, HERE / "migration_ranks.py", script, folder=scratch)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            steps = [path for path in pathlib.Path(scratch, "checkpoints").rglob("step-*") if path.is_dir()]
            self.assertTrue(steps)
            for path in steps:
                self.assertEqual(libdcp.Checkpoint(path).verify(), [])


if __name__ == "__main__":
    unittest.main()
