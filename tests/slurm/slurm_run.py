#!/usr/bin/env python3
"""A run is a job of a real Slurm, with the script of examples/slurm. It is preempted, put back into the queue,
submitted again with another number of ranks, and loses a node; it ends with the bits of an undisturbed run."""
import os, re
from slurm_lib import cases, newest, slurm, text, until
from hosts_train import hosts, ranks_at, until_without_secret
from train_lib import BIN, SOURCE, check, config, losses, make_text, state, steps, train

COMMON = {"scheduler": {"type": "constant", "params": {}}}  # the state must not depend on the last step


def submit(log, nodes, ranks_per_node, *options, path="endless.json"):
    return slurm.submit(f"--nodes={nodes}", f"--ntasks-per-node={ranks_per_node}", "--time=5", f"--output={log}", *options,
                        f"{SOURCE}/examples/slurm/train.sh", path)


def after(step, job, log):
    """Waits until the job has saved that step, or a later one."""
    until(lambda: newest() >= step or slurm.show(job, "JobState") not in ("PENDING", "RUNNING"),
          f"step {step} in the job of {log}")
    check(newest() >= step, f"job {job} is {slurm.show(job, 'JobState')} at {steps()}: {text(log)}")


def goes_on(log, step):
    """Checks that the log's last start continues from the step that was saved last, so no step is computed twice."""
    found = re.findall(r"continuing from step (\d+)", text(log))
    check(found and int(found[-1]) == step, f"not from step {step}: {text(log)}")


def test_disturbed_jobs_end_with_the_bits_of_an_undisturbed_run():
    """One test, because each job continues from the steps of the one before."""
    make_text()
    os.environ["PATH"] = f"{BIN}:{os.environ['PATH']}"
    config("endless.json", max_steps=100000, checkpoint={"keep": 2}, metrics="run.jsonl", **COMMON)

    # A job with a higher priority takes the nodes, and the run waits for it.
    job = submit("first", 3, 1)
    programs = until_without_secret(lambda: all(ranks_at(name) for name in hosts.names), lambda: text("first"))
    check({"srun", "orted"} <= programs, f"not seen: {programs}")
    after(3, job, "first")
    other = slurm.submit("--partition=high", "--nodes=3", "--ntasks-per-node=4", "--output=/dev/null", "--wrap=true")
    slurm.wait(other, "COMPLETED")
    saved = newest()
    after(saved + 3, job, "first")
    goes_on("first", saved)
    check("SIGUSR2" in text("first") and slurm.show(job, "Restarts") == "1", text("first"))

    # Cancelled, and submitted again with twice as many ranks.
    slurm.ask("scancel", job)
    slurm.wait(job, "CANCELLED")
    saved = newest()
    job = submit("second", 3, 2, "--no-kill")
    after(saved + 3, job, "second")
    goes_on("second", saved)

    # A node is lost with all its processes: the job keeps the other nodes, and the run continues on them.
    hosts.kill("h3")
    until(lambda: "on 4 ranks" in text("second"), "a start without h3")
    after(newest() + 3, job, "second")
    slurm.ask("scancel", job)
    slurm.wait(job, "CANCELLED")

    # Steps of the job get only Slurm's variables.
    os.environ["SLURM_EXPORT_ENV"] = "NONE"
    last = newest() + 2
    path = config("run.json", max_steps=last, checkpoint={"keep": 2}, metrics="run.jsonl", **COMMON)
    slurm.wait(submit("third", 2, 1, path=path), "COMPLETED")
    check("start 1, 2 ranks" in text("third") and "restart" not in text("third"), text("third"))
    train(2, config("whole.json", max_steps=last, checkpoint={"dir": "whole", "every": last}, metrics="whole.jsonl", **COMMON))
    check((state(last), losses("run.jsonl")) == (state(last, "whole"), losses("whole.jsonl")),
          f"another result: {text('first')}{text('second')}{text('third')}")


cases.main()
