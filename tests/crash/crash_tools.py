#!/usr/bin/env python3
"""One call fails, once, while a tool reads a checkpoint or a Hugging Face folder: the tool gives the same result as
without the failure, or fails with a reason. It never reports intact data as damaged, never gives another result, and
does not change its input.

    crash_tools.py [--every N] [CASE...]

Every N-th call is made to fail (--every 1: all), by default every 47th."""
import argparse
import errno
import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../support"))
import cases

BIN = os.environ["DCP_BIN"]
REFUSE = os.environ["CRASH_REFUSE"]
ERRORS = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM, 0)
STEP = "step-00000003"


def digest(folder):
    """Returns a digest of all files' names and bytes, except for a writer's leftovers."""
    sums = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            if name != ".lock" and not os.path.islink(path):
                with open(path, "rb") as f:
                    sums[os.path.relpath(path, folder)] = hashlib.md5(f.read()).hexdigest()
    return sums


def make_folder(path):
    os.mkdir(path)
    data = bytes(range(256)) * 16
    header = json.dumps({f"layers.{i}.attention.weight": {
        "dtype": "F32", "shape": [16, 16], "data_offsets": [1024 * i, 1024 * (i + 1)]}
        for i in range(4)}).encode()
    with open(f"{path}/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + data)
    for name, text in (("config.json", '{"model_type": "sample", "hidden_size": 16}'),
                       ("tokenizer.json", '{"version": "1.0"}'), ("generation_config.json", "{}")):
        with open(f"{path}/{name}", "w", encoding="utf-8") as f:
            f.write(text)


class Tool:
    """A command that reads the folder `source`, and the part of its output that is compared."""

    def __init__(self, name, scratch, source, command, made):
        self.name, self.source, self.command = name, f"{scratch}/{source}", command
        self.out, self.made = f"{scratch}/out", made
        self.count = f"{scratch}/count"
        done, _, _ = self.run(None, 0)
        if done.returncode:
            raise AssertionError(f"{name} without a failure: {done.stderr}")
        self.right = self.result(done)
        self.before = digest(self.source)

    def run(self, error, at):
        env = dict(os.environ)
        if error is not None:
            env |= {"LD_PRELOAD": REFUSE, "REFUSE_BELOW": self.source, "REFUSE_AT": str(at),
                    "REFUSE_ERRNO": str(error), "REFUSE_COUNT": self.count}
        shutil.rmtree(self.out, ignore_errors=True)
        done = subprocess.run([f"{BIN}/{self.command[0]}", *self.command[1:]], env=env, text=True,
                              errors="replace", capture_output=True, timeout=120, check=False)
        calls, what = 0, ""
        if error is not None and os.path.exists(self.count):
            with open(self.count, encoding="utf-8") as f:
                calls, _, what = f.read().strip().partition(" ")
            os.remove(self.count)
        return done, int(calls), what

    def result(self, done):
        if not self.made:
            return done.stdout
        with open(f"{self.out}/{self.made}", "rb") as f:
            return hashlib.md5(f.read()).hexdigest()

    def judge(self, done):
        """Returns what is wrong; None: nothing."""
        if digest(self.source) != self.before:
            return "what is read has changed"
        if done.returncode == 0:
            return None if self.result(done) == self.right else "it makes something else"
        if done.returncode not in (2, 3) or not done.stderr.strip():
            return "it does not say what failed"
        if self.made and os.path.exists(f"{self.out}/{self.made}") and \
                self.result(done) != self.right:
            return "it fails, and leaves something else"
        return None

    def check_each(self, every):
        """Makes each of the chosen calls fail with each error, and checks how the tool handles that."""
        tried = errors = 0
        for number, error in enumerate(ERRORS):
            _, calls, _ = self.run(error, 0)
            for at in range(1 + 5 * number % every, calls + 1, every):
                done, _, what = self.run(error, at)
                tried, errors = tried + 1, errors + (done.returncode != 0)
                with cases.part(f"call {at} ({what}) fails with {os.strerror(error) if error else 'no memory'}"):
                    wrong = self.judge(done)
                    assert not wrong, f"{wrong}: exit {done.returncode} {done.stderr}"
        print(f"{self.name:16} {tried:6} calls: {tried - errors:6} went on, {errors:6} errors", flush=True)


def read_every():
    """Removes --every from the command line and returns its value; names of cases stay there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=47)
    known, sys.argv[1:] = parser.parse_known_args()
    return known.every


@cases.shared
def sources():
    """Makes a checkpoint in each layout and a Hugging Face folder. Returns the folder that contains them."""
    scratch = os.getcwd()
    subprocess.run([os.environ["MAKE_CHECKPOINT"], f"{scratch}/global", "3"], check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([f"{BIN}/dcp-reshard", f"{scratch}/global", f"{scratch}/sharded", "--layout",
                    "sharded", "--world", "3"], check=True, stdout=subprocess.DEVNULL)
    make_folder(f"{scratch}/hf")
    return scratch


def test_reshard_of_one_file():
    at = sources()
    Tool("reshard-global", at, "global",
         ["dcp-reshard", f"{at}/global", f"{at}/out", "--layout", "sharded", "--world", "2"],
         f"{STEP}/shard-00001-of-00002.h5").check_each(EVERY)


def test_reshard_of_shards():
    at = sources()
    Tool("reshard-sharded", at, "sharded", ["dcp-reshard", f"{at}/sharded", f"{at}/out", "--layout", "global"],
         f"{STEP}/state.h5").check_each(EVERY)


def test_import():
    at = sources()
    Tool("import", at, "hf", ["dcp-import", f"{at}/hf", f"{at}/out"], "step-00000000/state.h5").check_each(EVERY)


def test_verify():
    at = sources()
    Tool("verify", at, "sharded", ["dcp-inspect", "verify", f"{at}/sharded"], None).check_each(EVERY)


def test_ls():
    at = sources()
    tool = Tool("ls", at, "global", ["dcp-inspect", "ls", f"{at}/global", "--json"], None)
    tool.result = lambda done: [(s["name"], s["state"]) for s in json.loads(done.stdout)["steps"]]
    tool.right = [(STEP, "complete")]
    tool.check_each(EVERY)


EVERY = read_every()
with tempfile.TemporaryDirectory(prefix="dcp_tools.") as folder:
    os.chdir(os.path.realpath(folder))
    cases.main()
