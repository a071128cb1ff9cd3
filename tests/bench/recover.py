#!/usr/bin/env python3
"""How long a failure keeps a run from training: the time from the kill until a new step is done, in parts as dcp-run
reports them, and as observed from outside.

    recover.py [--repeat 3] [one] [three]

one: four ranks on this host; three: one rank on each of three hosts, which are namespaces of this machine (tests/hosts)
and require root. A rank is killed, or a host with all its processes; the run continues with as many ranks, or with
those that are left (shrink). The state comes from stores in memory. Prints medians in seconds. "of a start" is the
observed time as a share of the time from a run's command to its first step, so it is meaningful on slow or busy
machines, too. Exit status 1 if a killed rank on one host costs more than one start. DCP_BIN says where the programs
are (build/bin)."""
import argparse, atexit, os, re, shutil, signal, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
os.environ.setdefault("DCP_BIN", f"{ROOT}/build/bin")
os.environ.setdefault("DCP_SOURCE", ROOT)
os.environ.setdefault("OMP_NUM_THREADS", "1")
PARTS = ["noticed", "ended", "started", "rebuilt", "loaded", "first step"]
STEPS = 5  # steps of a start before the kill

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--repeat", type=int, default=3)
parser.add_argument("where", nargs="*", metavar="one|three")
args = parser.parse_args()
if not args.where:
    print(f"{'':24}" + "".join(f"{part:>11}" for part in [*PARTS, "sum", "seen", "of a start"]), flush=True)
    statuses = [os.spawnv(os.P_WAIT, sys.executable, [sys.executable, __file__, "--repeat", str(args.repeat), where])
                for where in ("one", "three")]
    sys.exit(max(0 if status == 77 else status for status in statuses))

if args.where == ["one"]:
    sys.path.insert(0, f"{ROOT}/tests/trainer")
    from train_lib import BIN, TIMEOUT, TRAINER, check, config, make_text, scratch
    MEMORY = f"/dev/shm/{os.path.basename(scratch)}"
    atexit.register(shutil.rmtree, MEMORY, True)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
else:
    sys.path.insert(0, f"{ROOT}/tests/hosts")
    from hosts_train import hosts, private
    from train_lib import BIN, TIMEOUT, TRAINER, check, config, make_text
make_text()


def wait_for(condition, run, err):
    deadline = time.monotonic() + TIMEOUT
    while not (held := condition()):
        check(run.poll() is None and time.monotonic() < deadline, f"waited in vain: {open(err).read()}")
        time.sleep(0.001)
    return held


def lines_of(path):
    try:
        return open(path).read().count("\n")
    except OSError:
        return 0


def kill_rank(err):
    """Kills the second rank, which is on h2 if there are three hosts."""
    if args.where == ["one"]:
        pid = re.search(r"start 1, \d+ ranks, pids \d+ (\d+)", open(err).read())[1]
    else:
        pid = next(pid for pid, name in hosts.pids("h2").items() if name == "dcp-train")
    os.kill(int(pid), signal.SIGKILL)


def kill_host(_):
    hosts.kill("h2")


def measure(name, ranks, options, kill):
    """Returns the seconds of each part, their sum, the observed time, and the time of a start."""
    stores = private(name, "partner") if args.where != ["one"] else [
        {"path": f"{MEMORY}/{name}", "every": 1, "keep": 2}]
    path = config(checkpoint={"dir": name, "every": 20, "keep": 2, "stores": stores}, max_steps=1000000,
                  metrics=f"{name}.jsonl", scheduler={"type": "constant", "params": {}})
    command = [f"{BIN}/dcp-run", "-n", str(ranks), *options, "--", TRAINER, os.path.abspath(path)]
    start = (lambda command, **to: hosts.start("h1", command, **to)) if args.where != ["one"] else subprocess.Popen
    err = f"{name}.err"
    begin = time.monotonic()
    run = start(command, stdout=subprocess.DEVNULL, stderr=open(err, "w"))
    try:
        wait_for(lambda: lines_of(f"{name}.jsonl") >= 1, run, err)
        started = time.monotonic() - begin
        wait_for(lambda: lines_of(f"{name}.jsonl") >= STEPS, run, err)
        killed = time.monotonic()
        kill(err)
        table = wait_for(lambda: re.search(r"^dcp-run: start \d+: .*: ([\d.]+) s$", open(err).read(), re.M), run, err)
        seen = time.monotonic() - killed
    finally:
        pid = run.pid if args.where == ["one"] else hosts.pid(run)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)  # there is nothing to save
        run.wait(TIMEOUT)
        if kill == kill_host:
            hosts.boot("h2")
    part = {key: float(re.search(key + r" ([\d.]+)", table[0])[1]) for key in PARTS}
    return [*part.values(), float(table[1]), seen, started]


def case(name, ranks, options, kill=kill_rank):
    rows = [measure(f"{name.replace(', ', '-')}-{i}", ranks, options, kill) for i in range(args.repeat)]
    *found, started = [statistics.median(column) for column in zip(*rows)]
    share = found[-1] / started
    print(f"{args.where[0] + ': ' + name:24}" + "".join(f"{s:11.2f}" for s in [*found, share]), flush=True)
    return share > 1


if args.where == ["one"]:
    slow = case("rank, same", 4, [])
    slow |= case("rank, shrink", 4, ["--on-failure", "shrink"])
    sys.exit(slow)
with open("hosts", "w") as f:
    f.writelines(f"{name} slots=1\n" for name in hosts.names)
at = ["--hosts", os.path.abspath("hosts")]
case("rank, same", 3, at)
case("rank, shrink", 3, [*at, "--on-failure", "shrink"])
case("host, shrink", 3, [*at, "--on-failure", "shrink"], kill_host)
