#!/usr/bin/env python3
"""Compares the simulated requests to files with those of real runs, one by one.

A wrong simulation would prove nothing. Real ranks on this host record the requests of their queues; if the queue works
without io_uring, strace sees them as system calls, too."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support"))
import cases

BIN, MOST = pathlib.Path(sys.argv[1]), int(sys.argv[2])  # the folder of the programs; the largest number of ranks
del sys.argv[1:3]  # names of cases may follow
MPIRUN = ["mpirun", "--oversubscribe", "-n"]
CALL = re.compile(r"^(\d+) +(pwrite64|pread64)\(\d+<([^>]*)>.*, (\d+), (\d+) *\) += \d+$")
UNFINISHED = "<unfinished ...>"
WORLDS = [  # ranks, ranks per host, DCP_SHARED_MEMORY, layout
    (4, 4, 1, "global"),
    (4, 4, 0, "global"),
    (4, 2, 1, "global"),
    (16, 16, 1, "global"),
    (16, 4, 1, "global"),
    (64, 64, 1, "global"),
    (64, 8, 1, "global"),
    (4, 4, 1, "sharded"),
    (16, 4, 1, "sharded"),
]


def lines_of(paths):
    return sorted(line for path in paths for line in path.read_text().splitlines())


def options_of(layout):
    return ["--sharded"] if layout == "sharded" else []


def simulate(scratch, ranks, host, shared, layout="global"):
    trace = scratch / "simulated"
    command = [BIN / "data_scale", "tiny", "--ranks", str(ranks), "--host", str(host), "--dir",
               scratch, "--trace", trace]
    subprocess.run(command + ([] if shared else ["--apart"]) + options_of(layout),
                   check=True, stdout=subprocess.DEVNULL)
    return lines_of([trace])


def run_real(scratch, ranks, host, shared, layout="global", wrapper=()):
    folder = scratch / "real"
    folder.mkdir()
    command = [*MPIRUN, str(ranks), *wrapper, BIN / "data_real", "tiny", "--host", str(host),
               "--dir", folder / "store", "--trace", folder / "trace"]
    env = dict(os.environ, DCP_SHARED_MEMORY=str(shared))
    command += options_of(layout) + (["--threads"] if wrapper else [])
    subprocess.run(command, check=True, env=env)
    shutil.rmtree(folder / "store")
    return folder


def compare(what, simulated, real):
    only = [("simulated", set(simulated) - set(real)), ("real", set(real) - set(simulated))]
    print(f"{what}: {len(real)} requests, {len(simulated)} simulated")
    assert simulated == real and real, [f"only {name}: {line}" for name, lines in only for line in sorted(lines)[:5]]


def join_resumed(lines):
    """Joins calls that strace reports in two parts, because another thread's call came between."""
    begun = {}
    for line in lines:
        thread, text = line.split(maxsplit=1)
        if text.endswith(UNFINISHED):
            begun[thread] = line[:-len(UNFINISHED)]
        elif text.startswith("<... "):
            yield begun.pop(thread, thread) + text.split(" resumed>", 1)[1]
        else:
            yield line


def requests_in(path, rank):
    """Returns the requests of the queue's threads to the last step's file; the main thread reads tables."""
    lines = path.read_text(errors="replace").splitlines()
    main = lines[0].split()[0]
    for call in filter(None, map(CALL.match, join_resumed(lines))):
        thread, name, file, size, offset = call.groups()
        if thread != main and "step-00000003" in file:
            yield f"{rank} {'W' if name == 'pwrite64' else 'R'} 0 {offset} {size}"


def check_by_strace(scratch, ranks):
    if not shutil.which("strace"):
        cases.skip("strace is missing")
    simulated = simulate(scratch, ranks, ranks, 1)
    calls = "trace=execve,pwrite64,pread64"
    output = scratch / "real" / "strace"
    script = f'exec strace -f -y -s 0 -e {calls} -o {output}.$OMPI_COMM_WORLD_RANK "$@"'
    folder = run_real(scratch, ranks, ranks, 1, wrapper=("sh", "-c", script, "sh"))
    seen = [line for rank in range(ranks)
            for line in requests_in(folder / f"strace.{rank}", rank)]
    shutil.rmtree(folder)
    compare(f"{ranks} ranks, by strace", simulated, sorted(seen))


def check_worlds(layout, shared):
    """Checks that simulated and real requests are equal in each world of the table with this layout and kind of
    memory."""
    for ranks, host, *kind in WORLDS:
        if kind == [shared, layout] and ranks <= MOST:
            what = f"{ranks} ranks, {host} a host, {layout}" + ("" if shared else ", no shared memory")
            with cases.part(what):
                scratch = pathlib.Path(tempfile.mkdtemp(dir="."))
                simulated = simulate(scratch, ranks, host, shared, layout)
                folder = run_real(scratch, ranks, host, shared, layout)
                compare(what, simulated, lines_of(folder.glob("trace.*")))
                shutil.rmtree(folder)


def test_global_layout():
    check_worlds("global", 1)


def test_global_layout_without_shared_memory():
    check_worlds("global", 0)


def test_sharded_layout():
    check_worlds("sharded", 1)


def test_requests_as_strace_sees_them():
    for ranks in (4, 16, 64):
        with cases.part(f"{ranks} ranks"):
            check_by_strace(pathlib.Path(tempfile.mkdtemp(dir=".")), ranks)


with tempfile.TemporaryDirectory(prefix="data-check-") as scratch:
    os.chdir(scratch)
    cases.main()
