#!/usr/bin/env python3
"""Saves, loads, kills and two writers on a file system that is made for the test.

    crash_filesystem.py TYPE [--sample N] [--build FOLDER] [--scratch FOLDER]

TYPE: ext4, xfs, btrfs (in an image), tmpfs, fuse_no_locks (a FUSE file system in which each lock call fails with
ENOLCK), fuse_granted (in which each lock is granted, even one that is held; both refuse the flags of renames),
glusterfs (a volume of one brick on this host), glusterfs_dispersed (one of three bricks, any two of which have all
bytes).

--sample N: N of the crash matrix's cases for one directory, and N of two writers; without it all cases. If the file
system can be mounted twice, ranks and writers use one mount each, like two hosts.

Exit status: 0 if all cases pass, 1 if not, 77 if the file system cannot be made here.
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib

import crash_matrix
import crash_programs
import crash_two_writers
from crash_cases import Failed, configs
from crash_mounts import MIRRORS, TYPES, VOLUMES, Unavailable, enter_namespace, mount, run
from crash_programs import Place, Programs, set_environment
from crash_report import ROOT, Journal

KINDS = ([], ["sharded"], ["mpio"], ["sharded", "mpio"], ["async"], ["sharded", "async"])
SAMPLED = ("global.sync.uring.disk.plain", "global.sync.uring.disk.replace",
           "global.sync.uring.disk.spare", "sharded.async.pwrite.disk.plain")


def say(text):
    print(text, flush=True)


def save_and_load(programs, parent):
    """Each kind of save, on two ranks, loads and is intact byte by byte, and another save follows."""
    for words in KINDS:
        store = tempfile.mkdtemp(dir=parent)
        for arguments in (["save", store, "1", *words], ["next", store, *words]):
            status, out, err = programs.ranks(2, arguments)
            if status:
                raise Failed(f"{' '.join(arguments)}: exit {status}\n{err}")
        if out.split() != ["1", "2"]:
            raise Failed(f"{' '.join(words)}: steps {out.split()}, not 1 and 2")
        shutil.rmtree(store)
    say(f"{len(KINDS)} kinds of saves and loads")


def run_as_two_hosts(programs, mounted, arguments):
    """Runs crash_state on two ranks that see the file system through one mount each, at the same path."""
    one = [programs.state, *arguments]
    two = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', mounted[1],
           mounted[0], *one]
    command = [*programs.mpirun, "-n", "1", "-x", "DCP_HOST=one", *one,
               ":", "-n", "1", "-x", "DCP_HOST=two", *two]
    done = subprocess.run(command, check=False, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise Failed(f"on two hosts: {' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def save_and_load_on_two_hosts(programs, mounted, kinds):
    """Both hosts write into one directory, and read what the other one has written."""
    for words in kinds:
        store = tempfile.mkdtemp(dir=mounted[0])
        run_as_two_hosts(programs, mounted, ["save", store, "1", *words])
        steps = run_as_two_hosts(programs, mounted, ["next", store, *words]).split()
        if steps != ["1", "2"]:
            raise Failed(f"on two hosts: {' '.join(words)}: steps {steps}, not 1 and 2")
        shutil.rmtree(store)
    say(f"{len(kinds)} kinds of saves and loads on two hosts")


def use_tools(programs, parent, bin_dir):
    """The tools read and write on the file system."""
    store = tempfile.mkdtemp(dir=parent)
    status, _, err = programs.ranks(2, ["save", store, "1", "sharded"])
    if status:
        raise Failed(f"save for the tools: {err}")
    plain, out = os.path.join(parent, "plain.h5"), os.path.join(parent, "global")
    for command in (("dcp-inspect", "verify", store), ("dcp-reshard", store, out, "--layout", "global"),
                    ("dcp-inspect", "diff", store, out),
                    ("dcp-export", out, plain, "--format", "hdf5")):
        done = subprocess.run([os.path.join(bin_dir, command[0]), *command[1:]], check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}")
    elsewhere = {**os.environ, "HDF5_USE_FILE_LOCKING": "FALSE"}
    for path in (plain, os.path.join(out, "step-00000001", "state.h5")):
        done = subprocess.run(["h5ls", "-r", path], env=elsewhere, check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode or "Dataset" not in done.stdout:
            raise Failed(f"h5ls {path}: {done.stdout}")
    say("the tools")


class Matrix(crash_matrix.Matrix):
    """The crash matrix with a single place."""
    def __init__(self, programs, parent):  # pylint: disable=super-init-not-called
        self.programs = programs
        self.places = {"disk": Place(parent, programs)}


def choose(matrix, sample):
    wanted = [c for c in configs() if c.store == "disk" and c.scene != "lost" and
              (not sample or c.name in SAMPLED)]
    cases = [case for config in wanted for case in matrix.cases(config)]
    cases.sort(key=lambda case: zlib.crc32(case.name.encode()))
    return cases[:sample or len(cases)]


def run_matrix(programs, parent, sample, jobs):
    matrix = Matrix(programs, parent)
    cases = choose(matrix, sample)
    journal = Journal(None, "")
    crash_matrix.run_all(matrix, cases, jobs, journal)
    failed = sum(journal.outcomes[c.name] == "failed" for c in cases)
    if failed:
        raise Failed(f"{failed} of {len(cases)} cases of the matrix failed")
    say(f"{len(cases)} cases of the crash matrix")


def run_two_writers(programs, kind, mounted, sample):
    """Runs two writers, the second one through the other mount: with the option to take over the store if that is
    required, otherwise after removing .lock."""
    other = mounted[1] if len(mounted) > 1 else None
    writers = crash_two_writers.Writers(programs, mounted[0], other)
    scenes = ("replace",) if sample else ("plain", "replace", "keep", "back", "sharded", "async")
    cases = [case for scene in scenes
             for case in writers.cases_of(scene, "own" if kind in MIRRORS else "removed")]
    cases.sort(key=lambda case: zlib.crc32(case.name.encode()))
    tally = {}
    for case in cases[:sample or len(cases)]:
        try:
            outcome = writers.run(case)
        except Failed as failure:
            raise Failed(f"two writers, {case.name}: {failure}") from None
        tally[outcome] = tally.get(outcome, 0) + 1
    say(f"{sum(tally.values())} cases of two writers: {tally}")


def check_answers(kind, scratch):
    """Checks that the calls that must fail have reached the file system."""
    for name in ("locks", "renames") if kind in MIRRORS else ():
        if not os.path.exists(os.path.join(scratch, "control.a", name)):
            raise Failed(f"no call of {name} has reached the file system")


def parse():
    parser = argparse.ArgumentParser(description="See the top of this file.")
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("--sample", type=int, default=0, help="cases of the matrix (0: all)")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help="build folder")
    parser.add_argument("--scratch", default=tempfile.gettempdir(), help="a folder on a disk")
    return parser.parse_args()


def main():
    options = parse()
    # our own processes, addresses and shared memory: everything ends with this process, and nothing is shared
    # with others
    network = []
    if options.type in VOLUMES:
        network = ["-n"]
        os.environ |= {"OMPI_MCA_if_base_retain_loopback": "1", "OMPI_MCA_oob_tcp_if_include": "lo"}
    if not enter_namespace(*network, "-p", "-f", "--kill-child", "--mount-proc"):
        print("only root can mount file systems, in namespaces of its own")
        return 77
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    crash_programs.WATCHDOG = crash_two_writers.WATCHDOG = 300  # slower than a disk
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="dcp_fs.", dir=options.scratch))
    try:
        run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        set_environment(os.path.join(scratch, "tmp"))
        mirror = os.path.join(options.build, "tests", "bin", "crash_mirror_fs")
        mounted = mount(options.type, scratch, os.environ.get("CRASH_MIRROR_FS", mirror))
        programs = Programs(options.build)
        save_and_load(programs, mounted[0])
        if len(mounted) > 1:
            save_and_load_on_two_hosts(programs, mounted, KINDS[::3] if options.sample else KINDS)
        use_tools(programs, mounted[0], os.path.join(options.build, "bin"))
        run_matrix(programs, mounted[0], options.sample, options.jobs)
        run_two_writers(programs, options.type, mounted, options.sample)
        check_answers(options.type, scratch)
    except Unavailable as why:
        print(f"no {options.type} here: {why}")
        return 77
    except Failed as failure:
        print(f"FAILED on {options.type}: {failure}")
        return 1
    finally:
        for at in ("a", "b", options.type):
            subprocess.run(["umount", "-l", os.path.join(scratch, at)], check=False,
                           stderr=subprocess.DEVNULL)
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
