#!/usr/bin/env python3
"""The crash matrix: a save on two ranks with a failure at its operation N, for every N.

For each kind of save (layout, mode, engine, store, and what publication must do besides) one run counts the calls of
each rank that open or change anything in the store's directory (inject.c). Then each call of each rank is made to fail:
by SIGKILL of the rank or of all, EIO, ENOSPC, a short write, or a disk that is full or dead starting there. After each
case:

    - it ended (a watchdog decides) and no process is left; a killed save did not report success;
    - a save that failed says so, and the old step loads, bit for bit; a save that succeeded left the new step; after a
      kill or a dead disk either may exist, complete, never a mix;
    - a failed save left nothing behind, even before anything is cleaned up, and works when it is repeated;
    - a step that a reader had open all the time loads unchanged;
    - the step loads on another number of ranks, every byte of every step verifies, leftovers are removed at the next
      start, and the next save works (crash_state next).

Stores with redundancy also lose the files of a step, or whole nodes: what the remaining files suffice for is rebuilt,
bit for bit; otherwise the older step loads, or a clear error names the loss. The counting run also checks the order
that power failures require: everything in a step's folder is synced after the last change and before the rename, and
the directory after it.

    crash_matrix.py [--tenth] [--only PATTERN] [--case ID] [--list] [--jobs N]
                    [--journal FILE] [--record FILE]

Exit status: 0 if all cases pass, else 1.
"""
import argparse
import contextlib
import concurrent.futures
import fnmatch
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
import zlib

from crash_cases import (FAULTS, LOSERS, PUBLICATIONS, SCENES, STICKY, Call, Case, Failed,
                         can_be_rebuilt, check_order, configs, losses, lost_nodes)
from crash_mounts import Unavailable, enter_namespace, mount_image
from crash_programs import Place, Programs, Reader, set_environment, wait_for_ranks
from crash_report import ROOT, Journal, Tally, describe_build, quiet, record


class Matrix:
    def __init__(self, programs, scratch):
        self.programs = programs
        self.scratch = tempfile.mkdtemp(prefix="dcp_matrix.", dir=scratch)
        self.places = {"disk": Place(self.scratch, programs), "memory": Place("/dev/shm", programs)}
        with contextlib.suppress(Unavailable):
            self.places["xfs"] = Place(mount_image("xfs", self.scratch), programs)

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
        if config.scene in ("frozen", "spare"):
            env |= {"INJECT_FROM": f".tmp-step-{int(SCENES[config.scene].save[0]):08}"}
        words = config.words()
        words += ["again"] if settings.get("fault") not in (None, *STICKY) else []
        reader = Reader(self.programs, config, store) if SCENES[config.scene].held else None
        try:
            return self.programs.ranks(2, ["save", store, *words], env,
                                       config.program(self.programs))
        finally:
            wait_for_ranks(control)
            if reader:
                reader.end()

    def calls(self, config):
        """Returns the calls of both ranks, in a save without failures."""
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
        if config.scene != "remove":
            check_order(config, store, found)
        self.look(config, store, (SCENES[config.scene].new,), 1)
        return found

    def cases(self, config):
        if config.scene == "lost":
            return losses(config)
        found = self.calls(config)
        faults = FAULTS if config.is_basic() else FAULTS[:-2]
        if config.scene in PUBLICATIONS:  # the only difference is the leaders' work in the directory
            found = [c for c in found if "/.tmp-step-" not in os.path.dirname(c.path) and
                     (c.rank == 0 or config.is_private())]
            faults = ("kill", "EIO", "ENOSPC")
        return [Case(config, c, f) for c in found for f in faults if c.takes(f)]

    def look(self, config, store, may_load, ranks):
        """Checks that everything is fine afterwards. Returns the step that loads, one of may_load."""
        if config.is_private():  # a single rank sees only one node
            ranks = LOSERS + 1 if config.scene == "lost" else 3
        status, out, err = self.programs.ranks(ranks, ["next", store, *config.state_words()],
                                              program=config.program(self.programs))
        lines = out.split("\n")
        if status:
            raise Failed(f"no good step afterwards: exit {status}\n{err}")
        if lines[0] not in may_load:
            raise Failed(f"step {lines[0]} loads, not {' or '.join(may_load)}")
        for directory in config.directories(store):
            left = [n for n in os.listdir(directory) if n.startswith((".tmp", ".trash", ".writer"))]
            if left:
                raise Failed(f"left after the next start: {' '.join(left)}")
            if os.readlink(os.path.join(directory, "latest")) != f"step-{int(lines[1]):08}":
                raise Failed("latest does not point to the newest step")
        return lines[0]

    def lose(self, case):
        """Removes a step's folder, or everything, from the case's nodes."""
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
        """Returns the step that loads afterwards; raises Failed."""
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
            loaded = self.look(case.config, store, (*case.config.old(), scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if case.fault in STICKY:
            if status != 3:
                raise Failed("neither success nor a failure that the library reports")
            loaded = self.look(case.config, store, (*case.config.old(), scene.new), ranks)
            return "new" if loaded == scene.new else "old"
        if status != 4:  # crash_state saw the old step before it saved once more
            raise Failed("it failed badly, or did not work when asked for again")
        self.look(case.config, store, (scene.new,), ranks)
        return "old"


def in_parallel(jobs, function, items):
    pool = concurrent.futures.ThreadPoolExecutor(jobs)
    try:
        yield from pool.map(function, items)
    finally:
        pool.shutdown(cancel_futures=True)


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
    set_environment()
    enter_namespace()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # then the folders are removed, too
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
