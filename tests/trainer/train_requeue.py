#!/usr/bin/env python3
"""A job that is interrupted and requeued continues from its own steps, with the command that it was started with: also if
checkpoint.resume names a step, or is `never` and Slurm says that it has requeued the job. With another configuration, or
when the run is over, the named step is used."""
import glob, os, shutil, signal
from train_lib import cases, check, config, losses, make_text, Run, state, step_path, steps, train

LAST = 200  # too many to be done before a signal comes
from_three = ["config.json", f"checkpoint.resume={step_path(3, 'whole')}", "checkpoint.dir=own", "metrics=own.jsonl"]
anew = ["config.json", "checkpoint.resume=never", "checkpoint.overwrite=true", "checkpoint.dir=own", "metrics=null"]
OWN = "a run with exactly this configuration has saved"


def interrupt(arguments, directory):
    run = Run(2, *arguments)
    run.wait_for(lambda: run.pids() and LAST > max(steps(directory) + [0]) > 3, "a step")
    os.kill(run.pids()[0], signal.SIGTERM)
    return run.wait(), run.text(run.err)


def newest():
    return max(steps("own"))


@cases.shared
def whole():
    make_text()
    config(checkpoint={"every": 1, "keep": 3}, max_steps=LAST)
    train(1, "config.json", "checkpoint.every=3", "checkpoint.keep=0", "checkpoint.dir=whole", "metrics=whole.jsonl")
    reference = state(LAST, "whole"), losses("whole.jsonl")
    for step in steps("whole")[1:]:
        shutil.rmtree(step_path(step, "whole"))
    return reference


@cases.shared
def interrupted():
    cases.use(whole)
    status, err = interrupt(from_three, "own")
    check(status == 143 and OWN not in err and "continuing from step 3:" in err, f"{status}: {err}")


@cases.shared
def finished():
    """Continues the interrupted run to its end. Returns the step from which it continued, and its messages."""
    cases.use(interrupted)
    saved = newest()
    _, err = train(1, *from_three)
    return saved, err


def test_another_configuration_starts_from_the_named_step():
    cases.use(interrupted)
    _, err = train(1, *from_three, f"max_steps={LAST - 1}", "--dry-run")
    check(OWN not in err and "would continue from step 3:" in err, err)


def test_a_requeued_job_continues_from_its_own_steps():
    saved, err = cases.use(finished)
    check(OWN in err and f"continuing from step {saved}:" in err, err)
    check(newest() == LAST and not glob.glob("own/.abandoned*"), f"{os.listdir('own')}")
    reference = whole()
    check(state(LAST, "own") == reference[0], "another state")
    check(losses("own.jsonl") == reference[1][3:], "other losses")


def test_a_run_that_is_over_starts_from_the_named_step():
    cases.use(finished)
    _, err = train(1, *from_three, "--dry-run")
    check(OWN not in err and "would continue from step 3:" in err, f"a run that is over: {err}")


def test_a_run_that_starts_anew_continues_if_slurm_requeued_it():
    cases.use(finished)
    status, err = interrupt(anew, "own")
    check(status == 143 and "random start" in err, f"{status}: {err}")
    _, err = train(1, *anew, "--dry-run")
    check(OWN not in err and "would start at random" in err, err)
    saved = newest()
    os.environ["SLURM_RESTART_COUNT"] = "1"
    _, err = train(1, *anew, "--dry-run")
    check(OWN in err and f"would continue from step {saved}:" in err, err)


cases.main()
