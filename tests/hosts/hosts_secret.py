#!/usr/bin/env python3
"""The secret that proves to dcp-run that an agent belongs to the start is on no command line, since every user of
a host may read these in /proc. This holds on every host, from the start until the ranks run. Ranks do not have
the secret either."""
import os
from hosts_train import Supervised, cases, check_clear, host_file, hosts, ranks_at, until_without_secret
from train_lib import check, config, make_text, steps


def make_config():
    make_text()
    return config(max_steps=3, checkpoint={"dir": "ckpt"})


def several():
    """Returns the options for one rank on each host."""
    return ["-n", 3, "--hosts", host_file(*(f"{name} slots=1" for name in hosts.names))]


def test_three_hosts():
    run = Supervised("several", several(), make_config())
    programs = until_without_secret(lambda: all(ranks_at(name) for name in hosts.names) and 1 in steps(), run.text)
    for program in ("dcp-run", "mpirun", "rsh.py", "orted", "dcp-train"):
        check(program in programs, f"{program} was not seen among {programs}")
    run.ends()
    check_clear()


def test_an_rsh_agent_that_a_file_of_open_mpi_names():
    """The file names several agents."""
    agent = os.environ.pop("OMPI_MCA_plm_rsh_agent")
    os.makedirs(".openmpi")
    with open(".openmpi/mca-params.conf", "w") as f:
        f.write(f"plm_rsh_agent = not-there -q : {agent}\n")
    os.environ["HOME"] = os.getcwd()
    run = Supervised("by-file", [*several(), "--max-restarts", 0], make_config())
    until_without_secret(lambda: ranks_at("h2") or run.process.poll() is not None, run.text)
    run.ends()


def test_an_rsh_agent_that_keeps_its_stdin_for_itself():
    """The agent does not pass its stdin on, like `ssh -n`."""
    agent = os.environ["OMPI_MCA_plm_rsh_agent"]
    with open("silent", "w") as f:
        f.write(f'#!/bin/sh\nexec {agent} "$@" < /dev/null\n')
    os.chmod("silent", 0o755)
    os.environ["OMPI_MCA_plm_rsh_agent"] = os.path.abspath("silent")
    text = Supervised("silent", [*several(), "--max-restarts", 0], make_config()).ends(3)
    told = [f"dcp-run agent on {name}: the key of the run is not on stdin" in text for name in ("h2", "h3")]
    check(any(told), text)  # the first of them ends the start
    check_clear()


def test_one_host():
    run = Supervised("one", ["-n", 2], make_config())
    until_without_secret(lambda: len(ranks_at("h1")) == 2 or run.process.poll() is not None, run.text)
    run.ends()


cases.main()
