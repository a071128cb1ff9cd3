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
The counting run also shows the order that power failures need: what lies in a step's folder is
synced after the last change and before the rename, and the directory after it.

    crash_matrix.py [--tenth] [--only PATTERN] [--case ID] [--record FILE] [--list] [--jobs N]

Exit status: 0 where all cases are as they must be, else 1.
"""
import argparse
import concurrent.futures
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
}


@dataclass(frozen=True)
class Config:
    layout: str  # global, sharded
    mode: str    # sync, async
    engine: str  # uring, pwrite, mpio
    store: str   # disk, memory
    scene: str = "plain"

    @property
    def name(self):
        return ".".join((self.layout, self.mode, self.engine, self.store, self.scene))

    def words(self):
        words = list(SCENES[self.scene].save)
        words += ["sharded"] if self.layout == "sharded" else []
        words += ["async"] if self.mode == "async" else []
        words += ["mpio"] if self.engine == "mpio" else []
        return words


def configs():
    kinds = itertools.product(("global", "sharded"), ("sync", "async"), ("uring", "pwrite"))
    all_of_them = [Config(*k, "disk") for k in kinds]
    all_of_them += [Config("global", "sync", "mpio", "disk"),
                    Config("sharded", "sync", "mpio", "disk")]
    all_of_them += [Config("global", "async", "uring", "memory"),
                    Config("sharded", "async", "uring", "memory")]
    all_of_them += [Config("global", "sync", "uring", "disk", s) for s in SCENES if s != "plain"]
    return all_of_them


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
        part = 100 if self.config.engine == "mpio" else 10  # a write a tensor: many alike
        return zlib.crc32(self.name.encode()) % part == 0


class Failed(Exception):
    pass


class Programs:
    def __init__(self, build):
        bin_dir = os.path.join(build, "tests", "bin")
        self.state = os.environ.get("CRASH_STATE", os.path.join(bin_dir, "crash_state"))
        self.inject = os.environ.get("CRASH_INJECT", os.path.join(bin_dir, "crash_inject.so"))
        self.mpirun = os.environ.get("DCP_MPIRUN", "mpirun --oversubscribe").split()
        for program in (self.state, self.inject):
            if not os.path.exists(program):
                sys.exit(f"{program} is not there: build it, or name the build folder with --build")

    def ranks(self, n, arguments, env=None):
        """crash_state on n ranks; one rank needs no launcher. (exit status, output, errors)"""
        command = [self.state, *arguments]
        if n > 1:
            preload = ["-x", f"LD_PRELOAD={self.inject}"] if env else []
            command = [*self.mpirun, "-n", str(n), *preload, *command]
        child = subprocess.Popen(command, env={**os.environ, **(env or {})}, text=True,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, err = child.communicate(timeout=WATCHDOG)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
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

    def before(self, scene):
        """The scene's directory; made once."""
        made = os.path.join(self.dir, scene)
        with self.lock:
            for arguments in () if os.path.exists(made) else SCENES[scene].before:
                status, _, err = self.programs.ranks(2, ["save", made, *arguments])
                if status:
                    raise Failed(f"the saves before: {err}")
        return made

    def fresh(self, scene):
        """(a store as the scene wants it, a folder for what inject.c tells)"""
        slot = os.path.join(self.dir, f"slot.{next(self.slots)}")
        os.mkdir(slot)
        os.mkdir(os.path.join(slot, "control"))
        linked_copy(self.before(scene), os.path.join(slot, "store"))
        return os.path.join(slot, "store"), os.path.join(slot, "control")


class Matrix:
    def __init__(self, programs, scratch):
        self.programs = programs
        self.places = {"disk": Place(scratch, programs), "memory": Place("/dev/shm", programs)}

    def close(self):
        for place in self.places.values():
            shutil.rmtree(place.dir, ignore_errors=True)

    def save(self, config, store, control, **settings):
        env = {f"INJECT_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"INJECT_BELOW": store, "INJECT_CONTROL": control}
        env |= {"INJECT_NO_RING": "1"} if config.engine == "pwrite" else {}
        words = config.words()
        words += ["again"] if settings.get("fault") not in (None, *STICKY) else []
        try:
            return self.programs.ranks(2, ["save", store, *words], env)
        finally:
            wait_for_ranks(control)

    def calls(self, config):
        """Of both ranks, in a save that nothing happens to."""
        store, control = self.places[config.store].fresh(config.scene)
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
        self.look(store, (SCENES[config.scene].new,), 1)
        return found

    def cases(self, config):
        found = self.calls(config)
        faults = FAULTS
        if config.scene != "plain":  # what differs is rank 0's work in the directory
            found = [c for c in found if c.rank == 0 and c.name != "write"]
            faults = ("kill", "EIO", "ENOSPC", "dead")
        return [Case(config, c, f) for c in found for f in faults if c.takes(f)]

    def look(self, store, may_load, ranks):
        """The step that loads, one of may_load; and that all is well afterwards."""
        status, out, err = self.programs.ranks(ranks, ["next", store])
        lines = out.split("\n")
        if status:
            raise Failed(f"no good step afterwards: exit {status}\n{err}")
        if lines[0] not in may_load:
            raise Failed(f"step {lines[0]} loads, not {' or '.join(may_load)}")
        left = [n for n in os.listdir(store) if n.startswith((".tmp", ".trash"))]
        if left:
            raise Failed(f"left after the next start: {' '.join(left)}")
        if os.readlink(os.path.join(store, "latest")) != f"step-{int(lines[1]):08}":
            raise Failed("latest does not point to the newest step")
        return lines[0]

    def run(self, case):
        """The step that loaded afterwards; raises Failed."""
        scene = SCENES[case.config.scene]
        store, control = self.places[case.config.store].fresh(case.config.scene)
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
            self.look(store, (scene.new,), ranks)
            return "new"
        if case.fault.startswith("kill"):
            loaded = self.look(store, (*scene.old, scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if case.fault in STICKY:
            if status != 3:
                raise Failed("neither success nor a failure that the library reports")
            loaded = self.look(store, (*scene.old, scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if status != 4:  # crash_state saw the old step before it saved once more
            raise Failed("it failed badly, or did not work when asked for again")
        self.look(store, (scene.new,), ranks)
        return "old"


def check_order(config, store, calls):
    """Everything in the new step's folder is durable before the rename, the rename before the end."""
    final = os.path.join(store, f"step-{int(SCENES[config.scene].save[0]):08}")
    folder = os.path.join(store, f".tmp-step-{int(SCENES[config.scene].save[0]):08}")
    renames = [c.time for c in calls if c.name.startswith("rename") and c.path == final]
    if len(renames) != 1:
        raise Failed(f"{config.name}: {len(renames)} renames to {final}")
    def synced(path, after, before):
        return any(c.name in ("fsync", "fdatasync") and c.path == path and after < c.time < before
                   for c in calls)
    changes = {}
    for c in calls:
        if c.path.startswith(folder + "/"):
            changed = c.name in ("write", "fallocate", "ftruncate", "clone")
            for path in (c.path,) * changed + (folder,) * (c.name == "open" and c.needs_room):
                changes[path] = max(c.time, changes.get(path, 0))
    for path, last in changes.items():
        if not synced(path, last, renames[0]):
            raise Failed(f"{config.name}: {path} is not synced before its step has its name")
    if not synced(store, renames[0], 1 << 63):
        raise Failed(f"{config.name}: the directory is not synced after the rename")


def wait_for_ranks(control):
    """Until the processes of the save are gone; they should be, or are just going."""
    end = time.monotonic() + WATCHDOG
    for name in os.listdir(control):
        if not name.startswith("pid."):
            continue
        with open(os.path.join(control, name), encoding="utf-8") as file:
            pid = int(file.read())
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
            row = rows.setdefault(key(case), {"old": 0, "new": 0, "failed": 0})
            row[self.outcomes[case]] += 1
        lines = [f"| {title} | cases | old step loads | new step loads | failed |",
                 "| --- | --- | --- | --- | --- |"]
        for name, row in [*rows.items(), ("all", {o: sum(r[o] for r in rows.values())
                                                  for o in ("old", "new", "failed")})]:
            lines.append(f"| {name} | {sum(row.values())} | {row['old']} | {row['new']} | "
                         f"{row['failed']} |")
        return "\n".join(lines)

    def text(self):
        return "\n\n".join((
            self.table("fault", lambda c: c.fault),
            self.table("operation", lambda c: c.call.name),
            self.table("save", lambda c: c.config.name.replace(".", ", "))))


def quiet(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=False).stdout.strip()


def record(path, tally, seconds, scratch):
    commit = quiet(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"])
    changed = quiet(["git", "-C", ROOT, "status", "--porcelain", "--", "libdcp"])
    system = quiet(["stat", "-f", "-c", "%T", scratch])
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"""# The crash matrix

A save of two ranks with a failure at its operation N, for every N there is; `tests/crash/crash_matrix.py` says what a case is, what is
checked after it, and runs them all. This is what it wrote when it ran to its end.

- {time.strftime("%Y-%m-%d", time.gmtime())}, commit {commit}{" with changes" if changed else ""}
- Linux {os.uname().release}; stores on disk: {system}; in memory: tmpfs
- {len(tally.cases)} cases in {seconds:.0f} s

"Old step loads": the save failed or was killed before it was published; "new": it was done in spite of the fault, or killed after that.

{tally.text()}
""")


def in_parallel(jobs, function, items):
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


def run_all(matrix, cases, jobs):
    outcomes = {}

    def one(case):
        try:
            return case, matrix.run(case), ""
        except Failed as failure:
            return case, "failed", str(failure)

    for case, outcome, why in in_parallel(jobs, one, cases):
        outcomes[case] = outcome
        if why:
            print(f"FAILED {case.name} ({case.call.name} of {case.call.path}): {why}\n"
                  f"  alone: {sys.argv[0]} --case {case.name}", flush=True)
        if len(outcomes) % 100 == 0:
            print(f"{len(outcomes)} of {len(cases)} cases", file=sys.stderr, flush=True)
    return outcomes


def choose(matrix, options):
    wanted = [c for c in configs() if not options.case or options.case.startswith(c.name + "/")]
    wanted = [c for c in wanted if fnmatch.fnmatch(c.name, options.only)]
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
                "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader"}  # starts in half the time
    os.environ.update({k: v for k, v in settings.items() if k not in os.environ})
    start = time.monotonic()
    matrix = Matrix(Programs(options.build), options.scratch)
    try:
        cases = choose(matrix, options)
        if options.list:
            print("\n".join(f"{c.name} {c.call.name} {c.call.path}" for c in cases))
            return 0
        tally = Tally(cases, run_all(matrix, cases, options.jobs))
    finally:
        matrix.close()
    seconds = time.monotonic() - start
    failed = sum(o == "failed" for o in tally.outcomes.values())
    print(f"{tally.text()}\n\n{len(cases)} cases, {failed} failed, {seconds:.0f} s")
    if options.record:
        record(options.record, tally, seconds, options.scratch)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
