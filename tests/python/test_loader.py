"""torchdata's StatefulDataLoader in libdcp.Loader, loaded on another number of ranks than saved it; one process."""

import tempfile
import unittest

import numpy as np

import libdcp
from libdcp import State

try:
    from torch.utils.data import DistributedSampler
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

BATCH, SAMPLES = 2, 48


def reshard(states, rank, size):
    """Reshards as in the manual of libdcp.Loader."""
    batches = sum(state["_num_yielded"] for state in states) // size
    samples = sum(state["_sampler_iter_state"]["samples_yielded"] for state in states) // size
    return {**states[0], "_num_yielded": batches, "_sampler_iter_yielded": batches,
            "_sampler_iter_state": {"samples_yielded": samples}}


def loader_of(rank, size):
    data = list(range(SAMPLES))
    return StatefulDataLoader(data, BATCH, sampler=DistributedSampler(data, size, rank, shuffle=False))


@unittest.skipIf(StatefulDataLoader is None, "needs torchdata")
class Test(unittest.TestCase):
    def test_other_numbers_of_ranks(self):
        for saved, loaded in ((2, 1), (2, 3), (3, 2), (2, 2)):
            with self.subTest((saved, loaded)), tempfile.TemporaryDirectory(prefix="dcp-loader-") as scratch:
                had, rows = [], []
                for rank in range(saved):
                    loader = loader_of(rank, saved)
                    batches = iter(loader)
                    had += [n for _ in range(12 // BATCH // saved * 2) for n in next(batches).tolist()]
                    row = np.zeros((1, 4096), np.uint8)
                    libdcp.Loader(loader).refresh(row, "loader")
                    rows.append(row)
                libdcp.save(scratch, 1, {"data": {"loader": np.concatenate(rows)}})
                self.assertEqual(sorted(had), list(range(24)))
                for rank in range(loaded):
                    loader = loader_of(rank, loaded)
                    libdcp.load(scratch, State({"data": {"loader": libdcp.Loader(loader, reshard=reshard)}}, rank, loaded))
                    had += [n for batch in loader for n in batch.tolist()]
                self.assertEqual(sorted(had), list(range(SAMPLES)))

    def test_refused_without_a_function(self):
        with tempfile.TemporaryDirectory(prefix="dcp-loader-") as scratch:
            libdcp.save(scratch, 1, {"data": {"loader": libdcp.Loader(loader_of(0, 1))}})
            with self.assertRaisesRegex(libdcp.Error, r"libdcp\.Loader\(loader, reshard=function\)"):
                libdcp.load(scratch, State({"data": {"loader": libdcp.Loader(loader_of(0, 2))}}, 0, 2))


if __name__ == "__main__":
    unittest.main()
