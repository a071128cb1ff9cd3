"""Functions that test_union.py runs on each rank; the first argument is the group."""

import collections
import logging

import numpy as np
import torch

import libdcp


def save(group, directory, step, state, **options):
    """Returns the log."""
    lines = []

    class Handler(logging.Handler):
        def emit(self, record):
            lines.append(record.getMessage())
    handler = Handler(logging.WARNING)
    logging.getLogger("libdcp").addHandler(handler)
    try:
        libdcp.save(directory, step, state, group=group, **options)
    finally:
        logging.getLogger("libdcp").removeHandler(handler)
    return lines


def load(group, directory, state, **options):
    """Returns the state as the load filled it."""
    libdcp.load(directory, state, group=group, **options)
    return state


def prove(group, state):
    return libdcp.prove(state, group=group).id


def save_declared(group, directory, state, steps, asynchronous):
    """Saves several steps of a declared state, whose tensors become the steps' numbers. Returns how often the
    ranks' names were united."""
    from libdcp import _union
    united = []
    unite = _union._unite
    _union._unite = lambda *arguments: united.append(1) or unite(*arguments)
    try:
        with libdcp.Store(directory, group=group) as store:
            declared = store.declare(state)
            for step in range(1, steps + 1):
                for tensor in state["model"].values():
                    tensor.fill_(step)
                if asynchronous:
                    store.save_async(step, declared).wait()
                else:
                    store.save(step, declared)
    finally:
        _union._unite = unite
    return len(united)


def tiers(group, directory, state, loaded):
    with libdcp.Store([libdcp.Tier(f"{directory}/fast", keep=2), libdcp.Tier(f"{directory}/slow")], group=group) as store:
        store.save(1, state)
        store.load(loaded)
    return loaded


@libdcp.register
class Mirror(collections.OrderedDict):
    """A mapping whose items are its attributes, too."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.__dict__[key] = value


@libdcp.register
class Table(collections.UserDict):
    pass


def numbers(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


class Part:
    """An object with a state dict."""

    def __init__(self, **state):
        self.state = state

    def state_dict(self):
        return dict(self.state)

    def load_state_dict(self, state):
        self.state = state


def load_parts(group, directory, states, options):
    """Loads sections of objects, made of their states. Returns these states as the load filled them."""
    parts = {name: Part(**state) for name, state in states.items()}
    libdcp.load(directory, parts, group=group, **options)
    return {name: part.state for name, part in parts.items()}


def save_parts(group, directory, states):
    libdcp.save(directory, 1, {name: Part(**state) for name, state in states.items()}, group=group)


def save_rows(group, directory, rows):
    """Saves an object whose tensor is in shards on the ranks."""
    mine = np.array_split(np.arange(rows), group.size())[group.rank()]
    shard = libdcp.Shard(torch.from_numpy(mine.astype(np.float32)), (rows,), (int(mine[0]),))
    libdcp.save(directory, 1, {"part": Part(n=1, deep={"moment": shard}, top=shard)}, group=group)


tree_save = save


def tree_load(group, directory, state, options):
    libdcp.load(directory, state, group=group, **options)
    return state


def save_own(group, directory, state):
    """Saves two steps of a declared state. Returns what is loaded of them."""
    with libdcp.Store(directory, group=group) as store:
        declared = store.declare(state)
        store.save(1, declared)
        state["n"].value += 10
        state["own"].value.fill_(2)
        store.save(2, declared)
    loaded = {"w": torch.ones(2), "n": libdcp.PerRank(0), "own": libdcp.PerRank(None)}
    libdcp.load(directory, loaded, group=group)
    return loaded


def load_own(group, directory, state):
    """Returns each rank's own values, wherever they are."""
    libdcp.load(directory, state, group=group)
    found = []

    def look(value):
        if isinstance(value, libdcp.PerRank):
            found.append(value.value)
        elif isinstance(value, dict):
            list(map(look, value.values()))
        elif isinstance(value, (list, tuple, collections.deque)):
            list(map(look, value))
    look(state)
    return found
