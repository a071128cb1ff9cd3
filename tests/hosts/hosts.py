#!/usr/bin/env python3
"""Simulated hosts for scripts (see hosts_lib.py).

hosts.py make N COMMAND...       makes hosts h1, h2, ..., runs COMMAND beside them, and ends them with it
hosts.py on HOST COMMAND...      within make's COMMAND: runs a command on a host
hosts.py pids HOST               prints the pids, as seen from outside, and names of the host's processes
hosts.py cut|join|kill|boot HOST
hosts.py slow HOST RATE          for example 10mbit"""
import os, subprocess, sys
from hosts_lib import Hosts, make

verb, *rest = sys.argv[1:] or [""]
if verb == "make" and len(rest) > 1:
    make(int(rest[0]))
    sys.exit(subprocess.call(rest[1:]))
elif verb == "on" and len(rest) > 1:
    command = Hosts().enter_command(rest[0], rest[1:])
    os.execvp(command[0], command)
elif verb == "pids" and len(rest) == 1:
    for pid, name in sorted(Hosts().pids(rest[0]).items()):
        print(pid, name)
elif verb in ("cut", "join", "kill", "boot", "slow") and rest:
    getattr(Hosts(), verb)(*rest)
else:
    sys.exit(__doc__)
