"""Functions that test_signal_ranks.py calls on each rank of a group."""

import os
import random
import signal
import threading
import time
import traceback

from unittest import mock

import numpy as np
import torch.distributed as dist

import libdcp
import libdcp.hf
from libdcp import _groups

from test_signals import Moment


class Mine(Exception):
    pass


def told(call):
    """Returns how a call ends: "ended", what it raises, or for libdcp.Error which rank it names."""
    try:
        call()
        return "ended"
    except libdcp.Error as e:
        return ("Error", e.rank, e.status.name)
    except (KeyboardInterrupt, Mine) as e:
        return (type(e).__name__, traceback.extract_tb(e.__traceback__)[-1].name)


def state_of(group):
    rank, ranks = group.rank(), group.size()
    return {"w": libdcp.Shard(np.full((1, 200000), float(rank)), (ranks, 200000), (rank, 0)), "all": np.arange(1000.0)}


def given_up(group, directory, who):
    """Interrupts each call on a store, by Ctrl-C on rank `who`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    state = state_of(group)
    with libdcp.Store(directory, group=group) as store:
        store.save(1, state)
        ends = []
        for call in (lambda: store.save(2, state), lambda: store.load(state), lambda: libdcp.load(directory, state, group=group),
                     lambda: libdcp.prove(state, group=group), lambda: store.save_async(2, state).wait()):
            with Moment(times=int(group.rank() == who)):
                end = told(call)
            ends.append((end[0] if end[0] == "KeyboardInterrupt" else end, store.steps()))
        store.save(2, state)
        return ends, store.steps()


def begun_in_list(group, directory, who):
    """Ctrl-C on rank `who` once a save into a list has begun: that rank never waits for the save, the others do."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = libdcp.Store._begun

    def interrupted_after(store, *given):
        saving = begun(store, *given)
        if group.rank() == who:
            os.kill(os.getpid(), signal.SIGINT)
        return saving
    state = state_of(group)
    with libdcp.Store([libdcp.Tier(directory / "fast"), libdcp.Tier(directory / "slow")], group=group) as store:
        store.save(1, state)
        with mock.patch.object(libdcp.Store, "_begun", interrupted_after):
            end = told(lambda: store.save_async(2, state).wait())
        dist.barrier(group)  # reached on the other ranks only if their waits end
        store.save(3, state)
        return end[0] if end[0] == "KeyboardInterrupt" else end, store.steps()


def prepared_late(group, directory, who):
    """Ctrl-C while a rank examines its state, before it has sent anything to the others."""
    signal.signal(signal.SIGINT, signal.default_int_handler)

    class Slow(dict):
        def items(self):
            if group.rank() == who:
                os.kill(os.getpid(), signal.SIGINT)
            return super().items()
    with libdcp.Store(directory, group=group) as store:
        end = told(lambda: store.save(1, {"model": Slow(state_of(group))}))
        store.save(2, state_of(group))
        return end if end[0] == "Error" else end[0], store.steps()


class Together:
    """An object whose functions need all ranks. On this rank, Ctrl-C interrupts the function of that name, once."""

    def __init__(self, group, name=""):
        self._group, self.name = group, name

    def _call(self, name):
        if self.name == name:
            self.name = ""
            os.kill(os.getpid(), signal.SIGINT)
        dist.barrier(self._group)

    def state_dict(self):
        self._call("state_dict")
        return {"samples": 1}

    def load_state_dict(self, state):
        self._call("load_state_dict")


def collective_objects(group, directory, who):
    """Ctrl-C while the state's objects are asked for their state, or get it, which needs all ranks; or just before."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    directory.mkdir(exist_ok=True)
    header = b'{"w":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
    file = directory / f"{group.rank()}.safetensors"
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    hits = group.rank() == who
    settle = libdcp.Store._settle_again

    def interrupted_before(store, earlier):
        if hits:
            os.kill(os.getpid(), signal.SIGINT)
        return settle(store, earlier)

    def state(name, place="a"):
        of = {"a": Together(group), "b": Together(group), "loader": Together(group)}
        of[place].name = name if hits else ""
        return {"w": np.ones(3), **of, "loader": libdcp.Loader(of["loader"])}

    def before(call):
        with mock.patch.object(libdcp.Store, "_settle_again", interrupted_before):
            call()

    def declared(store, name):
        given = state("")
        made = store.declare(given)
        given["a"].name = name if hits else ""
        return made

    def named(name):
        return {"w": np.zeros(3), "a": Together(group, name if hits else ""), "b": Together(group)}
    with libdcp.Store(directory / "run", group=group) as store:
        store.save(1, state(""))
        calls = [lambda: before(lambda: store.save(2, state(""))),
                 lambda: before(lambda: store.save(2, declared(store, ""))),
                 lambda: store.save(2, state("state_dict")), lambda: store.save(2, declared(store, "state_dict")),
                 lambda: store.save_async(2, state("state_dict")).wait(),
                 lambda: store.save(2, state("state_dict", "loader")),
                 lambda: libdcp.prove(state("state_dict"), group=group)]
        for name in ("state_dict", "load_state_dict"):
            calls += [lambda name=name: store.load(state(name)), lambda name=name: store.load(declared(store, name)),
                      lambda name=name: libdcp.load(directory / "run", state(name), group=group),
                      lambda name=name: libdcp.hf.load(file, named(name), group=group)]
        calls.append(lambda: store.load(state("load_state_dict", "loader")))
        ends = [told(call) for call in calls]
        steps = store.steps()
        store.save(2, state(""))
    return [end[0] if end[0] == "KeyboardInterrupt" else end for end in ends], steps


def failing_group(group, directory, who):
    """A collective of the group raises on one rank."""
    real = _groups.TorchGroup.broadcast

    def broadcast(self, data, root):
        if group.rank() == who:
            raise Mine("of the group")
        real(self, data, root)
    with libdcp.Store(directory, group=group) as store:
        store.save(1, state_of(group))
        _groups.TorchGroup.broadcast = broadcast
        try:
            return told(lambda: store.save(2, state_of(group)))
        finally:
            _groups.TorchGroup.broadcast = real


def at_random(group, directory, seed, rounds):
    """Signals at random moments of random calls, on one rank at a time."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chance, rank, state = random.Random(seed), group.rank(), state_of(group)
    proof = libdcp.prove(state, group=group)

    def wait_for(store, step):
        saving = store.save_async(step, state)
        saving.fence()
        saving.wait()

    def reopen(store, step):
        with libdcp.Store(f"{directory}-other", group=group):
            pass
    ends = []
    step = 1
    with libdcp.Store(directory, group=group, keep=2) as store:
        store.save(step, state)
        for number in range(rounds):
            who, delay = chance.randrange(group.size()), chance.random() ** 2 * 0.05
            call = chance.choice([lambda n: store.save(n, state), lambda n: wait_for(store, n), lambda n: store.load(state),
                                  lambda n: libdcp.prove(state, group=group), lambda n: reopen(store, n)])
            step += 1
            group.barrier().wait()
            ends.append((who, interrupted(lambda: call(step), rank == who, delay)))
    with libdcp.Checkpoint(directory) as checkpoint:
        assert checkpoint.verify() == [] and checkpoint.proof() == proof
    return ends


def interrupted(call, is_meant, delay):
    def kill():
        begin.wait()
        time.sleep(delay)
        os.kill(os.getpid(), signal.SIGINT)
    begin, killer = threading.Event(), threading.Thread(target=kill)
    end, came = "", 0
    if is_meant:
        killer.start()
    try:
        begin.set()
        end = told(call)
        if end[0] == "KeyboardInterrupt":
            came += 1
        while is_meant and not came:
            time.sleep(0.0001)
    except KeyboardInterrupt:
        came += 1
    assert came == int(is_meant), (came, end)
    if is_meant:
        killer.join()
    return end
