#!/usr/bin/env python3
"""The host file names other hosts than before, all of them or some: the run continues there and computes no step twice,
although the memory of the hosts that it leaves holds the newest steps."""
import os, signal, subprocess
from hosts_train import LOCAL, Supervised, cases, host_file, hosts, private, ranks_at, restarts
from train_lib import BIN, check, config, make_text

LAST = 100000  # the run must not end before it has moved


def ctl(name, *words):
    return [f"{BIN}/dcp-run", "ctl", name, *words]


def move(name, before, after, redundancy, resizes_before=False):
    """Moves a run between hosts, perhaps while its ranks are about to save for a resize. Returns where it continues."""
    make_text()
    cluster = host_file(*(f"{host} slots=2" for host in before), path=f"{name}.hosts")
    stores = private(name, redundancy)
    path = config(f"{name}.json", max_steps=LAST, metrics=f"{name}.jsonl",
                  checkpoint={"dir": name, "every": LAST, "stores": stores})
    run = Supervised(name, ["-n", len(before), "--max", len(before) + 1, "--hosts", cluster], path)
    run.at_step(3, f"{name}.jsonl")
    ranks = [pid for host in before for pid in ranks_at(host)] if resizes_before else []
    if resizes_before:
        for pid in ranks:
            os.kill(pid, signal.SIGSTOP)
        hosts.start("h1", ctl(name, "resize", len(before) + 1))
        run.wait_for(lambda: "resize: asking the ranks" in run.text(), "the resize")
    host_file(*(f"{host} slots=2" for host in after), path=f"{name}.hosts")
    if resizes_before:
        run.wait_for(lambda: f'"{after[0]}"' in hosts.run("h1", ctl(name, "status"), stdout=subprocess.PIPE, text=True).stdout,
                     "a look at the file")
    for pid in ranks:
        os.kill(pid, signal.SIGCONT)
    run.wait_for(lambda: len(restarts(run.text())) == 1, "the move")
    hosts.run("h1", ctl(name, "stop"))
    text = run.ends(143)
    print(text)
    (step, origin, again), = restarts(text)
    check(step >= 3 and again == 0, f"{again} steps are computed again from step {step}: {text}")
    return origin


def test_a_run_on_one_host_moves_to_another():
    check(move("single", ["h2"], ["h3"], "none") == "single", "the step is in the memory of the old host")


def test_more_hosts_are_left_than_a_store_survives():
    check(move("both", ["h1", "h2"], ["h3", "h4"], "partner") == "both", "the step is in the memory of the old hosts")


def test_as_many_hosts_are_left_as_a_store_survives():
    origin = move("half", ["h1", "h2"], ["h1", "h3"], "partner")
    check(origin.startswith(f"{LOCAL}/half"), f"the step is in {origin}, not in the memory of h1")


def test_the_host_is_left_by_a_change_that_follows_a_resize():
    origin = move("later", ["h2"], ["h3"], "none", resizes_before=True)
    check(origin == "later", "the step is in the memory of the old host")


cases.main()
