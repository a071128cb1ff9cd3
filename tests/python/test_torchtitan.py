"""torchtitan's trainer with its smallest model, on CPUs, with checkpoints by libdcp: runs titan_ranks.py under
torchrun."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import libdcp

from torchrun import torchrun

HERE = pathlib.Path(__file__).parent
LIMIT_S = 400


def write_assets(scratch):
    """Writes a tokenizer of bytes and some text, which torchtitan's package lacks."""
    import tokenizers
    (scratch / "assets").mkdir()
    (scratch / "data").mkdir()
    words = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()) + ["<s>", "</s>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(scratch / "assets" / "tokenizer.json"))
    (scratch / "assets" / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    with open(scratch / "data" / "text.jsonl", "w") as text:
        for i in range(200):
            print(json.dumps({"text": " ".join(str(i * j % 97) for j in range(20 + i % 13))}), file=text)


@unittest.skipUnless(importlib.util.find_spec("torchtitan"), "torchtitan is not installed")
class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory(prefix="dcp-titan-")
        cls.addClassCleanup(scratch.cleanup)
        cls.dir = pathlib.Path(scratch.name)
        write_assets(cls.dir)
        cls.run_ranks(2, "train", "undisturbed")

    @classmethod
    def run_ranks(cls, ranks, what, folder, *, fails=False, **environment):
        done = torchrun(ranks, HERE / "titan_ranks.py", what, cls.dir, folder, limit_s=LIMIT_S,
                        **{"HF_HOME": str(cls.dir / "cache"), **environment})
        if (done.returncode != 0) != fails:
            raise AssertionError(done.stdout + done.stderr)
        return done.stdout + done.stderr

    def begun(self, folder):
        return [int(line) for line in (self.dir / f"{folder}.begun").read_text().split()]

    def test_killed(self):
        """A rank is killed while it saves beside the training; the run continues and ends with the same bytes."""
        self.run_ranks(2, "train", "killed", fails=True, KILL_AT="7", ASYNC_MODE="async")
        self.assertEqual(self.begun("killed"), [1, 2, 3, 4, 5, 6, 7])
        self.assertIn(libdcp.steps(self.dir / "killed")[-1], (4, 6))
        self.run_ranks(2, "train", "killed", OVERRIDE="1")
        again = self.begun("killed")[7:]
        self.assertIn(again, ([5, 6, 7, 8], [7, 8]))
        self.assertEqual(libdcp.steps(self.dir / "killed"), [6, 8])
        with libdcp.Checkpoint(self.dir / "undisturbed") as one, libdcp.Checkpoint(self.dir / "killed") as other:
            self.assertIn("/optimizer/exp_avg/layers.0.feed_forward.w1.weight", one)
            self.assertEqual(one.shape("/dataloader/state")[0], 2)
            self.assertEqual(one.proof(), other.proof())
            self.assertEqual(one.json["state"], other.json["state"])

    def test_raising(self):
        """A rank that raises while all ranks save ends the run; the step exists."""
        text = self.run_ranks(2, "train", "raising", fails=True, RAISE_AT="3", ASYNC_MODE="async")
        self.assertIn("enough", text)
        self.assertEqual(libdcp.steps(self.dir / "raising"), [2])

    def test_one_rank(self):
        self.run_ranks(1, "other_ranks", "one", SOURCE="undisturbed")

    def test_pipeline(self):
        self.run_ranks(2, "other_ranks", "stages", SOURCE="undisturbed")

    def test_last_save_in_hf(self):
        self.run_ranks(2, "sharded_in_hf", "in-hf", SOURCE="undisturbed")

    def test_settings(self):
        done = subprocess.run([sys.executable, "-c", SETTINGS], capture_output=True, text=True)
        self.assertEqual(done.stdout, "3 refused\n", done.stderr)

    def test_loader(self):
        """The state of a loader with tuples and keys that are not texts, as in torchtitan, through JSON."""
        done = subprocess.run([sys.executable, "-c", LOADER], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_loader_on_other_ranks(self):
        """A dataset that counts its samples, and one whose loader has a function."""
        done = subprocess.run([sys.executable, "-c", OTHER_RANKS], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(importlib.util.find_spec("torchtitan"), "torchtitan is not installed")
class TestFolders(unittest.TestCase):
    def test_ranks_that_see_the_folder_differently(self):
        with tempfile.TemporaryDirectory(prefix="dcp-titan-") as scratch:
            done = torchrun(2, HERE / "titan_ranks.py", "different_folders", scratch, "run", limit_s=LIMIT_S)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


SETTINGS = """
import libdcp.torchtitan
refused = 0
for name, value in {"async_mode": "async_with_pinned_mem", "folder": "gs://bucket/checkpoints",
                    "initial_load_path": "s3://bucket/step"}.items():
    try:
        libdcp.torchtitan.CheckpointManager.Config(**{name: value})
    except ValueError as e:
        assert name in str(e), e
        refused += 1
print(refused, "refused")
"""

LOADER = """
import json, random
from torchtitan.hf_datasets.interleaved import InterleavedDataset
import libdcp.torchtitan

class Source:
    def __init__(self):
        self.at = {"items": 3, "tuple": (1, ("a", None), [2.5]), "deep": {"x": {7: [()]}}}
    def state_dict(self):
        return self.at
    def load_state_dict(self, state):
        self.at = state

def loader(seed):
    return InterleavedDataset([Source(), Source()], [1, 2], seed)

wanted = loader(1)
text = json.dumps(libdcp.torchtitan._Unpickled(wanted).state_dict())
other = loader(2)
assert other.state_dict() != wanted.state_dict()
libdcp.torchtitan._Unpickled(other).load_state_dict(json.loads(text))
assert other.state_dict() == wanted.state_dict()
"""

OTHER_RANKS = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
import numpy as np
from torch.utils.data import IterableDataset
from torchtitan.components.dataloader import ParallelAwareDataloader
import libdcp.torchtitan

class Dataset(IterableDataset):
    def __init__(self, rank, size):
        self.rank, self.size, self.samples = rank, size, 0
    def __iter__(self):
        while self.rank + self.samples * self.size < 24:
            self.samples += 1
            yield self.rank + (self.samples - 1) * self.size
    def state_dict(self):
        return {"samples": self.samples, "pair": (1, 2)}
    def load_state_dict(self, state):
        assert state["pair"] == (1, 2)
        self.samples = state["samples"]

class Loader(ParallelAwareDataloader):
    def reshard(self, states, rank, size):
        assert states[1]["dataset_state"] == {"samples": 6, "pair": (1, 2)}
        state = states[0]["dataset_state"]
        return {**states[0], "dataset_state": {**state, "samples": 20}}

def read(kind):
    before = [kind(Dataset(rank, 2), rank, 2, batch_size=3) for rank in range(2)]
    had = [n for loader in before for _, batch in zip(range(2), loader) for n in batch.tolist()]
    rows = [libdcp.torchtitan._Rows(loader) for loader in before]
    parts = [one.part(0, 1, None).array for one in rows]
    for one, part in zip(rows, parts):
        one.refresh(part, "state")
    after = kind(Dataset(0, 1), 0, 1, batch_size=5)
    libdcp.torchtitan._Rows(after).restore(np.concatenate(parts), 0, 1, "state")
    return sorted(had), [n for batch in after for n in batch.tolist()]

assert read(ParallelAwareDataloader) == (list(range(12)), list(range(12, 24)))
assert read(Loader) == (list(range(12)), list(range(20, 24)))
"""

if __name__ == "__main__":
    unittest.main()
