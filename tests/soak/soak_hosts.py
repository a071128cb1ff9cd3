#!/usr/bin/env python3
"""The soak on three hosts (tests/hosts), started by soak.sh --hosts: a run with `partner` in memory loses ranks,
hosts, links and dcp-run, and ends with the state and metrics of an undisturbed run."""
import collections, os, random, signal, subprocess, sys, time

sys.path.insert(0, f"{os.environ['DCP_SOURCE']}/tests/hosts")
from hosts_train import Supervised, check_clear, host_file, hosts, private, ranks_at, until
from train_lib import BIN, check, config, losses, make_text, state, steps, train

BEGIN = time.monotonic()
LAST, LIMIT = 150, 150  # steps of a run; seconds that any event may take
OPTIONS = ["--hosts", "cluster", "--grace", 5, "--stall", 10, "--max-restarts", 10]


class Run:
    def __init__(self, number, seed):
        self.name, self.random = f"run-{number}", random.Random(f"{seed} {number}")
        self.ranks, self.starts, self.ended = self.random.choice((4, 5, 6)), 0, False
        self.config = config(f"{self.name}.json", max_steps=LAST, metrics=f"{self.name}.jsonl",
                             checkpoint={"dir": self.name, "every": 5, "keep": 2,
                                         "stores": private(self.name, "partner")})
        self.start()

    def start(self):
        self.starts += 1
        self.supervised = Supervised(f"{self.name}-{self.starts}", ["-n", self.ranks, *OPTIONS], self.config)
        self.process = self.supervised.process

    def step(self):
        return len(open(f"{self.name}.jsonl").readlines()) if os.path.exists(f"{self.name}.jsonl") else 0

    def until(self, condition, what):
        """Waits for the condition; sets `ended` if the run ends before."""
        deadline = time.monotonic() + LIMIT
        while not (self.ended or condition()):
            if self.process.poll() is not None:
                check(self.process.returncode == 0, f"exit {self.process.returncode}: {self.text()}")
                self.ended = True
            check(time.monotonic() < deadline, f"waited in vain for {what}: {self.text()}")
            time.sleep(0.01)

    def text(self):
        return self.supervised.text()[-6000:]


def hit(pids, number=signal.SIGKILL):
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    return len(pids)


def some_rank(run):
    found = [pid for name in hosts.names for pid in ranks_at(name)]
    return [run.random.choice(found)] if found else []


def kill_rank(run):
    return hit(some_rank(run))


def kill_ranks_of_host(run):
    return hit(ranks_at(run.random.choice(hosts.names)))


def kill_all_of_host(run):
    """Kills the agent, orted and ranks of a host other than dcp-run's."""
    return hit(hosts.pids(run.random.choice(hosts.names[1:])))


def kill_mpirun(run):
    return hit([pid for pid, program in hosts.pids("h1").items() if program == "mpirun"])


def kill_supervisor(run):
    at_once = run.random.random() < 0.5
    try:
        os.kill(hosts.pid(run.process), signal.SIGKILL)
    except (IndexError, ProcessLookupError, TimeoutError):  # it has just ended
        return 0
    run.process.wait()
    if not at_once:
        until(lambda: not any(ranks_at(name) for name in hosts.names), "the end of all ranks", 5)
    run.start()
    return 1


def stop_rank(run):
    pids = some_rank(run)
    hit(pids, signal.SIGSTOP)
    time.sleep(run.random.uniform(0.05, 1.5))
    return hit(pids, signal.SIGCONT)


def lose_host(run):
    """Turns a host's power off, so its memory is lost; then boots it again."""
    name = run.random.choice(hosts.names[1:])
    hosts.kill(name)
    hosts.boot(name)
    return 1


def cut_host(run):
    name = run.random.choice(hosts.names[1:])
    hosts.cut(name)
    time.sleep(run.random.uniform(0.1, 8))
    hosts.join(name)
    return 1


def resize(run):
    run.ranks = run.random.choice((4, 5, 6))
    asked = hosts.start("h1", [f"{BIN}/dcp-run", "ctl", run.name, "resize", run.ranks],
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run.until(lambda: asked.poll() is not None, "an answer to a resize")
    return int(asked.wait(LIMIT) == 0)


FAULTS = ((kill_rank, 5), (kill_ranks_of_host, 2), (kill_all_of_host, 2), (kill_mpirun, 1), (kill_supervisor, 2),
          (stop_rank, 2), (lose_host, 2), (cut_host, 2), (resize, 2))


def soak(run, end, counts):
    run.until(lambda: steps(run.name), "a step in checkpoint.dir")
    while not run.ended and run.step() < LAST and time.monotonic() < end:
        fault, = run.random.choices([f for f, _ in FAULTS], [weight for _, weight in FAULTS])
        before = run.step()
        if not fault(run):
            continue
        counts[fault.__name__] += 1
        print(f"{time.monotonic() - BEGIN:.1f} s, step {before}: {fault.__name__}", flush=True)
        goal = min(before + run.random.randint(2, 6), LAST)
        run.until(lambda: run.step() >= goal, f"step {goal}")
    run.until(lambda: False, "the end")
    check(state(LAST, run.name) == whole[0], "the state differs")
    check(losses(f"{run.name}.jsonl") == whole[1], "metrics differ")
    check_clear()
    print(f"{run.name}: {run.ranks} ranks at the end, dcp-run started {run.starts} times: equal", flush=True)


minutes, seed = float(sys.argv[1]), int(sys.argv[2])
print(f"soak on three hosts: {minutes:g} minutes, seed {seed}", flush=True)
make_text()
train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
whole = state(LAST, "whole"), losses("whole.jsonl")
host_file(*(f"{name} slots=2" for name in hosts.names), path="cluster")
counts, number, end = collections.Counter(), 0, time.monotonic() + 60 * minutes
while number == 0 or time.monotonic() < end - 20:
    soak(Run(number, seed), end, counts)
    number += 1
print(f"soak on three hosts: {number} runs, {counts.total()} faults in {time.monotonic() - BEGIN:.0f} s: "
      + ", ".join(f"{counts[f.__name__]} {f.__name__}" for f, _ in FAULTS))
