#!/usr/bin/env python3
"""A job that is interrupted and requeued goes on from its own steps, with the command that it was
started with: also where checkpoint.resume names a step, and, where Slurm says that it has requeued
the job, where that is `never`. With another configuration, or when the run is over, the step that
is named is taken."""
from train_lib import *

make_text()
LAST = 200  # too many to be done before a signal comes
common = config(checkpoint={"every": 1, "keep": 3}, max_steps=LAST)
train(1, common, "checkpoint.every=3", "checkpoint.keep=0", "checkpoint.dir=whole", "metrics=whole.jsonl")
reference = state(LAST, "whole"), losses("whole.jsonl")
for step in steps("whole")[1:]:
    shutil.rmtree(step_path(step, "whole"))
from_three = [common, f"checkpoint.resume={step_path(3, 'whole')}", "checkpoint.dir=own", "metrics=own.jsonl"]
OWN = "a run of this very configuration has saved"


def interrupt(arguments, directory):
    run = Run(2, *arguments)
    run.wait_for(lambda: run.pids() and LAST > max(steps(directory) + [0]) > 3, "a step")
    os.kill(run.pids()[0], signal.SIGTERM)
    return run.wait(), run.text(run.err)


def newest():
    return max(steps("own"))


status, err = interrupt(from_three, "own")
check(status == 143 and OWN not in err and "going on from step 3:" in err, f"{status}: {err}")
_, err = train(1, *from_three, f"max_steps={LAST - 1}", "--dry-run")
check(OWN not in err and "would go on from step 3:" in err, err)
saved = newest()
_, err = train(1, *from_three)
check(OWN in err and f"going on from step {saved}:" in err, err)
check(newest() == LAST and not glob.glob("own/.abandoned*"), f"{os.listdir('own')}")
check(state(LAST, "own") == reference[0], "another state")
check(losses("own.jsonl") == reference[1][3:], "other losses")
_, err = train(1, *from_three, "--dry-run")
check(OWN not in err and "would go on from step 3:" in err, f"a run that is over: {err}")

anew = [common, "checkpoint.resume=never", "checkpoint.overwrite=true", "checkpoint.dir=own", "metrics=null"]
status, err = interrupt(anew, "own")
check(status == 143 and "random start" in err, f"{status}: {err}")
_, err = train(1, *anew, "--dry-run")
check(OWN not in err and "would start at random" in err, err)
saved = newest()
os.environ["SLURM_RESTART_COUNT"] = "1"
_, err = train(1, *anew, "--dry-run")
check(OWN in err and f"would go on from step {saved}:" in err, err)
