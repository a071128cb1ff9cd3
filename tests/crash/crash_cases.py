"""What the crash matrix covers: kinds of saves, their calls, the faults at these calls, and which steps may exist
afterwards."""
import itertools
import os
import zlib
from dataclasses import dataclass

FAULTS = ("kill", "killall", "EIO", "ENOSPC", "short", "full", "dead")
STICKY = ("full", "dead")
PAGES = 8192  # the size of a write so that half of it is a short write that a disk may do


class Failed(Exception):
    pass


@dataclass(frozen=True)
class Scene:
    """What the store contains before, what is saved, and which steps may be loaded afterwards."""
    before: tuple  # arguments of the earlier saves
    save: tuple
    old: tuple
    new: str
    held: str = ""  # the step that a reader has open meanwhile


SCENES = {
    "plain": Scene((("1",),), ("2",), ("1",), "2"),
    "replace": Scene((("1",), ("2",)), ("2", "new", "replace"), ("2",), "2 new"),
    "keep": Scene((("1",), ("2",), ("3",)), ("4", "keep=2"), ("3",), "4"),
    "back": Scene((("1",), ("2",), ("3",)), ("2", "new", "back=1"), ("3", "1"), "2 new"),
    "read": Scene((("1",), ("2",), ("3",)), ("4", "keep=2"), ("3",), "4", "1"),
    "reread": Scene((("1",), ("2",)), ("2", "new", "replace"), ("2",), "2 new", "2"),
    "frozen": Scene((("1", "frozen"),), ("4", "frozen", "earlier=2"), ("3",), "4"),
    "spare": Scene((("1",),), ("5", "keep=1", "earlier=3"), ("4",), "5"),
    "remove": Scene((("1",), ("2",), ("3",)), ("3", "remove"), ("3",), "2"),
    "lost": Scene((("1",), ("2",)), (), ("1",), "2"),
}
PUBLICATIONS = ("replace", "keep", "back", "read", "reread", "remove")
REDUNDANCY = {"partner": "partner", "rs1": "rs(1)", "rs2": "rs(2)"}
LOSERS = 4  # ranks that save what is then lost, each on a node


@dataclass(frozen=True)
class Config:
    layout: str  # global, sharded
    mode: str    # sync, async
    engine: str  # uring, pwrite (direct without io_uring), mpio
    store: str   # disk, memory, xfs, nodes (one directory per rank), those with redundancy, or a
                 # list of two: tiers
    scene: str = "plain"

    @property
    def name(self):
        return ".".join((self.layout, self.mode, self.engine, self.store, self.scene))

    @property
    def place(self):
        return {"memory": "memory", "partner": "memory", "xfs": "xfs"}.get(self.store, "disk")

    def is_private(self):
        return self.store in ("nodes", "tiers") or self.store in REDUNDANCY

    def program(self, programs):
        return programs.tiers if self.store == "tiers" else programs.state

    def old(self):
        """Returns the steps that may be loaded after a kill, except the new one. Nodes cannot replace a step
        atomically."""
        older = ("1",) if self.scene in ("replace", "reread") and self.is_private() else ()
        return SCENES[self.scene].old + older

    def is_basic(self):
        return self.mode == "sync" and self.engine != "pwrite" and self.store == "disk"

    def state_words(self):
        if self.store == "tiers":
            return []
        if self.store in REDUNDANCY:
            return ["few", f"redundancy={REDUNDANCY[self.store]}"]
        return ["few", "private"] if self.store == "nodes" else ["few"]

    def words(self):
        words = [w for w in (self.layout, self.mode, self.engine)
                 if w in ("sharded", "async", "mpio") and self.store != "tiers"]
        return [*SCENES[self.scene].save, *words, *self.state_words()]

    def directories(self, store):
        """Returns the directories of steps."""
        return [os.path.join(store, n) for n in os.listdir(store)] if self.is_private() else [store]


def configs():
    kinds = itertools.product(("global", "sharded"), ("sync", "async"), ("uring", "pwrite", "mpio"))
    found = [Config(*k, "disk") for k in kinds]
    found += [Config(layout, "async", "uring", "memory") for layout in ("global", "sharded")]
    found += [Config("sharded", mode, "uring", "nodes") for mode in ("sync", "async")]
    found += [Config("sharded", "async", "uring", store) for store in ("partner", "rs1")]
    found += [Config("sharded", "async", "uring", "tiers")]
    found += [Config("global", "sync", "uring", "disk", s) for s in PUBLICATIONS]
    found += [Config("sharded", "sync", "uring", "nodes", s) for s in PUBLICATIONS]
    found += [Config("sharded", "sync", "uring", store, "lost") for store in REDUNDANCY]
    found += [Config(layout, "sync", "uring", "xfs", "frozen") for layout in ("global", "sharded")]
    found += [Config("global", "sync", "uring", "disk", "spare"),
              Config("sharded", "async", "uring", "memory", "spare")]
    return found


@dataclass(frozen=True)
class Call:
    rank: int
    number: int
    name: str
    needs_room: bool
    size: int
    time: int
    path: str

    def takes(self, fault):
        if fault in ("ENOSPC", "full"):
            return self.needs_room
        if fault == "short":
            whole_pages = self.path.endswith(".h5")
            return self.name == "write" and (self.size >= PAGES or not whole_pages)
        return True


@dataclass(frozen=True)
class Case:
    config: Config
    call: Call
    fault: str

    @property
    def name(self):
        return f"{self.config.name}/{self.call.rank}/{self.fault}/{self.call.number}"

    def is_of_the_tenth(self):
        return zlib.crc32(self.name.encode()) % 10 == 0


def lost_nodes(number):
    return [n for n in range(LOSERS) if number >> n & 1]


def losses(config):
    """Returns every set of nodes except all, as a number with one bit per node."""
    calls = [Call(0, number, "loss of " + str(len(lost_nodes(number))), False, 0, 0,
                  "the files of nodes " + str(lost_nodes(number)))
             for number in range(1, (1 << LOSERS) - 1)]
    return [Case(config, c, fault) for c in calls for fault in ("lost-step", "lost-node")]


def can_be_rebuilt(store, lost):
    if store == "partner":
        return not any((n + 1) % LOSERS in lost for n in lost)
    return len(lost) <= int(store[2:])


def check_order(config, store, calls):
    """Checks in each store that everything in the new step's folders is durable before any of the folders is
    renamed, and that the renames are durable before the end."""
    stores = {}
    for root in config.directories(store):
        stores.setdefault(os.path.basename(root).split("-")[0], []).append(root)
    for roots in stores.values():
        check_order_of_store(config, roots, calls)


def check_order_of_store(config, roots, calls):
    step = f"step-{int(SCENES[config.scene].save[0]):08}"
    folders = [os.path.join(root, ".tmp-" + step) for root in roots]
    named = {c.path: c.time for c in sorted(calls, key=lambda c: c.time)  # the last: one with flags
             if c.name.startswith("rename") and  # the call may have been refused
             c.path in [os.path.join(root, step) for root in roots]}
    renames = named.values()
    if len(renames) != len(roots):
        raise Failed(f"{config.name}: {len(renames)} renames to {step} in {len(roots)} directories")

    def synced(path, after, before):
        return any(c.name in ("fsync", "fdatasync") and c.path == path and after < c.time < before
                   for c in calls)
    changes = {}
    for c in calls:
        folder = os.path.dirname(c.path)
        if folder in folders:
            changed = c.name in ("write", "fallocate", "ftruncate", "clone")
            for path in (c.path,) * changed + (folder,) * (c.name == "open" and c.needs_room):
                changes[path] = max(c.time, changes.get(path, 0))
    for path, last in changes.items():
        if not synced(path, last, min(renames)):
            raise Failed(f"{config.name}: {path} is not synced before its step has its name")
    for root in roots:
        if not synced(root, min(renames), 1 << 63):
            raise Failed(f"{config.name}: {root} is not synced after the rename")
