#!/usr/bin/env python3
"""Programs other than dcp-train under dcp-run: they get the variables of torchrun, find each other, have the cores, and
are started again after an exception; dcp-run ends with their exit status."""
import glob, json, os, socket, subprocess, sys
from train_lib import BIN, cases, check, TIMEOUT, tool

PROGRAM = '''
import json, os, socket, sys, time
rank, world, restart = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
json.dump(dict(os.environ), open(f"env-{restart}-{rank}", "w"))
at = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", at[1]))
    peers = [server.accept()[0] for _ in range(world - 1)]
    met = sorted(int(peer.recv(9)) for peer in peers)
    open(f"met-{restart}", "w").write(str(met))
else:
    while True:
        try:
            peer = socket.create_connection(at)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    peer.send(str(rank).encode())
    peer.recv(1)
status = int((sys.argv[1:] + ["0"] * 9)[restart])
if rank == world - 1 and status == -9: os.kill(os.getpid(), 9)
if rank == world - 1 and status == 1: raise ValueError("as any exception")
sys.exit(max(status, 0))
'''
CORES = len(os.sched_getaffinity(0))


def run(ranks, *statuses, expect=0, options=(), env=()):
    for path in glob.glob("env-*") + glob.glob("met-*"):
        os.remove(path)
    with open("program.py", "w") as f:
        f.write(PROGRAM)
    outer = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run([f"{BIN}/dcp-run", "-n", str(ranks), *options, "--", sys.executable, "program.py",
                           *map(str, statuses)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=TIMEOUT, env={**outer, **dict(env)})
    check(done.returncode == expect, f"exit {done.returncode}, not {expect}: {done.stdout}{done.stderr}")
    return done.stderr


def variables(start, rank):
    return json.load(open(f"env-{start}-{rank}"))


def check_ranks(start, world):
    ports = set()
    for rank in range(world):
        have = variables(start, rank)
        expected = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_RANK": 0,
                    "GROUP_WORLD_SIZE": 1, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1",
                    "OMP_NUM_THREADS": max(CORES // world, 1), "TORCHELASTIC_RESTART_COUNT": start}
        found = {name: have.get(name) for name in expected}
        check(found == {name: str(value) for name, value in expected.items()}, f"rank {rank}: {found}")
        ports.add(have["MASTER_PORT"])
    check(len(ports) == 1, f"ports {ports}")
    check(open(f"met-{start}").read() == str(list(range(1, world))), "they have not met")
    return ports


def test_ranks_get_the_variables_of_torchrun_and_meet():
    for world in (1, 2, 3):
        with cases.part(f"{world}"):
            run(world)
            check_ranks(0, world)


def test_an_exception_is_restarted():
    err = run(2, 1)
    check("start 1 failed with status 1" in err and "restart 1 of 3" in err, err)
    check_ranks(1, 2)


def test_a_run_shrinks_after_a_kill():
    run(3, -9, 1, options=("--on-failure", "shrink", "--min", "1"))
    check_ranks(1, 2)
    check_ranks(2, 1)


def test_restarts_are_limited():
    err = run(2, 1, 1, 1, 1, 1, expect=3)
    check("giving up after 3 restarts" in err, err)


def test_some_statuses_are_final():
    # They have the same meaning for every program.
    err = run(2, 2, expect=2)
    check("status 2, which no restart would change" in err, err)
    for status in (75, 143):
        check("restart" not in run(2, status, expect=status), f"status {status} is tried again")


def test_given_variables_stay():
    with socket.create_server(("", 0)) as taken:
        port = str(taken.getsockname()[1])
    run(2, env={"MASTER_PORT": port, "MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "7"}.items())
    have = variables(0, 1)
    check([have[n] for n in ("MASTER_PORT", "MASTER_ADDR", "OMP_NUM_THREADS")] == [port, "localhost", "7"], have)


def test_the_name_rank_is_no_option():
    tool("dcp-run", "rank", "true", expect=2)


cases.main()
