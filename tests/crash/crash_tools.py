#!/usr/bin/env python3
"""One call fails, once, while a tool reads a checkpoint or a Hugging Face folder: the tool produces the same output as
without the failure, or fails and says why; it never calls intact data damaged, never produces something else, and does
not change what it reads.

    crash_tools.py [--every N]

Every N-th call is made to fail (--every 1: all). Exit status: 0 if all cases pass.
"""
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

BIN = os.environ["DCP_BIN"]
REFUSE = os.environ["CRASH_REFUSE"]
ERRORS = (errno.EIO, errno.EACCES, errno.EMFILE, errno.ESTALE, errno.ENOMEM, 0)
STEP = "step-00000003"


def digest(folder):
    """A digest of all files' names and bytes, except what a writer leaves of itself."""
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
            sys.exit(f"{name} by itself: {done.stderr}")
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
        """Returns what is wrong, or None."""
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

    def try_all(self, every):
        cases = errors = failed = 0
        for number, error in enumerate(ERRORS):
            _, calls, _ = self.run(error, 0)
            for at in range(1 + 5 * number % every, calls + 1, every):
                done, _, what = self.run(error, at)
                wrong = self.judge(done)
                cases, errors = cases + 1, errors + (done.returncode != 0)
                if wrong:
                    failed += 1
                    print(f"{self.name}: call {at} ({what}) fails with "
                          f"{os.strerror(error) if error else 'no memory'}: {wrong}: exit "
                          f"{done.returncode} {done.stderr}", file=sys.stderr)
        print(f"{self.name:16} {cases:6} cases: {cases - errors:6} went on, {errors:6} errors, "
              f"{failed} failed", flush=True)
        return cases, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=47)
    args = parser.parse_args()
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="dcp_tools."))
    try:
        subprocess.run([os.environ["MAKE_CHECKPOINT"], f"{scratch}/global", "3"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([f"{BIN}/dcp-reshard", f"{scratch}/global", f"{scratch}/sharded", "--layout",
                        "sharded", "--world", "3"], check=True, stdout=subprocess.DEVNULL)
        make_folder(f"{scratch}/hf")
        out = f"{scratch}/out"
        tools = [Tool("reshard-global", scratch, "global", [
                     "dcp-reshard", f"{scratch}/global", out, "--layout", "sharded", "--world", "2"],
                     f"{STEP}/shard-00001-of-00002.h5"),
                 Tool("reshard-sharded", scratch, "sharded", [
                     "dcp-reshard", f"{scratch}/sharded", out, "--layout", "global"],
                     f"{STEP}/state.h5"),
                 Tool("import", scratch, "hf", ["dcp-import", f"{scratch}/hf", out],
                      "step-00000000/state.h5"),
                 Tool("verify", scratch, "sharded", ["dcp-inspect", "verify", f"{scratch}/sharded"],
                      None),
                 Tool("ls", scratch, "global", ["dcp-inspect", "ls", f"{scratch}/global", "--json"],
                      None)]
        tools[-1].result = lambda done: [
            (s["name"], s["state"]) for s in json.loads(done.stdout)["steps"]]
        tools[-1].right = [(STEP, "complete")]
        found = [tool.try_all(args.every) for tool in tools]
        print(f"{sum(c for c, _ in found)} cases, {sum(f for _, f in found)} failed")
        return 1 if any(f for _, f in found) else 0
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main())
