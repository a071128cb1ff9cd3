#!/usr/bin/env python3
"""The launcher of the MPI that the build uses, whichever that is. Under dcp-run, training that loses a rank ends with the
bits of an undisturbed run, on as many ranks or on fewer; it is stopped and continues; each rank has its own lines. An
option that the launcher does not know is final, with the launcher's words. dcp-run refuses a launcher that it does not
know by name, before anything starts."""
import os, re, signal, subprocess, time
from train_lib import (BIN, cases, check, config, losses, make_text, state, step_path, TIMEOUT,
                       train, TRAINER, wait_for_end)

MPIEXEC = os.environ["DCP_MPIEXEC"]


def mpirun(name, *lines):
    """Returns a PATH with an mpirun that runs these lines of sh."""
    os.mkdir(name)
    with open(f"{name}/mpirun", "w") as f:
        print("#!/bin/sh", *lines, sep="\n", file=f)
    os.chmod(f"{name}/mpirun", 0o755)
    return {"PATH": f"{os.getcwd()}/{name}:{os.environ['PATH']}"}


@cases.shared
def inputs():
    make_text()
    small = config(max_steps=10)
    return small


OWN = mpirun("own", f'exec "{MPIEXEC}" "$@"')


class Start:
    def __init__(self, name, env, *args):
        self.err, self.out = open(f"{name}.err", "w+"), open(f"{name}.out", "w+")
        self.run = subprocess.Popen([f"{BIN}/dcp-run", *args], stdin=subprocess.DEVNULL, stdout=self.out,
                                    stderr=self.err, env={**os.environ, **env})
        cases.at_end(lambda: self.run.poll() is None and self.run.kill())  # if the case fails

    def text(self):
        return open(self.err.name).read()

    def pids(self, start):
        found = re.search(rf"^dcp-run: start {start}, \d+ ranks, pids([ \d]+)$", self.text(), re.M)
        return [int(pid) for pid in found.group(1).split()] if found else []

    def until(self, condition, what):
        deadline = time.monotonic() + TIMEOUT
        while not condition():
            check(self.run.poll() is None and time.monotonic() < deadline, f"no {what}: {self.text()}")
            time.sleep(0.001)

    def ends(self, expect):
        status = wait_for_end(self.run, self.text)
        check(status == expect, f"exit {status}, not {expect}: {self.text()}")
        return self.text()


@cases.shared
def whole():
    small = cases.use(inputs)
    train(1, config("whole.json", max_steps=10, checkpoint={"dir": "whole"}, metrics="whole.jsonl"))
    return small


def test_a_run_that_loses_a_rank_ends_as_an_undisturbed_one():
    small = cases.use(whole)
    for on_failure, ranks in ("same", 2), ("shrink", 1):
        with cases.part(f"{on_failure}"):
            start = Start(on_failure, OWN, "-n", "2", "--on-failure", on_failure, "--", TRAINER, small,
                          f"checkpoint.dir={on_failure}", f"metrics={on_failure}.jsonl")
            start.until(lambda: start.pids(1) and os.path.isdir(step_path(2, on_failure)), "step 2")
            os.kill(start.pids(1)[1], signal.SIGKILL)
            err = start.ends(0)
            check(len(start.pids(2)) == ranks and not start.pids(3), f"not one restart on {ranks}: {err}")
            check("on 2 ranks" in err.split("dcp-run: start 2")[0], f"MPI knew of others: {err}")
            check(re.search("continuing from step [2-9]|continuing from step 10", err), err)
            check(state(10, on_failure) == state(10, "whole"), f"{on_failure}: another state")
            check(losses(f"{on_failure}.jsonl") == losses("whole.jsonl"), f"{on_failure}: other losses")


def test_a_launcher_that_ends_before_its_ranks_is_not_believed():
    small = cases.use(whole)
    # Open MPI 5's launcher ends with 0 while ranks train if it has lost a host. (The ranks of MPICH are not found below a
    # shell.)
    if "HYDRA" not in subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True).stdout:
        early = mpirun("early", f'[ "$*" != --version ] && mkdir once 2>/dev/null || exec "{MPIEXEC}" "$@"',
                       f'"{MPIEXEC}" "$@" &', f"until [ -d {step_path(2, 'early.ckpt')} ]; do sleep 0.01; done",
                       "exit 0")
        start = Start("early", early, "-n", "2", "--", TRAINER, small, "checkpoint.dir=early.ckpt",
                      "metrics=early.jsonl")
        err = start.ends(0)
        check("start 1 failed with status 0" in err and len(start.pids(2)) == 2, f"believed: {err}")
        check(state(10, "early.ckpt") == state(10, "whole"), "another state")


def test_sigterm_reaches_the_ranks():
    small = cases.use(inputs)
    # The launcher itself does not get it.
    start = Start("stopped", OWN, "-n", "2", "--", TRAINER, small, "checkpoint.dir=stopped", "max_steps=100000")
    start.until(lambda: start.pids(1) and os.path.isdir(step_path(1, "stopped")), "step 1")
    start.run.send_signal(signal.SIGTERM)
    err = start.ends(143)
    check("killing" not in err, err)


def test_ranks_know_who_they_are_and_have_their_own_logs():
    cases.use(inputs)
    start = Start("logged", OWN, "-n", "2", "--logs", "logs", "--", "sh", "-c",
                  'echo "  I am $RANK of $WORLD_SIZE, here $LOCAL_RANK of $LOCAL_WORLD_SIZE"; echo "no $RANK" >&2')
    start.ends(0)
    for rank in range(2):
        said = open(f"logs/start-1/rank-{rank}.log").read()
        for line in f"  I am {rank} of 2, here {rank} of 2", f"no {rank}":
            check(re.search(rf"\d {line}$", said, re.M), f"not {line}: {said}")


def test_an_unknown_option_of_the_launcher_is_final():
    small = cases.use(inputs)
    # dcp-run passes an option that this launcher does not know.
    wrong = mpirun("wrong", f'[ "$*" = --version ] || set -- --no-such-option "$@"; exec "{MPIEXEC}" "$@"')
    start = Start("option", wrong, "-n", "2", "--", TRAINER, small, "checkpoint.dir=option")
    err = start.ends(2)
    check("no-such-option" in err + open(start.out.name).read(), err)
    check("mpirun has printed why it refuses this command line: mpirun -n 2" in err, err)
    check(err.count("dcp-run: start 1, ") == 1 and "start 2" not in err, err)


def test_an_unknown_launcher_is_refused_by_name():
    small = cases.use(inputs)
    intel = mpirun("intel", "echo 'Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005'")
    err = Start("intel", intel, "-n", "2", "--", TRAINER, small).ends(2)
    check("the one in PATH reports: Intel(R) MPI Library" in err and "start 1" not in err, err)
    os.mkdir("empty")
    err = Start("none", {"PATH": f"{os.getcwd()}/empty"}, "-n", "2", "--", TRAINER, small).ends(3)
    check("no mpirun in PATH" in err and "start 1" not in err, err)


cases.main()
