#!/usr/bin/env python3
"""dcp-run is killed by SIGKILL: five seconds later no process of the run is left on any host, and if dcp-run is
started again at once, the run continues. If dcp-run is requested to stop before other hosts are up, it passes
the request on when they are."""
import os, signal, time
from hosts_train import HERE, Supervised, cases, check_clear, host_file, hosts, private, ranks_at
from train_lib import BIN, check, config, losses, make_text, state, train

LAST = 16


def kill_at(begin, options, path):
    """Starts dcp-run, and kills it after step `begin`."""
    run = Supervised(f"killed{begin}", options, path)
    run.at_step(begin, "metrics.jsonl")
    for name in hosts.names:
        check(len(ranks_at(name)) == 1, f"{name} has {ranks_at(name)}")
    os.kill(hosts.pid(run.process), signal.SIGKILL)
    run.process.wait()


def test_killed_it_leaves_nothing_and_goes_on_when_started_again():
    make_text()
    train(1, config("whole.json", max_steps=LAST, checkpoint={"dir": "whole", "every": LAST}, metrics="whole.jsonl"))
    options = ["-n", 3, "--hosts", host_file(*(f"{name} slots=1" for name in hosts.names))]
    path = config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": LAST, "stores": private("ckpt", "partner")})
    kill_at(4, options, path)
    time.sleep(5)  # this is a promise: it must hold now
    for name in hosts.names:
        check(hosts.pids(name) == {}, f"left on {name}: {hosts.pids(name)}")
    kill_at(9, options, path)
    text = Supervised("again", options, path).ends()  # without waiting
    check_clear()
    check("continuing from step" in text, text)
    check((state(LAST), losses()) == (state(LAST, "whole"), losses("whole.jsonl")), "another result")


def test_asked_to_stop_before_other_hosts_are_there_it_tells_them_when_they_come():
    make_text()
    with open("rsh", "w") as f:
        f.write(f'#!/bin/sh\nuntil [ -e {os.getcwd()}/go ]; do sleep 0.01; done\nexec {HERE}/rsh.py "$@"\n')
    os.chmod("rsh", 0o755)
    os.environ["OMPI_MCA_plm_rsh_agent"] = os.path.abspath("rsh")
    cluster = host_file("h2 slots=1", "h3 slots=1")
    run = Supervised("early", ["-n", 2, "--hosts", cluster, "--grace", 1000], config(max_steps=1000000, checkpoint={"dir": "early"}))
    run.wait_for(lambda: os.path.exists("early/.control"), "the socket")
    hosts.run("h1", [f"{BIN}/dcp-run", "ctl", "early", "stop"])
    open("go", "w").close()
    run.ends(143)
    check_clear()


cases.main()
