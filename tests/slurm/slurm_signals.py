#!/usr/bin/env python3
"""Slurm sends SIGTERM to a job that it did not warn: in a grace time, only to the ranks on other nodes. The run
saves and ends, with status 75 if Slurm needs the nodes for a while, and with 143 if a user ends the job. The
next job continues from the saved step."""
import os, re
from slurm_lib import cases, newest, slurm, text, until
from train_lib import BIN, TRAINER, check, config, make_text

LAST = 1000  # not reached


@cases.shared
def script():
    """Returns the job's script, and the folder in which each case continues from the steps of the cases before it."""
    make_text()
    path = config(max_steps=LAST, checkpoint={"keep": 2}, metrics=None)
    with open("job.sh", "w") as f:
        f.write(f"""#!/bin/bash
trap : TERM
{BIN}/dcp-run -n 3 -- {TRAINER} {path} &
wait $!
while kill -0 $! 2>/dev/null; do wait $!; done
wait $!
echo "status $?"
""")


def ends(how, status):
    """Ends a run in this way after it has saved some steps. Checks that it had continued from the last step, and
    ends with the status."""
    script()
    os.chdir(script.folder)
    before = newest()
    job = slurm.submit("--nodes=3", "--ntasks-per-node=1", "--time=5", f"--output={how}", "job.sh")
    until(lambda: newest() >= before + 3 or slurm.show(job, "JobState") not in ("PENDING", "RUNNING"),
          f"steps of the job that is to be {how}")
    if how == "preempted":
        slurm.submit("--partition=high", "--nodes=3", "--ntasks-per-node=4", "--output=/dev/null", "--wrap=true")
    else:
        slurm.ask(*{"requeued": ("scontrol", "requeue"), "cancelled": ("scancel",)}[how], job)
    until(lambda: "status" in text(how), f"the end of a run that is {how}")
    check(text(how).endswith(f"status {status}\n"), f"{how}: {text(how)}")
    found = re.findall(r"continuing from step (\d+)", text(how))
    check(found == ([str(before)] if before else []), f"{how}, not from step {before}: {text(how)}")
    slurm.ask("scancel", job)


def test_preempted_it_ends_with_75():
    ends("preempted", 75)


def test_requeued_it_ends_with_75():
    ends("requeued", 75)


def test_cancelled_it_ends_with_143():
    ends("cancelled", 143)


cases.main()
