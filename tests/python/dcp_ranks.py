"""Runs under torchrun for test_dcp.py: dcp_ranks.py WHAT DIR."""

import dataclasses
import filecmp
import importlib.util
import io
import os
import random
import signal
import sys
import threading
import time
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard as Sharded
from torch.distributed.tensor._shards_wrapper import LocalShardsWrapper
from torch_ranks import local, make_model, numbers, tensors

import libdcp
from libdcp._groups import TorchGroup
from libdcp.dcp import Reader, Writer

OBJECTS = {"epoch": 3, "name": "a \u00fc", "rates": [0.1, 0.2], "betas": (0.5, 0.9), "none": None,
           "nested": {"on": True}}
HAS_CHECKPOINTABLE = importlib.util.find_spec("torch.distributed.checkpoint.protocol") is not None  # of torch 2.15


def state_of(blank=False):
    """Returns the same whole state for any number of ranks."""
    model = tensors()
    if blank:
        for value in model.values():
            local(value).zero_()
    return {"model": model, "extra": {key: None if blank else value for key, value in OBJECTS.items()}}


def check_state(state):
    for name, value in tensors().items():
        assert torch.equal(local(value), local(state["model"][name])), name
    found = {key: list(value) if isinstance(value, tuple) else value for key, value in state["extra"].items()}
    assert found == {**OBJECTS, "betas": [0.5, 0.9]}, found


class Watching(Writer):
    """Remembers what the coordinator received to plan."""

    plans = None

    def prepare_global_plan(self, plans):
        self.plans = plans
        return super().prepare_global_plan(plans)


def same_step(one, other):
    return filecmp.cmp(f"{one}/step-00000001/state.h5", f"{other}/step-00000001/state.h5", shallow=False)


def storage(directory):
    """Saves as torch's own library does, and loads what any other number of ranks has saved."""
    source = os.environ.get("SOURCE")
    if source:
        state = state_of(blank=True)
        dcp.load(state, checkpoint_id=f"{source}/state/step-1", storage_reader=Reader("elsewhere"))
        check_state(state)
    writer = Watching(f"{directory}/state")
    metadata = dcp.save(state_of(), storage_writer=writer, checkpoint_id="step_1")
    assert writer.report.bytes and not any(plan.items for plan in writer.plans or [])
    assert metadata.state_dict_metadata["model.tiles"].size == torch.Size([9, 11])
    libdcp.save(f"{directory}/plain", 1, state_of())
    assert same_step(f"{directory}/state", f"{directory}/plain")
    state = state_of(blank=True)
    libdcp.load(f"{directory}/state", state)
    check_state(state)
    partial(f"{directory}/state")
    models(directory)
    others(directory)
    own_shards(directory)
    in_base64(directory)
    rank_keys(directory)
    planners(directory)
    without_plans(directory)


def partial(directory):
    """Some keys only; a model's own state dict from a section in which it was saved; and keys that do not exist."""
    wanted = tensors()["columns"]
    for state in ({"model": {"columns": wanted}}, {"columns": wanted}):
        local(wanted).zero_()
        dcp.load(state, storage_reader=Reader(directory))
        assert torch.equal(local(wanted), local(tensors()["columns"]))
    state = {"model": {"columns": wanted, "missing": torch.ones(2)}}
    try:
        dcp.load(state, storage_reader=Reader(directory))
        raise AssertionError("a strict load takes a state with a missing key")
    except dcp.CheckpointException as e:
        assert "model.missing" in str(e)
    local(wanted).zero_()
    dcp.load(state, storage_reader=Reader(directory), planner=DefaultLoadPlanner(allow_partial_load=True))
    assert torch.equal(local(wanted), local(tensors()["columns"]))
    assert torch.equal(state["model"]["missing"], torch.ones(2))


class Program(Stateful):
    """A program as in torch's tutorials."""

    def __init__(self):
        self.model, _ = make_model(8, 22)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self):
        self.model(torch.ones(4, 8)).square().sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def state_dict(self):
        weights, moments = get_state_dict(self.model, self.optimizer)
        return {"model": weights, "optim": moments}

    def load_state_dict(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])


def models(directory):
    """FSDP and tensor parallelism, by get_state_dict: _StridedShard, moments, param_groups."""
    program = Program()
    program.train()
    proof = libdcp.prove(program.state_dict())
    dcp.save({"app": program}, storage_writer=Writer(f"{directory}/models", step=5))
    other = Program()
    other.optimizer.param_groups[0]["lr"] = 1.0
    dcp.load({"app": other}, storage_reader=Reader(f"{directory}/models"))
    assert libdcp.prove(other.state_dict()) == proof
    assert other.optimizer.param_groups[0]["lr"] == 1e-3
    for each in (program, other):
        each.train()
    assert libdcp.prove(other.state_dict()) == libdcp.prove(program.state_dict())


def pieces_of_rows(tensor):
    """Returns this rank's part of a tensor's rows, as torch.chunk cuts them, and its first row."""
    parts = tensor.tensor_split(dist.get_world_size())
    return parts[dist.get_rank()].clone(), sum(len(part) for part in parts[:dist.get_rank()])


def others(directory):
    """torch's other tensors on several ranks; arrays in objects; tensors in lists."""
    whole = numbers((7, 3), 80)

    def make():
        part, start = pieces_of_rows(whole)
        sharded = init_from_local_shards([Shard.from_tensor_and_offsets(part, [start, 0], dist.get_rank())], 7, 3)
        own, _ = pieces_of_rows(whole)
        if not HAS_CHECKPOINTABLE:
            return sharded, own, {}
        own.global_shape, own.global_offsets = (7, 3), ((start, 0),)
        own.local_offsets, own.local_sizes = ((0, 0),), (tuple(own.shape),)
        return sharded, own, {"own": own}
    sharded, own, as_own = make()
    kinds = {"betas": (0.5, {"a": (1,)}), "set": {1, 2}, "state": random.Random(3).getstate()}
    dcp.save({"kinds": kinds, "sharded": sharded, **as_own, "np": np.arange(4), "rng": ("MT", np.arange(3, dtype=np.uint32), 0.5),
              "list": [torch.ones(2), {"a": 1}]}, storage_writer=Writer(f"{directory}/others/step-1"))
    for part in (sharded.local_shards()[0].tensor, *as_own.values()):
        part.zero_()
    state = {"kinds": dict.fromkeys(kinds), "sharded": sharded, **as_own, "np": None, "rng": (), "list": [torch.zeros(2), {"a": 0}]}
    dcp.load(state, storage_reader=Reader(f"{directory}/others"))
    wanted, _ = pieces_of_rows(whole)
    assert torch.equal(sharded.local_shards()[0].tensor, wanted) and torch.equal(own, wanted)
    name, array, number = state["rng"]
    assert state["kinds"] == kinds, state["kinds"]
    assert (state["np"] == np.arange(4)).all() and (array == np.arange(3)).all() and (name, number) == ("MT", 0.5)
    assert torch.equal(state["list"][0], torch.ones(2)) and state["list"][1] == {"a": 1}


def own_shards(directory):
    """A tensor that describes its shards to torch, as torchrec's do: unevenly cut rows."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    whole, mesh = numbers((4 * ranks, 3), 81), init_device_mesh("cpu", (ranks,))

    def make(first):
        """Returns the rows of the first rank, and where the others begin; the last rank has two shards."""
        begin, end = (0 if rank == 0 else first + 3 * rank), (first + 3 * rank + 3 if rank < ranks - 1 else len(whole))
        cuts = [begin, begin + 1, end] if rank == ranks - 1 else [begin, end]
        shards = [whole[a:b].clone() for a, b in zip(cuts, cuts[1:])]
        wrapper = LocalShardsWrapper(shards, [(a, 0) for a in cuts[:-1]])
        return shards, DTensor.from_local(wrapper, mesh, [Sharded(0)], shape=whole.shape, stride=whole.stride())
    dcp.save({"rows": make(0)[1]}, storage_writer=Writer(f"{directory}/own"))
    shards, rows = make(1)
    wanted = [shard.clone() for shard in shards]
    for shard in shards:
        shard.zero_()
    dcp.load({"rows": rows}, storage_reader=Reader(f"{directory}/own"))
    assert all(torch.equal(a, b) for a, b in zip(shards, wanted))
    with libdcp.Checkpoint(f"{directory}/own") as checkpoint:
        assert (checkpoint["/model/rows"] == whole.numpy()).all()


def in_base64(directory):
    """Bytes load unchanged; if several ranks have some, the lowest rank's load, with their type."""
    rank = dist.get_rank()
    dcp.save({"own": b"0" if rank == 0 else str(rank), "loader": {"rank": b"\x80\xff", "names": ["MQ==", b"1"]},
              "losses": io.BytesIO(b"12")}, storage_writer=Writer(f"{directory}/bytes"))
    state = {"own": None, "loader": {"rank": b"", "names": []}, "losses": io.BytesIO()}
    dcp.load(state, storage_reader=Reader(f"{directory}/bytes"))
    assert state.pop("losses").getvalue() == b"12"
    assert state == {"own": b"0", "loader": {"rank": b"\x80\xff", "names": ["MQ==", b"1"]}}, state


def rank_keys(directory):
    """Each rank has its own keys, as with pipeline parallelism."""
    rank = dist.get_rank()
    dcp.save({"model": {"all": torch.ones(3), f"own.{rank}": torch.full((2,), float(rank))}, f"seed.{rank}": rank},
             storage_writer=Writer(f"{directory}/keys"))
    for seen in (rank, (rank + 1) % dist.get_world_size()):
        state = {"model": {"all": torch.zeros(3), f"own.{seen}": torch.zeros(2)}, f"seed.{seen}": None}
        dcp.load(state, storage_reader=Reader(f"{directory}/keys"))
        assert state["model"][f"own.{seen}"].tolist() == [seen, seen] and state[f"seed.{seen}"] == seen


class Halving(DefaultSavePlanner):
    """Saves half of each number, in another type."""

    def create_local_plan(self):
        plan = super().create_local_plan()
        items = [item if item.tensor_data is None else dataclasses.replace(item, tensor_data=dataclasses.replace(
            item.tensor_data, properties=dataclasses.replace(item.tensor_data.properties, dtype=torch.float64)))
            for item in plan.items]
        self.plan = dataclasses.replace(plan, items=items)
        return self.plan

    def transform_object(self, write_item, object):
        made = super().transform_object(write_item, object)
        return made.double() / 2 if isinstance(made, torch.Tensor) else made


class Doubling(DefaultLoadPlanner):
    """Loads into a copy, and doubles the numbers."""

    def transform_tensor(self, read_item, tensor):
        return torch.zeros(tensor.shape, dtype=torch.float64)

    def commit_tensor(self, read_item, tensor):
        super().transform_tensor(read_item, self.lookup_tensor(read_item.dest_index)).copy_(tensor * 2)


def planners(directory):
    """Planners that do more than torch's default ones are called."""
    names = ("rows.0", "columns", "tiles", "plain")
    items = [1, {"a": 1}, {"b": (2, {3})}, {"c": 4}]  # The planner chooses which rank saves which of them.
    state = {"model": {name: tensors()[name] for name in names}, "epoch": 3, "items": items}
    writer = Watching(f"{directory}/planners/step-1")
    dcp.save(state, storage_writer=writer, planner=Halving())
    assert dist.get_rank() or any(plan.items for plan in writer.plans)
    with libdcp.Checkpoint(f"{directory}/planners") as checkpoint:
        assert checkpoint.dtype("/model/tiles") == "F64"
    for value in state["model"].values():
        local(value).zero_()
    state["epoch"], state["items"] = 0, [0, {"a": 0}, {"b": 0}, {"c": 0}]
    dcp.load(state, storage_reader=Reader(f"{directory}/planners"), planner=Doubling())
    assert state.pop("items") == items
    for name in names:
        assert torch.equal(local(state["model"][name]), local(tensors()[name])), name
    assert state["epoch"] == 3
    for _ in range(2):  # the second time with cached plans, of another state
        state["model"]["plain"] += 1
        dcp.save(state, storage_writer=Writer(f"{directory}/cached"),
                 planner=DefaultSavePlanner(enable_plan_caching=True))
        with libdcp.Checkpoint(f"{directory}/cached") as checkpoint:
            assert (checkpoint["/model/plain"] == state["model"]["plain"].numpy()).all()
    assert libdcp.steps(f"{directory}/cached") == [0, 1]


def without_plans(directory):
    """use_collectives=False; and no_dist, which a single rank calls."""
    dcp.save(state_of(), storage_writer=Writer(f"{directory}/direct/step-1"), use_collectives=False)
    assert same_step(f"{directory}/direct", f"{directory}/plain")
    rank = dist.get_rank()
    for collectives in (True, False):
        if rank == 0:
            own = {"x": torch.full((2,), float(collectives))}
            dcp.save(own, storage_writer=Writer(f"{directory}/alone"), no_dist=True, use_collectives=collectives)
            state = {"x": torch.zeros(2)}
            dcp.load(state, storage_reader=Reader(f"{directory}/alone"), no_dist=True)
            assert torch.equal(state["x"], own["x"])
    half = dist.new_group([0])
    if rank == 0:
        dcp.save({"x": torch.ones(2)}, storage_writer=Writer(f"{directory}/half"), process_group=half)
    dist.barrier()


def groups_of_some(directory):
    """Ranks that are in different numbers of groups; torch's own groups work after a save by some of the ranks."""
    half = dist.new_group([0, 1])
    if dist.get_rank() < 2:
        dcp.save({"x": torch.zeros(2)}, storage_writer=Writer(f"{directory}/half"), process_group=half)
    dcp.save({"x": torch.ones(2)}, storage_writer=Writer(f"{directory}/all"))
    state = {"x": torch.zeros(2)}
    dcp.load(state, storage_reader=Reader(f"{directory}/all"))
    assert torch.equal(state["x"], torch.ones(2))
    dist.barrier(group=dist.new_group())


def groups_at_once(directory):
    """Two threads save and load, each with a group of its own; the ranks' threads make their groups in other orders."""
    pairs = {name: dist.new_group() for name in "ab"}
    real = TorchGroup._count

    def at_once(call):
        counted, found = threading.Event(), {}

        def count(group, name):
            is_first = (threading.current_thread() is threading.main_thread()) == (dist.get_rank() == 0)
            if not is_first:
                assert counted.wait(60)
            made = real(group, name)
            if is_first:
                counted.set()
            return made

        def work(name):
            found[name] = call(name)
        with mock.patch.object(TorchGroup, "_count", count):
            thread = threading.Thread(target=work, args=("a",))
            thread.start()
            work("b")
            thread.join()
        return found

    def save(name, use_collectives):
        state = {"m": {name: torch.ones(4), "rank": torch.full((2,), ord(name))}}
        dcp.save(state, storage_writer=Writer(f"{directory}/{name}", step=use_collectives), process_group=pairs[name],
                 use_collectives=use_collectives)
        return True

    def load(name):
        state = {"m": {name: torch.zeros(4), "rank": torch.zeros(2, dtype=torch.int64)}}
        dcp.load(state, storage_reader=Reader(f"{directory}/{name}"), process_group=pairs[name])
        return state["m"][name].tolist(), state["m"]["rank"].tolist()
    for use_collectives in (0, 1):
        assert at_once(lambda name: save(name, use_collectives)) == {"a": True, "b": True}
        for name in "ab":
            with libdcp.Checkpoint(f"{directory}/{name}") as checkpoint:
                assert list(checkpoint) == [f"/m/{name}", "/m/rank"], list(checkpoint)
    assert at_once(load) == {name: ([1.0] * 4, [ord(name)] * 2) for name in "ab"}


def asynchronous(directory):
    """Saves by a thread, and by a process, to which writer and planner are sent."""
    group = dist.new_group()
    thread, process = AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS
    for step, kind in enumerate((thread, process, process)):
        state = state_of()
        saving = dcp.async_save(state, storage_writer=Writer(f"{directory}/steps", step=step), process_group=group,
                                async_checkpointer_type=kind)
        for value in state["model"].values():
            local(value).zero_()
        metadata = saving.result()
        assert "model.tiles" in metadata.state_dict_metadata
        state = state_of(blank=True)
        dcp.load(state, checkpoint_id=str(step), storage_reader=Reader(f"{directory}/steps"))
        check_state(state)
    saving = dcp.async_save({"x": object()} if dist.get_rank() else {"x": 1}, process_group=group,
                            storage_writer=Writer(f"{directory}/steps"), async_checkpointer_type=process)
    expect(saving.result, TypeError, libdcp.Error)
    assert libdcp.steps(f"{directory}/steps") == [0, 1, 2]


def expect(function, *kinds):
    """Fails on all ranks with one CheckpointException that contains these exceptions."""
    try:
        function()
    except dcp.CheckpointException as e:
        kinds_found = {type(failure) for failure, _ in e.failures.values()}
        assert kinds_found == set(kinds), str(e)
        said = [None] * dist.get_world_size()
        dist.all_gather_object(said, sorted((rank, str(failure)) for rank, (failure, _) in e.failures.items()))
        assert all(each == said[0] for each in said), said
        return [failure for failure, _ in e.failures.values()]
    raise AssertionError("nothing was raised")


def failures(directory):
    """The same exception on all ranks, and older steps stay."""
    rank, steps = dist.get_rank(), f"{directory}/steps"
    dcp.save({"x": torch.arange(1000)}, storage_writer=Writer(steps, step=1))
    wrong = {"x": torch.ones(4), **({"y": {"z": object()}} if rank else {})}
    raised = expect(lambda: dcp.save(wrong, storage_writer=Writer(steps)), TypeError, libdcp.Error)
    own, = (str(failure) for failure in raised if isinstance(failure, TypeError))
    assert "state['y']['z']" in own, own
    assert [str(failure) for failure in raised if isinstance(failure, libdcp.Error)] == [f"rank 1: TypeError: {own}"], raised
    shapes = {"x": torch.ones(4 + rank)}
    raised = expect(lambda: dcp.save(shapes, storage_writer=Writer(steps)), libdcp.Error)
    assert {failure.status.name for failure in raised} == {"MISMATCH"}
    raised = expect(lambda: dcp.save({"x": torch.ones(4)}, storage_writer=Writer(steps, step=1)), libdcp.Error)
    assert {failure.status.name for failure in raised} == {"STATE"}

    def stop(done, total):
        if rank:
            raise KeyError("no more")
    large = {"x": torch.ones(1 << 20)}
    expect(lambda: dcp.save(large, storage_writer=Writer(steps, progress=stop)), KeyError, libdcp.Error)
    assert libdcp.steps(steps) == [1]
    raised = expect(lambda: dcp.load({"x": torch.ones(4)}, storage_reader=Reader(f"{directory}/none")), libdcp.Error)
    assert {failure.status.name for failure in raised} == {"NOT_FOUND"}
    floats = {"x": torch.zeros(1000, dtype=torch.float64)}
    raised = expect(lambda: dcp.load(floats, storage_reader=Reader(steps)), libdcp.Error)
    assert {failure.status.name for failure in raised} == {"MISMATCH"}
    damage(f"{steps}/step-00000001/state.h5")
    whole = {"x": torch.zeros(1000, dtype=torch.int64)}
    raised = expect(lambda: dcp.load(whole, storage_reader=Reader(steps)), libdcp.Error)
    assert {failure.status.name for failure in raised} == {"CORRUPT"} and raised[0].tensor == "/model/x"


def killed(directory):
    """A rank dies while the others save; torchrun would end them immediately."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dcp.save({"x": torch.ones(4)}, storage_writer=Writer(directory))
    rank = dist.get_rank()

    def die(done, total):
        if rank == 2:
            os.kill(os.getpid(), 9)
    begin = time.monotonic()
    try:
        dcp.save({"x": torch.ones(1 << 20)}, storage_writer=Writer(directory, progress=die))
    except (RuntimeError, dcp.CheckpointException):
        with open(f"{directory}/said-{rank}", "w") as f:
            f.write(str(time.monotonic() - begin))
        os._exit(0)


def damage(path):
    """Flips a bit of the number 999."""
    if dist.get_rank() == 0:
        with open(path, "r+b") as f:
            data = f.read()
            at = data.index(np.array([998, 999], np.int64).tobytes())
            f.seek(at)
            f.write(bytes([data[at] ^ 1]))
    dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"storage": storage, "groups_of_some": groups_of_some, "groups_at_once": groups_at_once, "asynchronous": asynchronous,
     "failures": failures, "killed": killed}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
