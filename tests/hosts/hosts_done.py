#!/usr/bin/env python3
"""A start whose ranks have all ended well is done, even if a host's agent is killed before mpirun has ended: there
is one start, exit status 0, and no report of a loss."""
import json, os, shutil, signal
from hosts_train import Supervised, cases, check_clear, host_file, hosts, ranks_at
from train_lib import BIN, check, config, make_text, steps

LAST = 200


def make_mpirun():
    """Puts an mpirun into PATH that ends some time after its ranks, as on a busy machine."""
    os.mkdir("bin")
    with open("bin/mpirun", "w") as f:
        f.write(f'''#!/bin/sh
case "$*" in *dcp-train*) export LD_PRELOAD={os.environ["LINGER"]} LINGER_OVER=$PWD/over LINGER_GO=$PWD/go;; esac
exec {shutil.which("mpirun")} "$@"
''')
    os.chmod("bin/mpirun", 0o755)
    os.environ["PATH"] = f"{os.getcwd()}/bin:{os.environ['PATH']}"


def members():
    told = hosts.run("h1", [f"{BIN}/dcp-run", "ctl", "ckpt", "status"], capture_output=True, text=True).stdout
    return json.loads(told)["members"]


def have_ended():
    return all(member["pid"] and not member["lives"] for member in members())


def test_ranks_that_ended_well_are_done_without_an_agent():
    make_text()
    make_mpirun()
    cluster = host_file(*(f"{name} slots=1" for name in hosts.names))
    run = Supervised("done", ["-n", 3, "--hosts", cluster],
                     config(max_steps=LAST, checkpoint={"dir": "ckpt", "every": LAST}))
    run.at_step(1, "metrics.jsonl")
    stopped, = ranks_at("h1")
    os.kill(stopped, signal.SIGSTOP)
    run.wait_for(lambda: all(member["pid"] for member in members()), "all ranks to be known")
    os.kill(stopped, signal.SIGCONT)
    run.wait_for(lambda: os.path.exists("over"), "the end of mpirun")
    run.wait_for(have_ended, "what the agents know")
    agent, = (pid for pid, program in hosts.pids("h2").items() if program == "job-guard")
    os.kill(agent, signal.SIGKILL)
    check(have_ended(), run.text())  # dcp-run gets its answer after that
    open("go", "w").close()
    text = run.ends()
    check("restart" not in text and "is lost" not in text and steps() == [LAST], text)
    check_clear()


cases.main()
