#!/usr/bin/env python3
"""Failures of a rebuild, for a node that has lost its files of the step, at its operations.

Two ranks are two nodes of a private store with redundancy. One run counts the calls of each rank (inject.c); then one
rank, or both, are killed at a call, or the call fails. After each case the step can be completed again and loads, bit
for bit; then the other node's steps are lost, the step is completed once more, and the next save works.

    crash_rebuild.py [--part N] [--build FOLDER] [--scratch FOLDER]     every N-th case (40); 1: all

Exit status: 0 if all cases pass, else 1.
"""
import argparse
import os
import shutil
import sys
import tempfile
import zlib

from crash_cases import Call, Failed
from crash_programs import Programs, wait_for_ranks
from crash_report import ROOT

FAULTS = ("kill", "killall", "EIO", "ENOSPC", "dead")


class Cases:
    def __init__(self, programs, scratch):
        self.programs, self.scratch = programs, scratch

    def prepare(self):
        """Makes step 1, which one node has lost."""
        slot = tempfile.mkdtemp(prefix="case.", dir=self.scratch)
        control, store = os.path.join(slot, "control"), os.path.join(slot, "store")
        os.mkdir(control)
        os.mkdir(store)
        self.must("save", store, "1")
        lose(store, 1)
        return slot, control, store

    def must(self, *arguments):
        status, out, err = self.programs.ranks(2, arguments)
        if status:
            raise Failed(f"{' '.join(arguments)}: exit {status}\n{err}")
        return out.split()

    def hit(self, control, store, **settings):
        env = {f"INJECT_{name.upper()}": str(value) for name, value in settings.items()}
        env |= {"INJECT_BELOW": store, "INJECT_CONTROL": control}
        try:
            return self.programs.ranks(2, ["rebuild", store], env)
        finally:
            wait_for_ranks(control)

    def calls(self):
        slot, control, store = self.prepare()
        status, _, err = self.hit(control, store, log=1)
        if status:
            raise Failed(err)
        found = []
        for rank in range(2):
            with open(os.path.join(control, f"calls.{rank}"), encoding="utf-8") as lines:
                for line in lines:
                    number, name, room, size, when, path = line.rstrip("\n").split(" ", 5)
                    found.append(Call(rank, int(number), name, room == "1", int(size), int(when),
                                      path))
        shutil.rmtree(slot)
        return found

    def run(self, call, fault):
        slot, control, store = self.prepare()
        try:
            status, _, err = self.hit(control, store, rank=call.rank, at=call.number,
                                      fault=fault)
            if not os.path.exists(os.path.join(control, "fired")):
                raise Failed(f"its call was not reached: exit {status}\n{err}")
            if fault.startswith("kill") and status == 0:
                raise Failed("killed, and it says that it succeeded")
            if not fault.startswith("kill") and status not in (0, 3):
                raise Failed(f"exit {status}\n{err}")
            if self.must("check", store) != ["1"]:
                raise Failed("another step")
            lose(store, 0)
            if self.must("next", store) != ["1", "2"]:
                raise Failed("another step, after a node was lost")
        finally:
            shutil.rmtree(slot)


def lose(store, node):
    folder = os.path.join(store, f"node-{node}")
    for name in os.listdir(folder):
        if name.startswith("step-"):
            shutil.rmtree(os.path.join(folder, name))


def choose(cases, part):
    for call in cases.calls():
        for fault in FAULTS:
            name = f"{call.rank}/{fault}/{call.number}"
            if call.takes(fault) and zlib.crc32(name.encode()) % part == 0:
                yield name, call, fault


def main():
    parser = argparse.ArgumentParser(description="Failures of a rebuild.")
    parser.add_argument("--part", type=int, default=40)
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--scratch", default=tempfile.gettempdir())
    options = parser.parse_args()
    fast = {"OMPI_MCA_odls_base_sigkill_timeout": "0", "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "self,vader", "OMPI_MCA_mpi_yield_when_idle": "1"}  # as in the matrix
    os.environ.update({k: v for k, v in fast.items() if k not in os.environ})
    failed = n = 0
    with tempfile.TemporaryDirectory(prefix="dcp_rebuild.", dir=options.scratch) as scratch:
        cases = Cases(Programs(options.build), os.path.realpath(scratch))
        for name, call, fault in choose(cases, options.part):
            n += 1
            try:
                cases.run(call, fault)
            except Failed as why:
                failed += 1
                print(f"FAILED {name} ({call.name} of {call.path}): {why}", flush=True)
    print(f"{n} cases, {failed} failed")
    return 1 if failed or not n else 0


if __name__ == "__main__":
    sys.exit(main())
