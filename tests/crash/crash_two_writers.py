#!/usr/bin/env python3
"""Two writers on one directory, at every operation.

The first writer is stopped (SIGSTOP, inject.c) before its operation N on the store, for every N. The second one takes
over the store, saves, and closes it. Then the first one continues, to its end or, with `crash`, until it is killed some
operations later; with `both`, the second is stopped during its save while the first continues, and ends after it. How
the second one gets the store:

    removed   .lock has been removed
    none      the file system has no locks; the second has the option to take over the store
    all       the file system grants every lock; the second has that option
    own       the second has that option, on any file system (crash_filesystem.py)

In the scene `nodes` the first writer has two ranks, each on a node of its own: one of them is stopped at the operation,
and the other one wherever it is.

If the first writer held the store when it was stopped, it changes nothing any more: no step is added, removed or
replaced, and `latest` and .lock remain as the second left them. It reports that the other writer has taken over the
store, or had done all its work. In any case the next start finds complete steps, each from one writer (crash_state
next), and removes all leftovers.

    crash_two_writers.py [--sample K] [--only PATTERN] [--case ID] [--jobs N] [--build FOLDER]

--sample K: every K-th case. Exit status: 0 if all cases pass, else 1.
"""
import argparse
import concurrent.futures
import contextlib
import fnmatch
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from dataclasses import dataclass

from crash_cases import Failed
from crash_programs import WATCHDOG, Programs, linked_copy, pids
from crash_report import ROOT

# the steps before; what the first writer saves or removes; what the second one saves, with other content
SCENES = {
    "plain": (["1"], "2 new", "2 replace"),
    "replace": (["1", "2"], "2 new replace", "2 replace"),
    "keep": (["1", "2", "3"], "5 new earlier=1 keep=2", "4 keep=2 replace"),
    "back": (["1", "2", "3"], "2 new back=1", "2 back=1 replace"),
    "remove": (["1", "2", "3"], "3 remove", "3 new replace"),
    "sharded": (["1"], "2 new sharded", "2 sharded replace"),
    "async": (["1"], "2 new async", "2 async replace"),
    "nodes": (["1"], "2 new private", "2 private replace"),
}
LOCKS = ("removed", "none", "all")
INJECTED = ("none", "all")
ENDS = ("ends", "crash", "both")


@dataclass(frozen=True)
class Case:
    scene: str
    locks: str
    end: str
    rank: int
    at: int
    has_opened: bool  # after the first writer has taken over the store

    @property
    def name(self):
        return f"{self.scene}.{self.locks}.{self.end}/{self.rank}/{self.at}"


def state_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


class Writer:
    """crash_state save, on one rank or, for a private store, two."""
    def __init__(self, writers, slot, name, words, elsewhere=None, **settings):
        store = os.path.join(elsewhere or slot, "store")
        self.control = os.path.join(slot, name)
        os.mkdir(self.control)
        env = {f"INJECT_{key.upper()}": str(value) for key, value in settings.items()}
        env |= {"INJECT_BELOW": store, "INJECT_CONTROL": self.control}
        command = [writers.programs.state, "save", store, *words.split(), "few"]
        if "private" in words:
            command = [*writers.programs.mpirun, "-n", "2", "-x",
                       f"LD_PRELOAD={writers.programs.inject}", *command]
        else:
            env |= {"OMPI_COMM_WORLD_RANK": "0", "LD_PRELOAD": writers.programs.inject}
        self.err = os.path.join(self.control, "err")
        with open(self.err, "w", encoding="utf-8") as err:
            self.process = subprocess.Popen(command, env={**os.environ, **env}, stderr=err,
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def wait_for_stop(self, rank):
        """Returns true if the writer was stopped at its call, and did not end before."""
        end = time.monotonic() + WATCHDOG
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            if os.path.exists(os.path.join(self.control, "fired")) and state_of(self.pid(rank)) == "T":
                return True
            time.sleep(0.002)
        raise Failed("it neither stops nor ends")

    def pid(self, rank):
        with open(os.path.join(self.control, f"pid.{rank}"), encoding="utf-8") as file:
            return int(file.read())

    def signal_all(self, number):
        for pid in pids(self.control):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self):
        """Stops the other ranks, too, wherever they are."""
        self.signal_all(signal.SIGSTOP)
        end = time.monotonic() + WATCHDOG
        while any(state_of(pid) not in "TXZ" for pid in pids(self.control)):
            if time.monotonic() > end:
                raise Failed("it does not stop")
            time.sleep(0.002)

    def go_on(self):
        self.signal_all(signal.SIGCONT)

    def end(self):
        """Returns (exit status, output)."""
        try:
            status = self.process.wait(WATCHDOG)
        except subprocess.TimeoutExpired:
            raise Failed("it hangs") from None
        with open(self.err, encoding="utf-8") as err:
            return status, err.read()

    def clear(self):
        """Removes all its files."""
        for pid in pids(self.control):
            if state_of(pid) not in "XZ":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()


def directories(store, scene):
    return [os.path.join(store, f"node-{r}") for r in range(2)] if scene == "nodes" else [store]


def contents(store, scene):
    """Returns the contents that the second writer left, which nothing may change. Temporary files may come and go."""
    found = {}
    for directory in directories(store, scene):
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            if name == "latest":
                found[path] = os.readlink(path)
            elif name.startswith(("step-", ".abandoned-")):
                for file in sorted(os.listdir(path)):
                    st = os.stat(os.path.join(path, file))
                    found[os.path.join(path, file)] = (st.st_ino, st.st_size, st.st_mtime_ns)
            elif name == ".lock":
                with open(path, encoding="utf-8") as lock:
                    found[path] = lock.read()
    return found


class Writers:
    def __init__(self, programs, scratch, other_mount=None):
        """other_mount: where the second one sees what is in scratch."""
        self.programs = programs
        self.scratch, self.other_mount = scratch, other_mount
        self.dir = os.path.realpath(tempfile.mkdtemp(prefix="dcp_writers.", dir=scratch))

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def before(self, scene):
        made = os.path.join(self.dir, scene)
        words = ["few", "private"] if scene == "nodes" else ["few"]
        for step in SCENES[scene][0] if not os.path.exists(made) else ():
            status, _, err = self.programs.ranks(2 if scene == "nodes" else 1,
                                                 ["save", made, step, *words])
            if status:
                raise Failed(f"the saves before: {err}")
        return made

    def fresh(self, scene):
        slot = tempfile.mkdtemp(prefix="slot.", dir=self.dir)
        linked_copy(self.before(scene), os.path.join(slot, "store"))
        return slot

    def cases(self, scene):
        return [case for locks in LOCKS for case in self.cases_of(scene, locks)]

    def cases_of(self, scene, locks):
        slot = self.fresh(scene)
        settings = {"locks": locks} if locks in INJECTED else {}
        first = Writer(self, slot, "first", SCENES[scene][1], log=1, **settings)
        status, err = first.end()
        if status:
            raise Failed(f"{scene}: {err}")
        found = []
        for rank in range(2 if scene == "nodes" else 1):
            names = []
            with open(os.path.join(first.control, f"calls.{rank}"), encoding="utf-8") as lines:
                names = [os.path.basename(line.rstrip("\n").split(" ", 5)[5]) for line in lines]
            is_lock = [name.startswith((".lock", ".tmp-lock")) for name in names]
            taken = is_lock.index(False, is_lock.index(True))  # calls up to the end of taking the lock
            found += [Case(scene, locks, end, rank, at + 1, at >= taken)
                      for at in range(len(names)) for end in ENDS]
        return found

    def run(self, case):
        slot = self.fresh(case.scene)
        chance = zlib.crc32(case.name.encode())
        locks = {"locks": case.locks} if case.locks in INJECTED else {}
        then = {"then": 1 + chance % 6} if case.end == "crash" else {}
        first = Writer(self, slot, "first", SCENES[case.scene][1], rank=case.rank, at=case.at,
                       fault="stop", **then, **locks)
        second = None
        try:
            if not first.wait_for_stop(case.rank):
                return "not reached"
            first.stop()
            store = os.path.join(slot, "store")
            held = self.is_held(first, store, case) and case.has_opened
            words = SCENES[case.scene][2] + (" take_over" if case.locks != "removed" else "")
            halt = {"rank": 0, "at": 1 + chance % 12, "from": ".tmp-step", "fault": "stop"} \
                if case.end == "both" else {}
            elsewhere = self.other_mount and slot.replace(self.scratch, self.other_mount, 1)
            second = Writer(self, slot, "second", words, elsewhere, **halt, **locks)
            return self.outcome(case, first, second, held, store)
        finally:
            for writer in (first, second):
                if writer:
                    writer.clear()
            shutil.rmtree(slot, ignore_errors=True)

    def is_held(self, first, store, case):
        """Returns true if the first writer holds the store in all of its parts. Removes the lock."""
        held = True
        for node, directory in enumerate(directories(store, case.scene)):
            lock = os.path.join(directory, ".lock")
            with open(lock, encoding="utf-8") as file:
                text = file.read().split()
            held = held and text[-2:] == ["held", str(first.pid(node))]
            if case.locks == "removed":
                os.unlink(lock)
        return held

    def outcome(self, case, first, second, held, store):
        if case.end == "both" and second.wait_for_stop(0):
            first.go_on()
            status, err = first.end()
            second.go_on()
            ended, said = second.end()
            left = None
        else:
            ended, said = second.end()
            left = contents(store, case.scene)
            first.go_on()
            status, err = first.end()
        if held and ended:
            raise Failed(f"the second one has the store, and fails: exit {ended}\n{said}")
        if held and left is not None and contents(store, case.scene) != left:
            raise Failed(f"the first one has changed what the second left\n{left}\n"
                         f"{contents(store, case.scene)}\n{err}")
        if held and status not in (0, 3) and case.end != "crash":
            raise Failed(f"the first one ends with {status}\n{err}")
        if held and status == 3:
            winner = [second.pid(r) for r in range(len(directories(store, case.scene)))]
            told = re.search(r"by another writer, process (\d+) on host (\S+?)[,:]", err)
            if not told or int(told[1]) not in winner or told[2] != socket.gethostname():
                raise Failed(f"the first one does not name the second, {winner}: {err}")
        self.look(case, store)
        return "before" if not held else "done before" if not status else "lost"

    def look(self, case, store):
        words = ["few", "private"] if case.scene == "nodes" else ["few"]
        status, out, err = self.programs.ranks(2 if case.scene == "nodes" else 1,
                                               ["next", store, *words])
        if status:
            raise Failed(f"no good step afterwards: exit {status}\n{err}")
        for directory in directories(store, case.scene):
            left = [n for n in os.listdir(directory) if n.startswith((".tmp", ".trash", ".writer"))]
            if left:
                raise Failed(f"left after the next start: {' '.join(left)}")
            newest = f"step-{int(out.split()[-1]):08}"
            if os.readlink(os.path.join(directory, "latest")) != newest:
                raise Failed("latest does not point to the newest step")


def parse():
    parser = argparse.ArgumentParser(description="Two writers; see the top of this file.")
    parser.add_argument("--sample", type=int, default=1, metavar="K", help="every K-th case")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="of cases, as in back.none.*")
    parser.add_argument("--case", metavar="ID", help="one case alone")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a folder on a disk")
    return parser.parse_args()


def choose(writers, options):
    scenes = [s for s in SCENES if not options.case or options.case.startswith(s + ".")]
    scenes = [s for s in scenes if fnmatch.fnmatch(s, options.only.split(".")[0])]
    cases = [c for s in scenes for c in writers.cases(s)]
    if options.case:
        return [c for c in cases if c.name == options.case]
    cases = [c for c in cases if fnmatch.fnmatch(c.name, options.only)]
    return [c for c in cases if zlib.crc32(c.name.encode()) % options.sample == 0]


def main():
    options = parse()
    for name, value in (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                        ("OMP_NUM_THREADS", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none"),
                        ("OMPI_MCA_mpi_yield_when_idle", "1")):
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    start = time.monotonic()
    writers = Writers(Programs(options.build), options.scratch)
    tally, failed = {}, 0

    def one(case):
        try:
            return case, writers.run(case), ""
        except Failed as failure:
            return case, "failed", str(failure)

    pool = concurrent.futures.ThreadPoolExecutor(options.jobs)
    try:
        cases = choose(writers, options)
        if not cases:
            sys.exit("no such case")
        for case, outcome, why in pool.map(one, cases):
            tally[case.scene, outcome] = tally.get((case.scene, outcome), 0) + 1
            if why:
                failed += 1
                print(f"FAILED {case.name}: {why}\n  alone: {sys.argv[0]} --case {case.name}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
        writers.close()
    print("| scene | the first one | cases |\n| --- | --- | --- |")
    for (scene, outcome), n in sorted(tally.items()):
        print(f"| {scene} | {outcome} | {n} |")
    print(f"\n{len(cases)} cases, {failed} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
