"""Runs under torchrun for test_torch.py: torch_ranks.py WHAT DIR."""

import os
import pathlib
import shutil
import signal
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import libdcp

SHAPES = [(7, 5), (16, 3), (3,), (1, 4), (0, 3), (64,)]


def numbers(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def local(value):
    return value.to_local() if isinstance(value, DTensor) else value


def tensors():
    """Returns the same whole tensors for any number of ranks, on meshes of one and of two dimensions."""
    ranks = dist.get_world_size()
    line = init_device_mesh("cpu", (ranks,))
    grid = init_device_mesh("cpu", (ranks // 2, 2) if ranks % 2 == 0 else (ranks, 1))
    found = {f"rows.{i}": distribute_tensor(numbers(s, i), line, [Shard(0)]) for i, s in enumerate(SHAPES)}
    return {
        **found,
        "copies": distribute_tensor(numbers((4, 4), 50), line, [Replicate()]),
        "columns": distribute_tensor(numbers((5, 9), 51), line, [Shard(1)]),
        "tiles": distribute_tensor(numbers((9, 11), 60), grid, [Shard(0), Shard(1)]),
        "copies_of_rows": distribute_tensor(numbers((9, 11), 61), grid, [Replicate(), Shard(0)]),
        "rows_of_rows": distribute_tensor(numbers((21, 3), 62), grid, [Shard(0), Shard(0)]),
        "plain": numbers((3, 3), 70), "turned": numbers((4, 6), 71).T, "scalar": torch.tensor(3.5, dtype=torch.bfloat16),
    }


def meshes(directory):
    """Saves, loads what any other number of ranks has saved, and saves that."""
    state = {"model": tensors(), "epoch": 3}
    source = os.environ.get("SOURCE")
    if source:
        for value in state["model"].values():
            local(value).zero_()
        state["epoch"] = 0
        assert libdcp.load(source, state)["step"] == 1 and state["epoch"] == 3
        for name, value in tensors().items():
            assert torch.equal(local(value), local(state["model"][name])), name
    libdcp.save(directory, 1, state, replicas="check")


class Block(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, inner), nn.Linear(inner, width), nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(self.down(torch.relu(self.up(x))))


def make_model(width, inner):
    """Makes a model with tensor parallelism in pairs, and FSDP of these: _StridedShard."""
    torch.manual_seed(0)
    model, ranks = Block(width, inner), dist.get_world_size()
    whole = {name: value.clone() for name, value in model.state_dict().items()}
    pairs = 2 if ranks % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (ranks // pairs, pairs), mesh_dim_names=("dp", "tp"))
    if pairs > 1:
        parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model, whole


def fsdp(directory):
    """The weights of a model as initialized, whatever its meshes; then a step, saved with its moments, and loaded
    into a model without any."""
    for width, inner in ((8, 12), (5, 6), (8, 22)):
        model, whole = make_model(width, inner)
        folder = f"{directory}/{width}-{inner}"
        libdcp.save(folder, 1, {"model": model.state_dict()}, replicas="check")
        with libdcp.Checkpoint(folder) as checkpoint:
            for name, value in whole.items():
                assert (checkpoint[f"/model/{name}"] == value.numpy()).all(), name
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.ones(4, 8)).square().sum().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    proof = libdcp.prove({"model": weights, "optimizer": moments})
    libdcp.save(f"{directory}/moments", 1, {"model": weights, "optimizer": moments})
    model, _ = make_model(8, 22)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1)
    weights, moments = get_state_dict(model, optimizer)
    libdcp.load(f"{directory}/moments", {"model": weights, "optimizer": moments})
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    weights, moments = get_state_dict(model, optimizer)
    assert libdcp.prove({"model": weights, "optimizer": moments}) == proof
    assert optimizer.param_groups[0]["lr"] == 1e-3


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head, self.other = nn.Embedding(3, 4), nn.Linear(4, 3, False), nn.Linear(4, 3, False)
        self.head.weight = self.embedding.weight


def copies(directory):
    """Steps that are saved beside a training without a fence: all kinds of tensors, buffers that the forward pass
    changes, and values of single ranks; and each in a list of stores, declared or not, within the memory for
    copies or not. They are equal to synchronous saves of the same numbers."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.Linear(128, 64))
    optimizer = torch.optim.Adam(model.parameters())
    beside = {"shard": libdcp.Shard(np.zeros((5, 7), np.float32), (5 * ranks, 7), (5 * rank, 0)),
              "own": libdcp.PerRank(torch.zeros(9)), "array": np.zeros((40, 30)).T, **tensors()}

    def step(number):
        """Changes what a training changes, some of it before the backward pass is done."""
        for name, value in beside.items():
            memory = value.array if isinstance(value, (libdcp.Shard, libdcp.PerRank)) else local(value)
            memory[...] = number + (rank if name in ("shard", "own") else 0)
        optimizer.zero_grad()
        model(numbers((16, 64), number)).pow(2).sum().backward()
        optimizer.step()

    def state():
        weights, moments = get_state_dict(model, optimizer)
        return {"model": weights, "optimizer": moments, "beside": beside}
    step(0)
    for layout in ("global", "sharded"):
        plain, copied, listed = (f"{directory}/{layout}-{name}" for name in ("plain", "copied", "listed"))
        tier = libdcp.Tier(listed, layout=layout)
        with libdcp.Store(plain) as at_once, libdcp.Store(copied) as store, libdcp.Store([tier]) as tiers:
            declared, again = store.declare(state()), tiers.declare(state())
            for number in range(1, 5):
                step(number)
                at_once.save(number, state(), layout=layout)
                limit = 0 if number == 3 else None
                store.save_async(number, declared if number > 2 else state(), layout=layout, copy_bytes=limit,
                                 replicas="check" if number == 4 else "warn")
                tiers.save_async(number, again if number > 2 else state(), copy_bytes=limit)
                step(-number)
        dist.barrier()
        for number in range(1, 5):
            for path in sorted(pathlib.Path(f"{plain}/step-{number:08}").glob("*.h5")):
                for other in (copied, listed):
                    assert (pathlib.Path(other) / path.parent.name / path.name).read_bytes() == path.read_bytes(), (
                        number, path, other)
        dist.barrier()


def tied(directory):
    """A checkpoint may have either one of tied weights; on four ranks one rank has no row. Other weights must
    exist."""
    model = Tied()
    fully_shard(model)
    state = model.state_dict()
    whole = {name: local(value).clone() for name, value in state.items()}
    for step, left_out in enumerate(("head.weight", "embedding.weight", "other.weight"), 1):
        libdcp.save(directory, step, {"model": {name: value for name, value in state.items() if name != left_out}})
        for value in state.values():
            local(value).zero_()
        try:
            libdcp.load(directory, {"model": state})
            assert step < 3
        except libdcp.Error as e:
            assert step == 3 and "/model/other.weight is not in the checkpoint (1 of 3" in str(e), e
        for name, value in state.items():
            assert step == 3 or torch.equal(local(value), whole[name]), name


def failures(directory):
    """The same exception on all ranks, and the older step stays."""
    rank = dist.get_rank()
    libdcp.save(directory, 1, {"x": torch.ones(4)})

    def said(save):
        found = [None] * dist.get_world_size()
        try:
            save()
        except Exception as e:
            dist.all_gather_object(found, (type(e).__name__, str(e), getattr(e, "status", None), getattr(e, "rank", None)))
        assert libdcp.steps(directory) == [1]
        return found

    def fail(done, whole):
        raise RuntimeError("enough")

    other = said(lambda: libdcp.save(directory, 2, {"x": torch.ones(4 + rank)}))
    assert other[0] and len(set(other)) == 1, other
    # an error that only one rank finds in its own state, or raises: all ranks learn of it
    alone = said(lambda: libdcp.save(directory, 2, {"x": torch.ones(4), "y": object() if rank else 1}))
    assert alone[0][0] == "Error" and alone[0][3] == 1, alone
    assert alone[1][0] == "TypeError" and "state['y']" in alone[1][1], alone
    assert alone[0][1] == f"rank 1: TypeError: {alone[1][1]}", alone
    raising = said(lambda: libdcp.save(directory, 2, {"x": torch.ones(4)}, progress=fail if rank else None))
    assert raising[0][0] == "Error" and raising[0][2] == libdcp.Status.CANCELLED, raising
    assert raising[1][:2] == ("RuntimeError", "enough"), raising
    wrong = said(lambda: libdcp.load(directory, {"x": object() if rank else torch.ones(4)}, cast=True))
    assert wrong[0] is None or wrong[0][0] == "Error", wrong
    libdcp.save(directory, 2, {"x": torch.ones(4)})


class Sampler:
    """A sampler that only the first rank can load."""

    def state_dict(self):
        return {"samples": 1}

    def load_state_dict(self, state):
        if dist.get_rank():
            raise RuntimeError("mine")


def apart(directory):
    """An exception of a single rank, or a question that only some ranks have been asked, leaves no rank alone in
    the next call."""
    rank, state = dist.get_rank(), {"x": torch.ones(4), "sampler": Sampler()}

    def said(call):
        found = [None] * dist.get_world_size()
        try:
            call()
            mine = None
        except Exception as e:
            mine = type(e).__name__, str(e), getattr(e, "rank", None)
        dist.all_gather_object(found, mine)
        return found

    def fails_on_the_second(call, kind, message):
        first, second = said(call)
        assert second and second[0] == kind and message in second[1], second
        assert first and first[0] == "Error" and first[2] == 1, first
        assert "a state is needed" not in first[1], first

    with libdcp.Store(directory) as store:
        declared = store.declare(state)
        store.save(1, declared)
        fails_on_the_second(lambda: store.save(1.5 if rank else 2, declared), "TypeError", "no integer")
        fails_on_the_second(lambda: store.save(2**64 + 2 if rank else 2, declared), "ValueError", "18446744073709551615")
        fails_on_the_second(lambda: store.load(state), "RuntimeError", "mine")
        odd = {"x": np.array(["a"]) if rank else torch.ones(4)}
        fails_on_the_second(lambda: store.load({**odd, "none": torch.ones(2)}), "TypeError", "no type")
        fails_on_the_second(lambda: libdcp.prove(odd), "TypeError", "no type")
        for call in (lambda: store.save(2, declared), lambda: store.save_async(3, declared).wait(),
                     lambda: store.load({"x": torch.ones(4)}), lambda: store.remove(1)):
            saving = store.save_async(1, declared)  # which exists already
            if rank == 0:
                assert saving.exception()
            fails_on_the_second(call, "Error", "exists already")
        for step in (4, 5):
            store.save_async(step, declared, copy=False)  # begins in a thread, starting at the second time
        assert said(lambda: store.save_async(6, declared, copy=False, json={"a": object()} if rank else None))[1][
            0] == "TypeError"
        assert said(lambda: store.save_async(7, declared, copy=False))[1 if rank == 0 else 0]
        store.save_async(8, declared).wait()
        assert store.steps() == [1, 2, 3, 4, 5, 7, 8]  # including ranks whose calls have reported an earlier failure
    with libdcp.Store([libdcp.Tier(f"{directory}/list")]) as store:
        store.save(1, state)
        fails_on_the_second(lambda: store.load(state), "RuntimeError", "mine")
        store.save(2, state)


def tiers(directory):
    """Hosts' memory with copies, and a directory that all ranks see: a host is lost, and the newest step is
    completed."""
    rank = dist.get_rank()
    host = os.environ["DCP_HOST"] = f"host{rank // 2}"
    memory = f"{directory}/memory"
    stores = [libdcp.Tier(memory + "-{env:DCP_HOST}", keep=2, private=True, redundancy="partner"),
              libdcp.Tier(f"{directory}/shared", every=2)]
    state = {"x": distribute_tensor(torch.zeros(101, 7), init_device_mesh("cpu", (4,)), [Shard(0)])}
    with libdcp.Store(stores) as store:
        declared = store.declare(state)
        for step in range(1, 6):
            local(state["x"]).fill_(step)
            store.save_async(step, declared).fence()
    assert libdcp.steps(f"{directory}/shared") == [2, 4] and libdcp.steps(f"{memory}-{host}") == [4, 5]
    dist.barrier()
    if rank == 0:
        shutil.rmtree(f"{memory}-host1")
    dist.barrier()
    with libdcp.Store(stores) as store:
        local(state["x"]).zero_()
        assert store.newest() == 5 and store.load(state)["step"] == 5
        assert (local(state["x"]) == 5).all()


def destroyed(directory):
    """The program has destroyed its groups, and leaves its store open with a save in flight."""
    state = {"x": distribute_tensor(torch.ones(1 << 20, 4), init_device_mesh("cpu", (2,)), [Shard(0)])}
    store = libdcp.Store(directory)
    store.save_async(1, state)
    dist.barrier()
    dist.destroy_process_group()
    sys.exit()


def alone(directory):
    """One rank needs no groups, each of which would have threads and sockets."""
    dist.ProcessGroupGloo = None
    for step in range(3):
        libdcp.save(directory, step, {"x": torch.ones(4)}, group=dist.group.WORLD if step else None)


def moved(directory):
    """Tensors that get other memory while a save is in flight, and after their state was declared."""
    weight = nn.Parameter(torch.full((1 << 25,), 3.0))
    with libdcp.Store(directory) as store:
        saving = store.save_async(1, {"w": weight})
        weight.data = torch.zeros(1)
        saving.wait()
        weight.data = torch.ones(4)
        declared = store.declare({"w": weight})
        store.save(2, declared)
        weight.data = torch.zeros(4)
        for save in (store.save, store.save_async):
            try:
                save(3, declared)
                assert False
            except ValueError as e:
                assert str(e).startswith("state['w'] has other memory"), e
        assert store.steps() == [1, 2]
        changes = [lambda t: t.t_(), lambda t: t.resize_(1, 4), lambda t: setattr(t, "data", t.data.view(4, 3)),
                   lambda t: setattr(t, "data", t.data._neg_view())]
        for step, change in enumerate(changes, 3):  # at the same address
            matrix = torch.arange(12.).reshape(3, 4)
            declared = store.declare({"w": matrix})
            store.save(step, declared)
            change(matrix)
            for save in (store.save, lambda *step: store.save_async(*step, copy=False).result()):
                try:
                    save(step + 1, declared)
                    assert False
                except ValueError as e:
                    assert str(e).startswith("state['w'] has another shape, type or strides"), e
        assert store.steps() == [1, 2, 3, 4, 5, 6]
        matrix, given = torch.arange(12.).reshape(3, 4), {"z": torch.ones(2, dtype=torch.complex64)}
        declared = store.declare({"w": matrix, "of": given})
        for step in (7, 8):
            store.save_async(step, declared).wait()

        def is_refused():
            try:
                store.save_async(9, declared)
            except ValueError as e:
                return "when the state was declared" in str(e)
            return False
        whole, given["z"] = given["z"], given["z"].conj()  # lazily: at the same address, and with the same shape
        assert is_refused() and is_refused()
        given["z"] = whole
        matrix.t_()
        assert is_refused() and is_refused()
        matrix.t_()
        store.save_async(9, declared).wait()
    loaded = torch.zeros(1 << 25)
    libdcp.load(f"{directory}/step-00000001", {"w": loaded})
    assert (loaded == 3).all()


def killed(directory):
    """A rank dies while the others save; torchrun would end these before they have reported what they saw."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    libdcp.save(directory, 1, {"x": torch.ones(4)})
    with libdcp.Store(directory) as store:
        dist.barrier()
        if dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), 9)
        begin = time.monotonic()
        try:
            store.save(2, {"x": torch.ones(4)})
        except libdcp.Error as e:
            open(f"{directory}/said-{dist.get_rank()}", "w").write(f"{e.status.name} {time.monotonic() - begin:.1f}")
            os._exit(0)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    {"meshes": meshes, "fsdp": fsdp, "copies": copies, "tied": tied, "failures": failures, "apart": apart, "tiers": tiers,
     "alone": alone, "moved": moved, "destroyed": destroyed, "killed": killed}[sys.argv[1]](sys.argv[2])
    dist.barrier()
    dist.destroy_process_group()
