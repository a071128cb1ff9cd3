#!/usr/bin/env python3
"""The crash matrix: a save of two ranks with a failure at its operation N, for every N there is.

For each kind of save (layout, mode, engine, store, and what publication has to do besides) one run
counts the calls of each rank that open or change anything in the store's directory (inject.c).
Then each call of each rank is a place to fail at: SIGKILL of the rank or of all, EIO, ENOSPC, a
short write, and a disk that is full or dead from there on. After each case:
  - it ended (a watchdog decides) and no process is left; a killed save did not say it succeeded;
  - a save that failed says so, and the old step loads, bit for bit; one that succeeded left the new
    step; else (killed, or a dead disk) either may be there, whole, never a mix;
  - a failed save left nothing behind, before anybody cleans, and works when asked for again;
  - it loads on another number of ranks, every byte of every step verifies, left-overs are gone at
    the next start, and the next save works (crash_state next).
Stores with redundancy lose the files of a step, or whole nodes, as well: what the remaining files
suffice for is rebuilt, bit for bit, else the older step loads, or a clear error names the loss.
The counting run also shows the order that power failures need: what lies in a step's folder is
synced after the last change and before the rename, and the directory after it.

    crash_matrix.py [--tenth] [--only PATTERN] [--case ID] [--list] [--jobs N]
                    [--journal FILE] [--record FILE]

Exit status: 0 where all cases are as they must be, else 1.
"""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
WATCHDOG = 60  # seconds; a save takes less than one
FAULTS = ("kill", "killall", "EIO", "ENOSPC", "short", "full", "dead")
STICKY = ("full", "dead")
OUTCOMES = ("old", "new", "refused", "failed")
PAGES = 8192  # what a short write needs to stay one that a disk may do


@dataclass(frozen=True)
class Scene:
    """What the store holds before, what is saved, and what may load afterwards."""
    before: tuple  # arguments of the saves before
    save: tuple
    old: tuple
    new: str


SCENES = {
    "plain": Scene((("1",),), ("2",), ("1",), "2"),
    "replace": Scene((("1",), ("2",)), ("2", "new", "replace"), ("2",), "2 new"),
    "keep": Scene((("1",), ("2",), ("3",)), ("4", "keep=2"), ("3",), "4"),
    "back": Scene((("1",), ("2",), ("3",)), ("2", "new", "back=1"), ("3", "1"), "2 new"),
    "frozen": Scene((("1", "frozen"),), ("4", "frozen", "earlier=2"), ("3",), "4"),
    "lost": Scene((("1",), ("2",)), (), ("1",), "2"),
}
PUBLICATIONS = ("replace", "keep", "back")
REDUNDANCY = {"partner": "partner", "rs1": "rs(1)", "rs2": "rs(2)"}
LOSERS = 4  # ranks that save what is lost then, each on a node


@dataclass(frozen=True)
class Config:
    layout: str  # global, sharded
    mode: str    # sync, async
    engine: str  # uring, pwrite (direct without io_uring), mpio
    store: str   # disk, memory, xfs, nodes (a directory a rank), those with redundancy, or a
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
        """Those of steps."""
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


class Failed(Exception):
    pass


class Programs:
    def __init__(self, build):
        bin_dir = os.path.join(build, "tests", "bin")
        self.state = os.environ.get("CRASH_STATE", os.path.join(bin_dir, "crash_state"))
        self.tiers = os.environ.get("CRASH_TIERS", os.path.join(bin_dir, "crash_tiers"))
        self.inject = os.environ.get("CRASH_INJECT", os.path.join(bin_dir, "crash_inject.so"))
        self.mpirun = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split()
        for program in (self.state, self.tiers, self.inject):
            if not os.path.exists(program):
                sys.exit(f"{program} is not there: build it, or name the build folder with --build")

    def ranks(self, n, arguments, env=None, program=None):
        """crash_state, or another program, on n ranks; of crash_state one rank needs no launcher.
        (exit status, output, errors). Where
        all ranks are gone and the launcher alone hangs, as mpirun does now and then when all are
        killed, it is killed as well."""
        command = [program or self.state, *arguments]
        if n > 1:
            preload = ["-x", f"LD_PRELOAD={self.inject}"] if env else []
            command = [*self.mpirun, "-n", str(n), *preload, *command]
        child = subprocess.Popen(command, env={**os.environ, **(env or {})}, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = child.communicate(timeout=WATCHDOG)
        except subprocess.TimeoutExpired:
            left = [p for p in pids(env["INJECT_CONTROL"]) if is_running(p)] if env else []
            hangs = left or not env
            os.killpg(child.pid, signal.SIGKILL)
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            out, err = child.communicate()
            if hangs:
                raise Failed(f"hangs: {' '.join(arguments)}") from None
        return child.returncode, out, err


def linked_copy(source, target):
    """Steps by hard links: nobody may write into a published step."""
    os.mkdir(target)
    for entry in os.scandir(source):
        copy = os.path.join(target, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), copy)
        elif entry.is_dir():
            linked_copy(entry.path, copy)
        elif entry.name == ".lock":
            shutil.copy(entry.path, copy)
        else:
            os.link(entry.path, copy)


class Place:
    """Scratch folders on one file system, with a directory of steps for each scene."""
    def __init__(self, parent, programs):
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="dcp_matrix.", dir=parent))
        self.programs = programs
        self.slots = itertools.count()
        self.lock = threading.Lock()

    def before(self, config):
        """A store as the scene wants it; made once."""
        words = config.state_words()
        made = os.path.join(self.dir, "-".join((config.scene, config.store, *words)))
        program = config.program(self.programs)
        ranks = LOSERS if config.scene == "lost" else 2
        with self.lock:
            for arguments in () if os.path.exists(made) else SCENES[config.scene].before:
                status, _, err = self.programs.ranks(ranks, ["save", made, *arguments, *words],
                                                     program=program)
                if status:
                    raise Failed(f"the saves before: {err}")
        return made

    def fresh(self, config):
        """(a copy of it, a folder for what inject.c tells)"""
        slot = os.path.join(self.dir, f"slot.{next(self.slots)}")
        os.mkdir(slot)
        os.mkdir(os.path.join(slot, "control"))
        linked_copy(self.before(config), os.path.join(slot, "store"))
        return os.path.join(slot, "store"), os.path.join(slot, "control")


def enter_namespace():
    """A mount namespace of our own, so that what is mounted goes with us; or not, without it."""
    if os.geteuid() == 0 and "DCP_MATRIX_MOUNTS" not in os.environ and \
            not subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL,
                               check=False).returncode:
        os.environ["DCP_MATRIX_MOUNTS"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])


def mount_xfs(parent):
    """A folder on an XFS image, whose files can share extents; None where none can be mounted."""
    image, folder = os.path.join(parent, "image"), os.path.join(parent, "xfs")
    os.mkdir(folder)
    steps = (["truncate", "-s", "1G", image], ["mkfs.xfs", "-q", image],
             ["mount", "-o", "loop", image, folder])
    try:
        for step in steps if "DCP_MATRIX_MOUNTS" in os.environ else ():
            subprocess.run(step, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError):
        return None
    return folder if os.path.ismount(folder) else None


class Matrix:
    def __init__(self, programs, scratch):
        self.programs = programs
        self.scratch = tempfile.mkdtemp(prefix="dcp_matrix.", dir=scratch)
        self.places = {"disk": Place(self.scratch, programs), "memory": Place("/dev/shm", programs)}
        image = mount_xfs(self.scratch)
        if image:
            self.places["xfs"] = Place(image, programs)

    def close(self):
        for place in self.places.values():
            shutil.rmtree(place.dir, ignore_errors=True)
        if "xfs" in self.places:
            quiet(["umount", os.path.dirname(self.places["xfs"].dir)])
        shutil.rmtree(self.scratch, ignore_errors=True)

    def save(self, config, store, control, **settings):
        env = {f"INJECT_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"INJECT_BELOW": store, "INJECT_CONTROL": control}
        env |= {"INJECT_NO_RING": "1"} if config.engine == "pwrite" else {}
        if config.scene == "frozen":
            env |= {"INJECT_FROM": f".tmp-step-{int(SCENES[config.scene].save[0]):08}"}
        words = config.words()
        words += ["again"] if settings.get("fault") not in (None, *STICKY) else []
        try:
            return self.programs.ranks(2, ["save", store, *words], env,
                                       config.program(self.programs))
        finally:
            wait_for_ranks(control)

    def calls(self, config):
        """Of both ranks, in a save that nothing happens to."""
        store, control = self.places[config.place].fresh(config)
        status, _, err = self.save(config, store, control, log=1)
        if status:
            raise Failed(f"{config.name}: {err}")
        found = []
        for rank in range(2):
            with open(os.path.join(control, f"calls.{rank}"), encoding="utf-8") as lines:
                for line in lines:
                    number, name, room, size, nanoseconds, path = line.rstrip("\n").split(" ", 5)
                    found.append(Call(rank, int(number), name, room == "1", int(size),
                                      int(nanoseconds), path))
        check_order(config, store, found)
        self.look(config, store, (SCENES[config.scene].new,), 1)
        return found

    def cases(self, config):
        if config.scene == "lost":
            return losses(config)
        found = self.calls(config)
        faults = FAULTS if config.is_basic() else FAULTS[:-2]
        if config.scene in PUBLICATIONS:  # what differs is the leaders' work in the directory
            found = [c for c in found if "/.tmp-step-" not in os.path.dirname(c.path) and
                     (c.rank == 0 or config.is_private())]
            faults = ("kill", "EIO", "ENOSPC")
        return [Case(config, c, f) for c in found for f in faults if c.takes(f)]

    def look(self, config, store, may_load, ranks):
        """The step that loads, one of may_load; and that all is well afterwards."""
        if config.is_private():  # one rank sees one node only
            ranks = LOSERS + 1 if config.scene == "lost" else 3
        status, out, err = self.programs.ranks(ranks, ["next", store, *config.state_words()],
                                              program=config.program(self.programs))
        lines = out.split("\n")
        if status:
            raise Failed(f"no good step afterwards: exit {status}\n{err}")
        if lines[0] not in may_load:
            raise Failed(f"step {lines[0]} loads, not {' or '.join(may_load)}")
        for directory in config.directories(store):
            left = [n for n in os.listdir(directory) if n.startswith((".tmp", ".trash"))]
            if left:
                raise Failed(f"left after the next start: {' '.join(left)}")
            if os.readlink(os.path.join(directory, "latest")) != f"step-{int(lines[1]):08}":
                raise Failed("latest does not point to the newest step")
        return lines[0]

    def lose(self, case):
        """Removes a step's folder, or all, of the case's nodes."""
        config, lost = case.config, lost_nodes(case.call.number)
        store, _ = self.places[config.place].fresh(config)
        try:
            for n in lost:
                node = os.path.join(store, f"node-{n}")
                shutil.rmtree(node if case.fault == "lost-node" else
                              os.path.join(node, "step-00000002"))
            if can_be_rebuilt(config.store, lost):
                self.look(config, store, ("2",), 0)
                return "new"
            if case.fault == "lost-step":
                self.look(config, store, ("1",), 0)
                return "old"
            status, _, err = self.programs.ranks(LOSERS + 1,
                                                 ["next", store, *config.state_words()])
            if status != 3 or "status -3: " not in err:
                raise Failed(f"no clear error: exit {status}\n{err}")
            return "refused"
        finally:
            shutil.rmtree(os.path.dirname(store), ignore_errors=True)

    def run(self, case):
        """The step that loaded afterwards; raises Failed."""
        if case.config.scene == "lost":
            return self.lose(case)
        scene = SCENES[case.config.scene]
        store, control = self.places[case.config.place].fresh(case.config)
        ranks = 3 if zlib.crc32(case.name.encode()) % 8 == 7 else 1
        try:
            status, _, err = self.save(case.config, store, control, rank=case.call.rank,
                                       at=case.call.number, fault=case.fault)
            if not os.path.exists(os.path.join(control, "fired")):
                raise Failed(f"its call was not reached: exit {status}\n{err}")
            try:
                return self.outcome(case, scene, store, status, ranks)
            except Failed as failure:
                raise Failed(f"{failure}\nsaid by the save, exit {status}: {err}") from None
        finally:
            shutil.rmtree(os.path.dirname(store), ignore_errors=True)

    def outcome(self, case, scene, store, status, ranks):
        if status == 0:
            if case.fault.startswith("kill"):
                raise Failed("a killed save says that it succeeded")
            self.look(case.config, store, (scene.new,), ranks)
            return "new"
        if case.fault.startswith("kill"):
            loaded = self.look(case.config, store, (*scene.old, scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if case.fault in STICKY:
            if status != 3:
                raise Failed("neither success nor a failure that the library reports")
            loaded = self.look(case.config, store, (*scene.old, scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if status != 4:  # crash_state saw the old step before it saved once more
            raise Failed("it failed badly, or did not work when asked for again")
        self.look(case.config, store, (scene.new,), ranks)
        return "old"


def lost_nodes(number):
    return [n for n in range(LOSERS) if number >> n & 1]


def losses(config):
    """Every set of nodes but all; the number has a bit a node."""
    calls = [Call(0, number, "loss of " + str(len(lost_nodes(number))), False, 0, 0,
                  "the files of nodes " + str(lost_nodes(number)))
             for number in range(1, (1 << LOSERS) - 1)]
    return [Case(config, c, fault) for c in calls for fault in ("lost-step", "lost-node")]


def can_be_rebuilt(store, lost):
    if store == "partner":
        return not any((n + 1) % LOSERS in lost for n in lost)
    return len(lost) <= int(store[2:])


def check_order(config, store, calls):
    """In each store: all that lies in the new step's folders is durable before any of them is
    renamed, and the renames before the end."""
    stores = {}
    for root in config.directories(store):
        stores.setdefault(os.path.basename(root).split("-")[0], []).append(root)
    for roots in stores.values():
        check_order_of_store(config, roots, calls)


def check_order_of_store(config, roots, calls):
    step = f"step-{int(SCENES[config.scene].save[0]):08}"
    folders = [os.path.join(root, ".tmp-" + step) for root in roots]
    renames = [c.time for c in calls if c.name.startswith("rename") and
               c.path in [os.path.join(root, step) for root in roots]]
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


def pids(control):
    """Of the ranks that were started."""
    found = []
    for name in os.listdir(control):
        if name.startswith("pid."):
            with open(os.path.join(control, name), encoding="utf-8") as file:
                found.append(int(file.read()))
    return found


def wait_for_ranks(control):
    """Until the processes of the save are gone; they should be, or are just going."""
    end = time.monotonic() + WATCHDOG
    for pid in pids(control):
        while is_running(pid):
            if time.monotonic() > end:
                os.kill(pid, signal.SIGKILL)
                raise Failed(f"process {pid} of the save is left running")
            time.sleep(0.005)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Tally:
    """Counts of outcomes by a key of the case, and their table."""
    def __init__(self, cases, outcomes):
        self.cases, self.outcomes = cases, outcomes

    def table(self, title, key):
        rows = {}
        for case in self.cases:
            row = rows.setdefault(key(case), dict.fromkeys(OUTCOMES, 0))
            row[self.outcomes[case.name]] += 1
        total = {o: sum(row[o] for row in rows.values()) for o in OUTCOMES}
        lines = [f"| {title} | cases | old step loads | new step loads | clear error | failed |",
                 "| --- | --- | --- | --- | --- | --- |"]
        for name, row in [*rows.items(), ("all", total)]:
            counts = " | ".join(str(row[o]) for o in OUTCOMES)
            lines.append(f"| {name} | {sum(row.values())} | {counts} |")
        return "\n".join(lines)

    def text(self):
        return "\n\n".join((
            self.table("fault", lambda c: c.fault),
            self.table("operation", lambda c: c.call.name),
            self.table("save", lambda c: c.config.name.replace(".", ", "))))


def quiet(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip()


RECORD = """# The crash matrix

A save of two ranks with a failure at its operation N, for every N there is. `tests/crash/crash_matrix.py`
says what a case is and what is checked after it, and runs them all; this is what it wrote when it had
run to its end.

- {built}
- `disk`, `nodes`, `rs1` and `rs2` on {system}, `memory` and `partner` on tmpfs, `xfs` on a
  loop-mounted image
- {cases} cases

Faults: `kill` is SIGKILL of one rank, `killall` of both; `full` and `dead` are ENOSPC and EIO from
operation N on; `short` is a write that does half. Engine `pwrite` is direct where io_uring is refused.
Stores: `nodes` has a directory a rank, `partner`, `rs1` and `rs2` (K = 1, 2) have redundancy besides;
`tiers` is a list of `partner` and a shared store that is filled from it in the background.
"Old step loads": the save failed, or was killed before it was published. "New": it was done in spite
of the fault, or killed after that; of lost files: they were rebuilt. "Clear error": nothing is left
that could be rebuilt.

{tables}
"""


def describe_build():
    commit = quiet(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"])
    changed = quiet(["git", "-C", ROOT, "status", "--porcelain", "--", "libdcp", "tests/crash"])
    return (f'{time.strftime("%Y-%m-%d", time.gmtime())}, commit {commit}'
            f'{" with changes" if changed else ""}, Linux {os.uname().release}')


def record(path, builds, tally, scratch):
    system = quiet(["findmnt", "-n", "-o", "FSTYPE", "-T", scratch])
    with open(path, "w", encoding="utf-8") as out:
        out.write(RECORD.format(built="; ".join(dict.fromkeys(builds)), system=system,
                                cases=len(tally.cases), tables=tally.text()))


def in_parallel(jobs, function, items):
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


class Journal:
    """A file of what came out, a line a case, by which an interrupted run goes on."""
    def __init__(self, path, built):
        self.builds, self.outcomes, self.file = [built], {}, None
        if not path:
            return
        self.file = open(path, "a+", encoding="utf-8")  # pylint: disable=consider-using-with
        self.file.seek(0)
        for line in self.file:
            if line.startswith("# "):
                self.builds.insert(-1, line[2:].rstrip("\n"))
            else:
                name, outcome = line.split()
                self.outcomes[name] = outcome
        self.file.write(f"# {built}\n")

    def note(self, case, outcome):
        self.outcomes[case.name] = outcome
        if self.file:
            self.file.write(f"{case.name} {outcome}\n")
            self.file.flush()


def run_all(matrix, cases, jobs, journal):
    done = len(cases)
    cases = [c for c in cases if journal.outcomes.get(c.name, "failed") == "failed"]
    done -= len(cases)

    def one(case):
        try:
            return case, matrix.run(case), ""
        except Failed as failure:
            return case, "failed", str(failure)

    for case, outcome, why in in_parallel(jobs, one, cases):
        journal.note(case, outcome)
        done += 1
        if why:
            print(f"FAILED {case.name} ({case.call.name} of {case.call.path}): {why}\n"
                  f"  alone: {sys.argv[0]} --case {case.name}", flush=True)
        if done % 100 == 0:
            print(f"{done} cases", file=sys.stderr, flush=True)


def choose(matrix, options):
    wanted = [c for c in configs() if not options.case or options.case.startswith(c.name + "/")]
    wanted = [c for c in wanted if fnmatch.fnmatch(c.name, options.only)]
    for config in [c for c in wanted if c.place not in matrix.places]:
        print(f"left out: {config.name}: no such file system can be mounted here")
        wanted.remove(config)
    cases = list(itertools.chain(*in_parallel(options.jobs, matrix.cases, wanted)))
    if options.case:
        cases = [c for c in cases if c.name == options.case]
    if options.tenth:
        cases = [c for c in cases if c.is_of_the_tenth()]
    if not cases:
        sys.exit("no such case")
    return cases


def parse():
    parser = argparse.ArgumentParser(description="The crash matrix; see the top of this file.")
    parser.add_argument("--tenth", action="store_true", help="a fixed tenth of the cases")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of saves, as in *.mpio.*")
    parser.add_argument("--case", metavar="ID", help="one case alone")
    parser.add_argument("--list", action="store_true", help="names of cases, run nothing")
    parser.add_argument("--journal", metavar="FILE", help="note outcomes there, and go on from it")
    parser.add_argument("--record", metavar="FILE", help="write the summary there as well")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a folder on a disk")
    return parser.parse_args()


def main():
    options = parse()
    settings = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                "OMP_NUM_THREADS": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
                "OMPI_MCA_odls_base_sigkill_timeout": "0",  # the other ranks end at once
                "OMPI_MCA_mpi_yield_when_idle": "1",
                "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader"}  # starts in half the time
    os.environ.update({k: v for k, v in settings.items() if k not in os.environ})
    enter_namespace()
    start, built = time.monotonic(), describe_build()
    matrix = Matrix(Programs(options.build), options.scratch)
    try:
        cases = choose(matrix, options)
        if options.list:
            print("\n".join(f"{c.name} {c.call.name} {c.call.path}" for c in cases))
            return 0
        journal = Journal(options.journal, built)
        run_all(matrix, cases, options.jobs, journal)
        tally = Tally(cases, journal.outcomes)
    except Failed as failure:
        print(f"FAILED before any fault: {failure}")
        return 1
    finally:
        matrix.close()
    seconds = time.monotonic() - start
    failed = sum(journal.outcomes[c.name] == "failed" for c in cases)
    print(f"{tally.text()}\n\n{len(cases)} cases, {failed} failed, {seconds:.0f} s")
    if options.record:
        record(options.record, journal.builds, tally, options.scratch)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
