"""Functions that test_store_ranks.py runs on each rank; the first argument is the group."""

import contextlib
import logging
import os
import threading
import time
import warnings
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist

import libdcp
import libdcp.hf
from libdcp import _directory, _groups, _tiers
from test_forks import end_of_child


def said(call):
    """Returns the exception in a form that the parent compares; None if there was none."""
    try:
        call()
    except Exception as e:
        return type(e).__name__, str(e), getattr(e, "status", None)


class Sampler:
    def __init__(self, failures):
        self.failures = failures

    def state_dict(self):
        return {"n": 1}

    def load_state_dict(self, state):
        if self.failures:
            raise self.failures.pop()


def save(group, directory, steps):
    with libdcp.Store(directory, group=group) as store:
        for step in steps:
            store.save(step, {"w": np.full(100, step + 0.5), "sampler": Sampler([])})


def load(group, directory, options, failures):
    """Returns the step that was loaded, or the exception, with the first element; then the steps after one more
    save."""
    state = {"w": np.zeros(100), "sampler": Sampler(list(failures))}
    with libdcp.Store(directory, group=group) as store:
        loaded = []
        raised = said(lambda: loaded.append(store.load(state, **options)["step"]))
        if raised is None:
            store.save(loaded[0] + 1, state)
        return raised or (loaded[0], float(state["w"][0])), store.steps()


def save_beside_children(group, directory):
    """Returns how the children of rank 0 end, which close their copies of the store, or ask for its newest step."""
    with libdcp.Store(directory, group=group) as store:
        store.save(1, {"w": np.ones(3)})
        ends = [end_of_child(call) for call in (store.close, store.newest) if dist.get_rank(group) == 0]
        store.save(2, {"w": np.zeros(3)})
    return ends, libdcp.steps(directory)


class Failing:
    """An object whose function of that name raises the exception, once."""

    def __init__(self, name, failure):
        self._name, self._failure = name, failure

    def _call(self, name):
        if self._name == name and self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def state_dict(self):
        self._call("state_dict")
        return {"n": 1}

    def load_state_dict(self, state):
        self._call("load_state_dict")

    def progress(self, done, total):
        self._call("progress")


def load_failing(group, places, name, failure):
    """Loads with a function that raises the exception; None: none of this rank's functions does. Returns what the load
    raises, and whether it is the same exception, what this rank logs, and the step that a second load finds."""
    failing = Failing(name, failure)
    state = {"w": np.zeros(100), "sampler": failing}
    with warned() as lines, libdcp.Store(places, group=group) as store:
        try:
            raised = store.load(state, progress=failing.progress)["step"], False
        except Exception as e:
            raised = (type(e).__name__, str(e)), e is failure
        return *raised, lines, store.load({"w": np.zeros(100), "sampler": Sampler([])})["step"]


def save_rows(group, directory, step, is_new):
    state = {"w": np.full(100, step + 0.5), "row": libdcp.PerRank(np.full(10, 10.0 * step + group.rank()))}
    if is_new:
        state["new"] = np.full(3, 7.0)
    libdcp.save(directory, step, state, group=group)


def load_rows(group, directory, how, options):
    """Returns the step that was loaded, the row's first element and whether the load restored it, and a tensor's;
    or the exception."""
    row = np.full(10, -7.0)
    state = {"w": np.zeros(100), "row": libdcp.PerRank(row)}
    if "strict" in options:
        state["new"] = np.zeros(3)
    def load():
        if how == "load":
            return libdcp.load(directory, state, group=group, **options)
        places = [libdcp.Tier(directory)] if how == "list" else directory
        with libdcp.Store(places, group=group) as store:
            return store.load(state, **options)
    loaded = []
    raised = said(lambda: loaded.append(load()["step"]))
    assert state["row"].value is row
    return raised or (loaded[0], float(row[0]), state["row"].loaded, float(state["w"][0]))


def save_either(group, directory, kind):
    """Returns what a save raises if the first rank has a tensor where the second has something else."""
    tensor = np.ones(3)
    first, second = {
        "none": ({"a": tensor, "b": 2}, {"a": None, "b": 2}), "number": ({"a": tensor}, {"a": 1}), "list": ([1, 2], [1, tensor]),
        "longer": ([tensor], [tensor, tensor]), "leaf": ({"a": tensor}, 5), "alike": ({"a": tensor, "b": 2}, {"c": 1}),
        "empty": ({"a": {"b": tensor}}, {"a": {}})}[kind]
    state = {"m": {"w": np.ones(2)}, "v": (first, second)[group.rank()]}
    return said(lambda: libdcp.save(directory, 1, state, group=group, replicas="warn")) or libdcp.read(directory)["v"]


def load_named(group, directory, is_store, options, names):
    """Returns what a load raises on the first rank, whose state has these additional names."""
    state = {"w": np.zeros(100), "sampler": Sampler([]), **dict.fromkeys(names, 0)}
    if not is_store:
        return said(lambda: libdcp.load(directory, state, group=group, **options))
    with libdcp.Store(directory, group=group) as store:
        return said(lambda: store.load(state, **options))


def lost(group, directory, hears, how, next_step):
    """A save of a step older than the newest fails in the background. Returns what the next save raises."""
    warnings.simplefilter("ignore")
    state = {"w": np.ones(100)}
    with libdcp.Store(directory, group=group) as store:
        declared = store.declare(state)
        saving = store.save_async(1, declared)
        if hears:
            assert saving.exception()
        raised = said(lambda: getattr(store, how)(next_step, declared))
        again = said(lambda: getattr(store, how)(next_step + 1, declared))
        store.fence()
    return raised, again, libdcp.steps(directory)


class Collective:
    """An object whose state dict needs all ranks."""

    def __init__(self, group):
        self.group = group

    def state_dict(self):
        ranks = torch.ones(1)
        dist.all_reduce(ranks, group=self.group)
        return {"ranks": int(ranks)}

    def load_state_dict(self, state):
        pass


def lost_with_collective_state(group, directory, hears, how, is_declared):
    """A save fails in the background. Returns what the next save raises."""
    warnings.simplefilter("ignore")
    with libdcp.Store(directory, group=group) as store:
        state = {"w": np.ones(100), "sampler": Collective(group)}
        state = store.declare(state) if is_declared else state
        saving = store.save_async(1, state)
        if hears:
            assert saving.exception()
        raised = said(lambda: getattr(store, how)(4, state))
        store.fence()
    return raised


def save_numbers(group, places, how, steps):
    """Returns what a save raises if the ranks pass these steps; and the store's steps after another one."""
    state = {"w": np.ones(3)}
    with libdcp.Store(places, group=group) as store:
        raised = said(lambda: getattr(store, how)(steps[group.rank()], state))
        store.save(5, state)
        return raised, store.steps()


class Asked:
    """An object that notes the calls of its functions, which might need all ranks; the one of that name fails."""

    def __init__(self, name, calls, state, failing):
        self._name, self._calls, self._state, self._failing = name, calls, state, failing

    def _call(self, function):
        self._calls.append(f"{self._name}.{function}")
        if self._failing == function:
            raise OSError(f"{self._name} fails")

    def state_dict(self):
        self._call("state_dict")
        return dict(self._state)

    def load_state_dict(self, state):
        self._call("load_state_dict")


def asked(group, directory, how, wrong):
    """Calls the package with a state in which that is wrong on the second rank. Returns the calls of its objects'
    functions, and what is raised."""
    wrong = wrong if group.rank() == 1 else ""
    calls, tensor = [], np.ones(3)

    def state(wrong):
        return {"w": tensor, **({"no": object()} if wrong == "value" else {}),
                "a": Asked("a", calls, {} if wrong == "lacks" else {"n": 1, "x": np.ones(2)}, wrong),
                "inner": {"b": Asked("b", calls, {"n": 2}, ""), "more": {"c": Asked("c", calls, {"n": 3}, "")}}}
    header = b'{"w":{"dtype":"F64","shape":[3],"data_offsets":[0,24]}}'
    file = directory.with_name(f"{directory.name}-{group.rank()}.safetensors")
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes(24))
    with libdcp.Store(directory, group=group, replace=True) as store:
        store.save(1, state(""))
        inner = state("")
        given = store.declare(inner) if how.startswith("declared") else inner
        inner.clear()
        inner.update(state(wrong))
        calls.clear()
        call = {"save": lambda: store.save(2, given), "save_async": lambda: store.save_async(2, given).wait(),
                "load": lambda: store.load(given), "prove": lambda: libdcp.prove(given, group=group),
                "hf.load": lambda: libdcp.hf.load(file, given, group=group, strict=False)}[how.split()[-1]]
        return calls, said(call)


def with_a_state_declared_alone(group, directory, is_async):
    """Saves, and loads, a state that a store of this process has declared. Returns the row that was loaded, whether
    the load restored it, and what the loader got."""
    rank = group.rank()
    row, loader = np.full(3, rank + 0.5), Sampler([])
    loader.state_dict = lambda: {"samples": loader.samples}
    loader.load_state_dict = lambda state: setattr(loader, "samples", state["samples"])
    loader.samples = 10 + rank
    each = libdcp.PerRank(row)
    with libdcp.Store(directory / f"own-{rank}", group=dist.new_subgroups(1)[0]) as alone:
        declared = alone.declare({"row": each, "data": {"loader": libdcp.Loader(loader)}})
    with libdcp.Store(directory / "run", group=group) as store:
        for step in (1, 2):
            row += step
            store.save_async(step, declared).wait() if is_async else store.save(step, declared)
        row[:], loader.samples = 0, 0
        store.load(declared)
    return row.tolist(), each.loaded, loader.samples


def prove(group, options):
    return said(lambda: libdcp.prove({"w": np.ones(3)}, group=group, **options))


def save_columns(group, directory, whole):
    """Saves each rank's part of the columns, as one shard per rank."""
    rank, width = group.rank(), whole.shape[1] // group.size()
    mine = np.ascontiguousarray(whole[:, rank * width:(rank + 1) * width])
    libdcp.save(directory, 1, {"w": libdcp.Shard(mine, whole.shape, (0, rank * width))}, group=group, layout="sharded")


def threads_with_groups(group, directory, opens_in_threads, is_async, n):
    """Each of n threads saves into a store of its own, with its own group; the ranks begin with different stores.
    Returns what each store gives."""
    groups = [dist.new_group() for _ in range(n)]
    stores = [] if opens_in_threads else [libdcp.Store(directory / str(k), group=groups[k]) for k in range(n)]
    begun = [threading.Event() for _ in range(n)]
    found = [None] * n

    def work(k):
        first = dist.get_rank() % n
        if k != first:
            begun[first].wait()
        begun[k].set()
        with stores[k] if stores else libdcp.Store(directory / str(k), group=groups[k]) as store:
            for step in range(1, 4):
                state = {"w": np.full(3, 10.0 * step + k), "n": 10 * step + k}
                if is_async:
                    store.save_async(step, state).wait()
                else:
                    store.save(step, state)
            state = {"w": np.zeros(3), "n": 0}
            found[k] = store.load(state)["step"], state["n"], state["w"].tolist()
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@contextlib.contextmanager
def warned():
    """A list of the lines that this rank logs."""
    lines = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: lines.append(record.getMessage())
    logger = logging.getLogger("libdcp")
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)


def private_store(group, directory, redundancy, steps, value):
    """Saves steps of that value into a private store; without steps, loads the newest one, and tries to save others.
    Returns the step that was loaded, its value, what the saves raise, and warnings."""
    tier = libdcp.Tier(directory / "node-{rank}", private=True, domain="{rank}", redundancy=redundancy, keep=2)
    rows = 12 // group.size()

    def state(number):
        return {"w": libdcp.Shard(np.full(rows, number), (12,), (rows * group.rank(),))}
    loaded = state(0.0)
    with warned() as lines, libdcp.Store([tier], group=group) as store:
        for step in steps:
            store.save(step, state(value))
        if steps:
            return None
        step = store.load(loaded)["step"]
        raised = [said(lambda: store.save(new, state(value))) for new in (4, step, 99)]
        return step, float(loaded["w"].array[0]), [why and why[2] for why in raised], lines


def futures_of_list(group, directory):
    """Saves into a list of two directories in the background. No rank waits for another one, or for the store."""
    def all_have_it():
        return list(_directory.steps(directory / "slow")) == [1]
    published = []
    tiers = [libdcp.Tier(directory / "fast"), libdcp.Tier(directory / "slow")]
    with libdcp.Store(tiers, group=group, on_published=lambda *what: published.append(what)) as store:
        saving = store.save_async(1, {"w": np.full(3, 1.0)})
        fulfilled(saving.done)
        bytes_saved = saving.result(timeout=0).bytes
        fulfilled(all_have_it)
        due = [store.is_due(1), store.is_due(2)]
        second = store.save_async(2, {"w": np.full(3, 2.0)})
        if group.rank() == 0:
            second.wait()  # the others never do
    return bytes_saved > 0, due, published


def without_threads(group, directory):
    """Saves in the background by a group that only one thread can use. The program ends without a close: a wait fills the
    stores of a list, too."""
    state = {"w": np.full(3, 1.0)}
    with mock.patch.object(_groups.TorchGroup, "threads", False):
        for places in (directory / "alone", [libdcp.Tier(directory / "fast"), libdcp.Tier(directory / "slow")]):
            store = libdcp.Store(places, group=group, on_published=lambda *_: None)
            store.save_async(1, state).wait()
            filled = list(_directory.steps(directory / "slow")) if isinstance(places, list) else []
            saving = store.save_async(2, state, copy=False)
            store.close()
            saving.result(timeout=0)
    return filled


def fulfilled(condition):
    """Waits until the condition holds; fails after a minute, in which case it never will."""
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.001)


def load_of_list(group, directory, more, progress):
    """Saves two steps into a list, and loads with a state that names more. Returns what that raises, and what a load of
    the saved state finds afterwards."""
    def fail(done, total):
        raise OSError("not here")
    with libdcp.Store([libdcp.Tier(directory)], group=group) as store:
        for step in (1, 2):
            # The older step has what the newer one lacks.
            store.save(step, {"w": np.full(3, step), "n": step, **({"more": {"x": np.ones(2)}, "m": 1} if step == 1 else {})})
        state = {"w": np.zeros(3, int), "n": 0, **more}
        raised = said(lambda: store.load(state, progress=fail if progress else None))
        state = {"w": np.zeros(3, int), "n": 0}
        return raised, store.load(state)["step"], state["n"], state["w"].tolist()


def warnings_of_paths(group, directory):
    """Returns what this rank logs about the paths of a store and of a load."""
    with warned() as lines:
        with libdcp.Store(directory, group=group) as store:
            store.save(1, {"w": np.ones(2)})
        libdcp.load(directory, {"w": np.ones(2)}, group=group)
    return [line for line in lines if "passed" in line]


def open_store(group, directory):
    return said(lambda: libdcp.Store(directory, group=group))


def open_unreadable(group, places):
    """Opens a store whose steps the first rank cannot list."""
    def fail(_directory):
        raise OSError("can't be read")
    with contextlib.ExitStack() as patches:
        for module in (_directory, _tiers) if group.rank() == 0 else ():
            patches.enter_context(mock.patch.object(module, "steps", fail))
        raised = open_store(group, places)
    libdcp.Store(places, group=group).close()  # the first one holds nothing
    return raised


def newest_of_a_moved_store(group, directory):
    """Returns what the newest step is, while the directory has another name, and afterwards."""
    def move(there, here):
        if group.rank() == 0:
            os.rename(there, here)
        dist.barrier(group)
    with libdcp.Store(directory, group=group) as store:
        store.save(1, {"w": np.ones(2)})
        move(directory, f"{directory}-moved")
        raised = said(store.newest)
        move(f"{directory}-moved", directory)
        return raised, store.newest()


def newest_of_a_large_number(group, directory):
    """Returns the newest step of a directory with a folder of a step that no signed word of 64 bits holds."""
    with libdcp.Store(directory, group=group) as store:
        store.save(1, {"w": np.ones(2)})
        if group.rank() == 0:
            os.mkdir(f"{directory}/step-9999999999999999999")
        dist.barrier(group)
        return store.newest()


def load_alone(group, directory):
    return said(lambda: libdcp.load(directory, {"w": np.ones(2)}, group=group))
