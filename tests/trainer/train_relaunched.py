#!/usr/bin/env python3
"""dcp-run is killed in training and started again at once: the new one continues, to the same state. It waits up to
--grace for a store that another process holds, until the store is free, or the run ends and names the holder. A run
whose store another writer has taken over ends, also if it skips saves while another save is in flight."""
import fcntl, os, struct, subprocess, time
from train_lib import (BIN, cases, check, config, fail, losses, make_text, messages, Run, state,
                       steps, TIMEOUT, train, TRAINER)

F_OFD_SETLK = 37
WHOLE = struct.pack("hhlli4x", fcntl.F_WRLCK, 0, 0, 0, 0)
constant = {"type": "constant"}


def launch(*args):
    return subprocess.Popen([f"{BIN}/dcp-run", *args, "--", TRAINER, "killed.json"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for(condition, run, what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        if run.poll() is not None or time.monotonic() > deadline:
            run.kill()
            fail(f"waited in vain for {what}: {run.communicate()[1]}")
        time.sleep(0.001)


def ends(run, expect):
    try:
        _, err = run.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        run.kill()
        fail(f"hangs: {run.communicate()[1]}")
    check(run.returncode == expect, f"exit {run.returncode}, not {expect}: {err}")
    return err


def takes_lock():
    with open("ckpt/.lock", "r+") as lock:
        try:
            fcntl.fcntl(lock, F_OFD_SETLK, WHOLE)
        except OSError:
            return False
        return True


@cases.shared
def inputs():
    make_text()
    config("killed.json", max_steps=1000000, scheduler=constant, metrics="lines.jsonl")


def test_a_run_continues_after_dcp_run_was_killed():
    cases.use(inputs)
    newest = 0
    for ranks in ("2", "3", "2"):
        run = launch("-n", ranks)
        wait_for(lambda: max(steps() + [0]) > newest, run, f"a step after {newest}")
        run.kill()
        run.wait()
        run.stderr.close()
        newest = max(steps())
    while not takes_lock():  # killed ranks may publish some more steps
        time.sleep(0.01)
    last = max(steps()) + 2
    config("killed.json", max_steps=last, scheduler=constant, metrics="lines.jsonl")
    train(1, config("whole.json", max_steps=last, scheduler=constant, checkpoint={"dir": "whole", "every": 0},
                    metrics="whole.jsonl"))
    err = ends(launch("-n", "2"), 0)
    check("start 2, " not in err and "continuing from step" in err, err)
    check(state(last) == state(last, "whole"), "the state differs")
    check(losses("lines.jsonl") == losses("whole.jsonl"), "losses differ")


@cases.shared
def finished():
    """Makes a run of two steps that is over."""
    cases.use(inputs)
    train(1, config("killed.json", max_steps=2, scheduler=constant, metrics="lines.jsonl"))


def hold(path="ckpt/.lock"):
    """Takes the lock of a writer for this process, which belongs to no job. Returns the file."""
    holder = open(path, "r+")
    cases.at_end(holder.close)
    fcntl.fcntl(holder, F_OFD_SETLK, WHOLE)
    return holder


def test_a_store_that_stays_in_use_ends_the_run():
    cases.use(finished)
    hold()
    err = ends(launch("-n", "2", "--grace", "0.5"), 2)
    check(err.count("waiting for up to 0.5 s (dcp-run --grace), because") == 1, err)
    check("is in use by another writer" in messages(err)[-1] and "start 2, " not in err, err)


def test_a_restart_waits_for_locks_that_outlive_lost_ranks():
    cases.use(finished)
    os.environ["DCP_RUN_TAKE_OVER"] = "1"
    for last, path in (3, "lines.jsonl"), (4, "ckpt/.lock"):
        with cases.part(path):
            # Another restart may find the lock released.
            holder = hold(path)
            os.environ["DCP_RUN_GRACE"] = "0"
            train(2, "killed.json", f"max_steps={last}", expect=3)
            os.environ["DCP_RUN_GRACE"] = "1000"
            run = Run(2, "killed.json", f"max_steps={last}")
            check(run.wait_for(lambda: "waiting for up to 1000 s (dcp-run --grace)" in run.text(run.err), "the lock"),
                  run.text(run.err))
            holder.close()
            check(run.wait() == 0 and max(steps()) == last, run.text(run.err))


def test_a_store_that_becomes_free_is_used():
    cases.use(finished)
    holder = hold()
    run = launch("-n", "2", "--grace", "1000")
    said = ""
    while "waiting for up to 1000 s" not in said:  # until then the run does not end
        line = run.stderr.readline()
        check(line, f"does not wait: {said}")
        said += line
    holder.close()
    ends(run, 0)


def test_a_run_whose_store_was_taken_over_ends():
    make_text()
    # The other writer is on another host; only what `.lock` names is visible of it.
    run = Run(2, config("taken.json", metrics="taken.jsonl", max_steps=1000000,
                        checkpoint={"dir": "taken", "keep": 2, "async": True, "when_busy": "skip"}))
    check(run.wait_for(lambda: steps("taken"), "a step"), run.text(run.err))
    with open("taken.lock", "w") as lock:
        lock.write("far.away 17 4711 0123456789abcdef 4026531836 00000000000000ab sole held 17\n")
    os.rename("taken.lock", "taken/.lock")
    status, err = run.wait(), run.text(run.err)
    check(status == 3, f"exit {status}: {err}")
    check("the run ends: " in err and "taken over by another writer, process 17 on host far.away" in err, err)
    check("training continues" not in err, err)


cases.main()
