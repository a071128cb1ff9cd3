#!/usr/bin/env python3
"""What proves to dcp-run that an agent belongs to the start is on no command line, which every user
of a host may read in /proc, on any host, from the start until the ranks run; nor do ranks have it."""
from hosts_train import *

over = {"max_steps": 3, "checkpoint": {"dir": "ckpt"}}
several = ["-n", 3, "--hosts", host_file(*(f"{name} slots=1" for name in hosts.names))]
run = Supervised("several", several, config(**over))
programs = until_without_secret(lambda: all(ranks_at(name) for name in hosts.names) and 1 in steps(), run.text)
for program in ("dcp-run", "mpirun", "rsh.py", "orted", "dcp-train"):
    check(program in programs, f"{program} was not seen among {programs}")
run.ends()
check_clear()

# The agent is named in a file of Open MPI's, as one of several.
agent = os.environ.pop("OMPI_MCA_plm_rsh_agent")
os.makedirs(".openmpi")
with open(".openmpi/mca-params.conf", "w") as f:
    f.write(f"plm_rsh_agent = not-there -q : {agent}\n")
home, os.environ["HOME"] = os.environ.get("HOME", "/"), os.getcwd()
run = Supervised("by-file", [*several, "--max-restarts", 0], config(**over), "checkpoint.dir=by-file")
until_without_secret(lambda: ranks_at("h2") or run.process.poll() is not None, run.text)
run.ends()
os.environ["HOME"] = home

# An agent that keeps its stdin for itself, as `ssh -n` does.
with open("silent", "w") as f:
    f.write(f'#!/bin/sh\nexec {agent} "$@" < /dev/null\n')
os.chmod("silent", 0o755)
os.environ["OMPI_MCA_plm_rsh_agent"] = os.path.abspath("silent")
text = Supervised("silent", [*several, "--max-restarts", 0], config(**over), "checkpoint.dir=unheard").ends(3)
told = [f"dcp-run agent on {name}: the key of the run is not on stdin" in text for name in ("h2", "h3")]
check(any(told), text)  # the first of them ends the start
check_clear()

run = Supervised("one", ["-n", 2], config(**over, metrics="one.jsonl"), "checkpoint.dir=one")
until_without_secret(lambda: len(ranks_at("h1")) == 2 or run.process.poll() is not None, run.text)
run.ends()
