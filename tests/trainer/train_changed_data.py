#!/usr/bin/env python3
"""Data that are not those that a run was trained on: reported on a resume, whatever their size and time, and refused with
status 3 if dcp-run restarts the run, so nothing wrong is trained. If the samples are the same, the names, times and
number of files make no difference. Gradients that MPI adds up are reported, too."""
import os, re, shutil, signal, subprocess, time
from train_lib import (BIN, cases, check, config, fail, make_text, metrics, state, steps, TIMEOUT,
                       train, TRAINER)

over = {"max_steps": 2, "scheduler": {"type": "constant", "params": {"warmup_steps": 3}}}
CHANGED = "data.path, whose samples have the checksum"


def resumed(name, steps, *args, **keys):
    """Returns the messages of a resume of a copy of the first run."""
    shutil.rmtree(name, ignore_errors=True)
    shutil.copytree("ckpt", name)
    c = {**over, "max_steps": steps, **keys}
    return train(1, config(f"{name}.json", **c, checkpoint={"dir": name}, metrics=None), *args)[1]


@cases.shared
def trained():
    make_text()
    train(1, config(**over, eval_every=0))
    train(1, config("longer.json", **{**over, "max_steps": 3}, checkpoint={"dir": "longer"}, metrics=None))

    text = open("text", "rb").read()
    open("other", "wb").write(text[:20000] + bytes([text[20000] ^ 1]) + text[20001:])
    open("short", "wb").write(text[:2000])
    return text


def test_the_same_samples_in_other_files_are_accepted():
    text = cases.use(trained)
    # The files have another name and another time, and two files replace one.
    os.mkdir("parts")
    for name, part in (("a", text[:4321]), ("b", text[4321:])):
        open(f"parts/{name}", "wb").write(part)
    os.utime("parts/a", (1, 1))
    err = resumed("moved", 3, data={"path": "parts"})
    check("data.path" not in err and state(3, "moved") == state(3, "longer"), f"the same data: {err}")


def test_one_changed_byte_is_a_warning():
    cases.use(trained)
    err = resumed("replaced", 3, data={"path": "other"})
    check(f"warning: the checkpoint was saved with {CHANGED}" in err and "step 3 is saved" in err, err)
    err = resumed("preview", 3, "--dry-run", data={"path": "other"})
    check(CHANGED in err, err)


def test_fewer_samples_are_a_warning():
    cases.use(trained)
    err = resumed("short-run", 3, data={"path": "short"})
    check("whose samples are" in err and CHANGED not in err, err)


def test_the_ring_is_a_warning():
    cases.use(trained)
    err = resumed("ring", 3, zero_optimization={"ring": True})
    check("saved with zero_optimization.ring false, but the run continues with true" in err, err)


def test_other_evaluation_data_are_a_warning():
    cases.use(trained)
    # Evaluation data are not part of the state, but losses of evaluations are then not comparable.
    train(1, config("eval.json", **{**over, "data": {"eval_path": "short"}}, checkpoint={"dir": "evaluated"},
                    metrics=None))
    check(state(2, "evaluated") == state(2), "evaluation data are in the state")
    _, err = train(1, "eval.json", "max_steps=3", "data.eval_path=other")
    check("data.eval_path has other samples than when the checkpoint was saved" in err, err)
    _, err = train(1, "eval.json", "max_steps=4", "data.eval_path=other")
    check("data.eval_path has other" not in err, err)


def test_data_cut_or_lost_during_a_run_end_it():
    text = cases.use(trained)
    # dcp-run watches the run.
    for harm in ("cut", "lost"):
        with cases.part(f"{harm}"):
            open(f"{harm}.text", "wb").write(text)
            endless = config(f"{harm}.json", max_steps=100000, scheduler={"type": "constant"},
                             data={"path": f"{harm}.text"},
                             checkpoint={"dir": harm, "keep": 2, "every": 1}, metrics=f"{harm}.jsonl")
            with open(f"{harm}.err", "w+") as log:
                run = subprocess.Popen([f"{BIN}/dcp-run", "-n", "2", "--max-restarts", "1", "--", TRAINER, endless],
                                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
                deadline = time.monotonic() + TIMEOUT
                while max(steps(harm) + [0]) < 2:
                    check(run.poll() is None and time.monotonic() < deadline, f"{harm}: {open(f'{harm}.err').read()}")
                    time.sleep(0.001)
                if harm == "cut":
                    os.truncate(f"{harm}.text", 2000)
                else:
                    os.remove(f"{harm}.text")
                    pids = re.search(r"start 1, 2 ranks, pids (\d+) (\d+)", open(f"{harm}.err").read())
                    os.kill(int(pids[1]), signal.SIGKILL)
                try:
                    status = run.wait(TIMEOUT)
                except subprocess.TimeoutExpired:
                    run.kill()
                    fail(f"{harm} hangs")
            said = open(f"{harm}.err").read()
            check(status == 3 and "dcp-run: start 2" in said, f"{harm}: exit {status}: {said}")
            why = {"cut": "no longer holds the samples that the run was trained on",
                   "lost": "cannot read lost.text"}[harm]
            check(f"data.path: {why}" in said.replace("cut.text ", ""), f"{harm}: {said}")
            check(harm == "lost" or "data.path: cut.text has become shorter" in said, said)
            lines = metrics(f"{harm}.jsonl")
            check([line["step"] for line in lines] == list(range(1, len(lines) + 1)), f"{harm}: {len(lines)} lines")
            check(max(steps(harm)) <= len(lines), "a step is saved that was not computed")
            check(all(line["loss"] > 0.5 for line in lines), f"{harm}: something else was trained on")


cases.main()
