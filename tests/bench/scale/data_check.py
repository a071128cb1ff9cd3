#!/usr/bin/env python3
"""Compares the simulated requests to files with those of real runs, one for one.

A simulation that is wrong would prove nothing. Real ranks on this host write down the requests of
their queues; where the queue goes without io_uring, strace sees them as system calls, too.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BIN = pathlib.Path(sys.argv[1])
MPIRUN = ["mpirun", "--oversubscribe", "-n"]
CALL = re.compile(r"^(\d+) +(pwrite64|pread64)\(\d+<([^>]*)>.*, (\d+), (\d+) *\) += \d+$")
UNFINISHED = "<unfinished ...>"
CASES = [  # ranks, ranks a host, DCP_SHARED_MEMORY, layout
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
    if simulated == real and real:
        return 0
    for name, lines in only:
        for line in sorted(lines)[:5]:
            print(f"  only {name}: {line}")
    return 1


def join_resumed(lines):
    """Calls that strace has told of in two parts, as another thread's came in between."""
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
    """What the threads of the queue did with the last step's file; tables are read by the main one."""
    lines = path.read_text(errors="replace").splitlines()
    main = lines[0].split()[0]
    for call in filter(None, map(CALL.match, join_resumed(lines))):
        thread, name, file, size, offset = call.groups()
        if thread != main and "step-00000003" in file:
            yield f"{rank} {'W' if name == 'pwrite64' else 'R'} 0 {offset} {size}"


def check_by_strace(scratch, ranks):
    if not shutil.which("strace"):
        print("strace is missing")
        return 0
    simulated = simulate(scratch, ranks, ranks, 1)
    calls = "trace=execve,pwrite64,pread64"
    output = scratch / "real" / "strace"
    script = f'exec strace -f -y -s 0 -e {calls} -o {output}.$OMPI_COMM_WORLD_RANK "$@"'
    folder = run_real(scratch, ranks, ranks, 1, wrapper=("sh", "-c", script, "sh"))
    seen = [line for rank in range(ranks)
            for line in requests_in(folder / f"strace.{rank}", rank)]
    shutil.rmtree(folder)
    return compare(f"{ranks} ranks, by strace", simulated, sorted(seen))


def main():
    failed = 0
    most = int(sys.argv[2])
    with tempfile.TemporaryDirectory(prefix="data-check-") as name:
        scratch = pathlib.Path(name)
        for ranks, host, shared, layout in CASES:
            if ranks > most:
                continue
            simulated = simulate(scratch, ranks, host, shared, layout)
            folder = run_real(scratch, ranks, host, shared, layout)
            what = f"{ranks} ranks, {host} a host, {layout}" + ("" if shared else ", no shared memory")
            failed += compare(what, simulated, lines_of(folder.glob("trace.*")))
            shutil.rmtree(folder)
        for ranks in (4, 16, 64):
            failed += check_by_strace(scratch, ranks)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
