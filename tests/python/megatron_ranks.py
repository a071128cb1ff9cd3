"""Runs under torchrun for test_megatron.py: megatron_ranks.py ACTIONS FOLDER TP PP, where ACTIONS are
save, load and refuse.

Four layers are divided among PP groups of TP ranks. The numbers of a rank's tensors are those of their places in the
whole tensors."""

import io
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing import ShardedObject, ShardedTensor
from megatron.core.dist_checkpointing.core import CheckpointingException

import libdcp
import libdcp.megatron

warnings.simplefilter("ignore")
LAYERS, ROWS, COLUMNS, WORDS = 4, 8, 12, 10


def whole(*shape):
    numbers = torch.arange(torch.Size(shape).numel(), dtype=torch.float32)
    return numbers.reshape(shape)


class Rank:
    def __init__(self, tp, pp):
        rank = dist.get_rank()
        assert dist.get_world_size() == tp * pp
        self.tp, self.pp, self.at_tp, self.at_pp = tp, pp, rank % tp, rank // tp

    def layers(self):
        return range(self.at_pp * LAYERS // self.pp, (self.at_pp + 1) * LAYERS // self.pp)

    def state(self, filled, padded):
        """Parts of whole tensors, or memory to load them into. ``padded``: the length of the words' table, which
        depends on tp in Megatron."""
        def part(key, full, dim, **options):
            size = full.shape[dim] // self.tp
            data = full.narrow(dim, self.at_tp * size, size)
            data = data.clone() if filled else torch.full_like(data, -1)
            return ShardedTensor.from_rank_offsets(key, data, (dim, self.at_tp, self.tp), **options)

        def of_layer(key, full, layer, dim=None, **options):
            size = full.shape[dim] // self.tp if dim is not None else None
            data = full if dim is None else full.narrow(dim, self.at_tp * size, size)
            data = data.clone() if filled else torch.full_like(data, -1)
            cuts = [(0, layer, LAYERS)] + ([(dim + 1, self.at_tp, self.tp)] if dim is not None else [])
            return ShardedTensor.from_rank_offsets(key, data, *cuts, prepend_axis_num=1, **options)

        def extra(layer):
            value = {"scale": torch.tensor([float(layer)]), "tuple": (1, None), "bytes": io.BytesIO(b"%d" % layer)}
            return ShardedObject("layers.extra", value if filled else None, (LAYERS,), (layer,), replica_id=self.at_tp)

        state = {"iteration": 100, "layers": {str(layer): {
            "column": of_layer("layers.column", whole(LAYERS, ROWS, COLUMNS)[layer], layer, 0),
            "row": of_layer("layers.row", whole(LAYERS, ROWS, COLUMNS)[layer].neg(), layer, 1),
            "norm": of_layer("layers.norm", whole(LAYERS, ROWS)[layer].bfloat16(), layer, replica_id=self.at_tp),
            "extra": extra(layer)} for layer in self.layers()}}
        if self.at_pp == 0:
            table = torch.zeros(padded, COLUMNS)
            table[:WORDS] = whole(WORDS, COLUMNS)
            state["words"] = part("words", table, 0, allow_shape_mismatch=True)
        return state


def save(folder, rank):
    if dist.get_rank() == 0:
        folder.mkdir(parents=True)
    dist.barrier()
    dist_checkpointing.save(rank.state(True, 12), str(folder), libdcp.megatron.SaveStrategy(layout="global"))


def load(folder, rank):
    padded = {1: 10, 2: 12, 4: 16}[rank.tp]
    wanted, found = rank.state(True, padded), dist_checkpointing.load(rank.state(False, padded), str(folder))
    assert found["iteration"] == 100 and found.keys() == wanted.keys(), found.keys()
    for layer, values in wanted["layers"].items():
        for name, value in values.items():
            loaded = found["layers"][layer][name]
            if name == "extra":
                assert loaded["bytes"].getvalue() == value.data["bytes"].getvalue(), loaded
                assert loaded["scale"].equal(value.data["scale"]) and loaded["tuple"] == (1, None), loaded
            else:
                assert loaded.dtype == value.data.dtype and loaded.equal(value.data), (layer, name, loaded)
    if "words" in wanted:  # rows that the checkpoint lacks become zeros, whatever was in memory
        assert found["words"].equal(wanted["words"].data), found["words"]
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    without = rank.state(False, padded)
    if "words" in without:
        without["words"].data = None
    found = dist_checkpointing.load(without, str(folder))
    torch.use_deterministic_algorithms(False)
    if "words" in wanted:
        assert found["words"].equal(wanted["words"].data), found["words"]
    _, missing, unexpected = dist_checkpointing.load(rank.state(False, padded), str(folder), strict="return_all")
    assert not missing and not unexpected, (missing, unexpected)
    plain = dist_checkpointing.load_plain_tensors(str(folder))
    assert plain["layers.column"].equal(whole(LAYERS, ROWS, COLUMNS)), plain.keys()


def refuse(folder, rank):
    """What the step lacks, and asynchronous saves."""
    state = rank.state(False, 12)
    state["other"] = ShardedObject("other", None, (1,), (0,), replica_id=dist.get_rank())
    try:
        dist_checkpointing.load(state, str(folder))
        raise AssertionError("loaded")
    except libdcp.Error as e:
        assert "other/shard_0_1" in str(e), e
    try:
        dist_checkpointing.save(rank.state(True, 12), str(folder), libdcp.megatron.SaveStrategy(),
                                async_sharded_save=True)
        raise AssertionError("saved")
    except CheckpointingException as e:
        assert "async" in str(e), e


dist.init_process_group("gloo")
actions, folder, tp, pp = sys.argv[1:]
for action in actions.split(","):
    {"save": save, "load": load, "refuse": refuse}[action](pathlib.Path(folder), Rank(int(tp), int(pp)))
dist.barrier()
dist.destroy_process_group()
