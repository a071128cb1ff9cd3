#!/usr/bin/env python3
"""Random runs under dcp-run: 2 to 4 hosts with 1 to 3 slots, each kind of redundancy, ranks and hosts that are killed,
hosts that come back, --on-failure shrink and --min 1. The run continues on the remaining hosts to the last step, with
the bits of an undisturbed run. It may end earlier only if the stores refuse every number of ranks on these hosts.

    hosts_random.py [FIRST COUNT]     runs of the seeds FIRST, FIRST + 1, ...; by default only seed 1"""
import os, random, re, signal, sys

os.environ.setdefault("HOSTS", "4")
from hosts_train import Supervised, cases, check_clear, host_file, hosts, private, ranks_at, until
from train_lib import check, config, losses, make_text, metrics, state, train

LAST = 40
NEEDED = {"none": 1, "partner": 2, "rs(1)": 2, "rs(2)": 3}  # the minimum number of hosts, by redundancy
FIRST, COUNT = (int(sys.argv.pop(1)) for _ in range(2)) if sys.argv[1:] and sys.argv[1].isdigit() else (1, 1)


class Random:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.name = f"run-{seed}"
        self.slots = {name: self.random.randint(1, 3) for name in hosts.names[:self.random.randint(2, 4)]}
        self.redundancy = self.random.choice(tuple(NEEDED))
        self.ranks = self.random.randint(2, sum(self.slots.values()))
        self.dead, self.done = [], []

    def describe(self):
        return (f"{self.name}: {self.ranks} ranks on {' '.join(f'{name}:{n}' for name, n in self.slots.items())}, "
                f"{self.redundancy}, {', '.join(self.done) or 'nothing done'}")

    def start(self):
        cluster = host_file(*(f"{name} slots={n}" for name, n in self.slots.items()), path=f"{self.name}.hosts")
        self.metrics = f"{self.name}.jsonl"
        path = config(f"{self.name}.json", max_steps=LAST, metrics=self.metrics,
                      checkpoint={"dir": self.name, "every": 4, "stores": private(self.name, self.redundancy)})
        self.run = Supervised(self.name, ["-n", self.ranks, "--hosts", cluster, "--on-failure", "shrink", "--min", 1,
                                          "--max-restarts", 9], path)

    def lines(self):
        return len(open(self.metrics).readlines()) if os.path.exists(self.metrics) else 0

    def goes_on_to(self, step):
        """Returns true if the run reaches that step before it ends."""
        until(lambda: self.lines() >= step or self.run.process.poll() is not None, f"step {step}: {self.describe()}", 300)
        return self.run.process.poll() is None

    def disturb(self):
        away = self.random.random() < 0.4 and [name for name in self.slots if name != "h1" and name not in self.dead]
        if away:
            name = self.random.choice(away)
            hosts.kill(name)
            self.dead.append(name)
            self.done.append(f"{name} killed")
        elif self.dead and self.random.random() < 0.5:
            self.boot()
        else:
            ranks = [(name, pid) for name in self.slots if name not in self.dead for pid in ranks_at(name)]
            if ranks:
                name, pid = self.random.choice(ranks)
                os.kill(pid, signal.SIGKILL)
                self.done.append(f"a rank on {name} killed")

    def boot(self):
        name = self.dead.pop(0)
        hosts.boot(name)
        self.done.append(f"{name} back")

    def play(self):
        self.start()
        step = 0
        for _ in range(self.random.randint(1, 4)):
            step += self.random.randint(2, 9)
            if not self.goes_on_to(step):
                break
            try:
                self.disturb()
            except ProcessLookupError:  # that rank has just ended
                pass
        status = self.run.process.wait(300)
        text = self.run.text()
        alive = len(self.slots) - len(self.dead)
        while self.dead:
            self.boot()
        if status == 2 and not self.lines() and not self.done:
            return "refused at the start"
        if status == 2 and alive < NEEDED[self.redundancy] and "which no restart would change" in text:
            return f"no world was left on {alive} hosts"
        check(status == 0, f"{self.describe()}: exit {status}: {text}")
        check([line["step"] for line in metrics(self.metrics)] == list(range(1, LAST + 1)), f"{self.describe()}: lines: {text}")
        check((state(LAST, self.name), losses(self.metrics)) == (state(LAST, "whole"), losses("whole.jsonl")), f"{self.describe()}: other bits: {text}")
        check_clear()
        return f"{len(re.findall('^dcp-run: start [0-9]+, ', text, re.M))} starts"


def test_random_runs_end_with_the_bits_of_an_undisturbed_one():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    for seed in range(FIRST, FIRST + COUNT):
        with cases.part(f"seed {seed}"):
            game = Random(seed)
            outcome = game.play()
            print(f"{game.describe()}: {outcome}", flush=True)


cases.main()
