#!/usr/bin/env python3
"""A job that is interrupted and requeued continues from its own steps, with the command that it was started with: also if
checkpoint.resume names a step, or is `never` and Slurm says that it has requeued the job. Neither a damaged step nor one
that can't be read hides the others. With another configuration, or when the run is over, the named step is used."""
import errno, glob, json, os, shutil, signal
from board_lib import BoardRun
from train_lib import cases, check, config, losses, make_text, metrics, Run, state, step_path, steps, train

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


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


def test_a_damaged_newest_step_hides_no_older_ones():
    for file, left in ("about.json", 0), ("state.h5", 1):
        with cases.part(file), cases.folder(file):
            cases.use(interrupted)
            saved = newest()
            cut(f"{step_path(saved, 'own')}/{file}")
            _, err = train(1, *from_three, "--dry-run")
            check(OWN in err and f"would continue from step {saved - left}:" in err, err)


def test_damaged_steps_of_which_none_is_known_are_told():
    cases.use(interrupted)
    for step in steps("own"):
        cut(f"{step_path(step, 'own')}/state.h5")
    _, err = train(1, *from_three, "--dry-run")
    check(f"step {newest()} is damaged, so it is unknown whether this run has saved it" in err, err)
    check(OWN not in err and "would continue from step 3:" in err, err)


def make_unreadable(step):
    """Makes every access to the step's about.json fail from now on."""
    os.environ.update(LD_PRELOAD=os.environ["CRASH_REFUSE"], REFUSE_BELOW=os.path.realpath("own"), REFUSE_AT="0",
                      REFUSE_ERRNO=str(errno.EIO), REFUSE_ALL=f"{step_path(step)[5:]}/about.json")


def test_a_step_that_cannot_be_read_hides_no_older_ones():
    cases.use(interrupted)
    saved = newest()
    make_unreadable(saved)
    _, err = train(1, *from_three, "--dry-run")
    check(OWN in err and f"would continue from step {saved}:" in err, err)


def test_the_only_step_cannot_be_read():
    cases.use(interrupted)
    saved = newest()
    for step in steps("own")[:-1]:
        shutil.rmtree(step_path(step, "own"))
    make_unreadable(saved)
    _, err = train(1, *from_three, "--dry-run")
    check(f"step {saved} could not be read, so it is unknown whether this run has saved it" in err, err)
    check("would continue from step 3:" in err, err)
    # A job that was requeued cannot mean the named step.
    os.environ["SLURM_RESTART_COUNT"] = "1"
    _, err = train(1, *from_three, "--dry-run", expect=3)
    check(f"step {saved} could not be read, which proves no damage" in err, err)


def test_a_lost_part_of_a_private_store_hides_no_steps():
    cases.use(whole)
    part = {"path": "apart-{rank}", "every": 1, "keep": 2, "redundancy": "partner", "domain": "{rank}"}
    apart = config("apart.json", max_steps=100000, metrics=None, checkpoint={
        "dir": "apart", "every": 5, "keep": 2, "stores": [part], "resume": step_path(3, "whole")})
    run = Run(3, apart)
    run.wait_for(lambda: run.pids() and steps("apart") and max(steps("apart-0")) > 10, "steps in both stores")
    for pid in run.pids():
        os.kill(pid, signal.SIGKILL)
    run.wait()
    shutil.rmtree("apart-1")
    _, err = train(3, apart, "--dry-run")
    check(OWN in err, err)


def begin_last_step(micro_batch, *arguments):
    """Continues from step 3, and asks it to end in step 4, its last one. Returns the run."""
    run = BoardRun(1, *from_three, "max_steps=4", *arguments)
    run.wait_for(lambda: run.entries()[0].micro_batch >= micro_batch, "the last step")
    os.kill(run.pids()[0], signal.SIGUSR2)
    return run


def test_a_run_that_was_interrupted_in_its_last_step_is_done():
    cases.use(whole)
    longer = "train_batch_size=1400"
    run = begin_last_step(1, longer)
    run.end_with(0)
    check("done: step 4 is saved" in run.said(), run.said())
    os.environ["SLURM_RESTART_COUNT"] = "1"
    _, err = train(1, *from_three, "max_steps=4", longer)
    check(OWN in err and "step 4 of max_steps 4 is reached: nothing to do" in err, err)


def test_an_interrupted_last_evaluation_is_made_up():
    cases.use(whole)
    evaluated = "data.eval_path=text"
    run = begin_last_step(7, evaluated)
    run.end_with(75)
    _, err = train(1, *from_three, "max_steps=4", evaluated)
    check(OWN in err and "step 4 was saved before its evaluation had ended" in err, err)
    check(not glob.glob("own/.abandoned*"), f"{os.listdir('own')}")


def test_a_step_that_is_saved_after_its_evaluation_was_made_up_has_the_value():
    cases.use(whole)
    arguments = ["data.eval_path=text", 'checkpoint.stores=[{"path": "near"}]']
    run = begin_last_step(7, *arguments)
    run.end_with(75)
    shutil.rmtree(step_path(4, "own"))  # its copy in memory remains
    _, err = train(1, *from_three, "max_steps=4", *arguments)
    check("continuing from step 4: near" in err and "the evaluation is done now" in err, err)
    with open(f"{step_path(4, 'own')}/about.json") as file:
        about = json.load(file)
    made_up, = (line["eval_loss"] for line in metrics("own.jsonl") if "eval_loss" in line)
    check(abs(about.get("eval_loss", 0) - made_up) < 1e-4 and "loss" in about, f"{made_up}, about.json: {about}")


cases.main()
